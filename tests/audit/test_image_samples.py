"""Audits of images by their samples: class names come back as numbers, and a release without noise gives the record away."""

from __future__ import annotations

import numpy as np
import pytest

from gpate.audit import RecipeGame, WorstCase
from gpate.schema import ImageSchema

SCHEMA = ImageSchema(height=8, width=8, classes=("cat", "dog"))
TINY = {
    "dpgan": {"iterations": 2, "samples": 4, "critic_steps": 1, "batch": 4, "accountant": "rdp"},
    "dpmerf": {"matching.steps": 2, "matching.batch": 4, "first.frequencies": 20},
}


@pytest.mark.parametrize("recipe", TINY)
def test_a_trial_gives_means_spreads_and_class_proportions(recipe: str) -> None:
    game = RecipeGame(
        case=WorstCase(schema=SCHEMA),
        recipe=recipe,
        epsilon=5.0,
        statistic="samples",
        samples=40,
        settings=TINY[recipe],
    )
    values = [game.trial(with_).values for with_ in (False, True)]
    for found in values:
        assert found.shape == (2 * 64 + 2,)
        assert np.isfinite(found).all()
        assert found[-2:].sum() == pytest.approx(1.0)


def test_methods_that_draw_in_secret_are_audited_by_samples() -> None:
    game = RecipeGame(case=WorstCase(schema=SCHEMA), recipe="dpgan", epsilon=5.0, settings=TINY["dpgan"])
    assert not game.by_transcript
    with pytest.raises(ValueError, match="samples for the recipe dpgan"):
        RecipeGame(case=WorstCase(schema=SCHEMA), recipe="dpgan", statistic="transcript")
