"""Releases that older versions wrote load, sample and verify: small ones, fitted to made-up records, are kept as they were written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpate import Synthesizer, verify
from gpate.methods.base import settings_of
from gpate.refit import refitter
from gpate.release import Release
from tests.methods.small import images, table
from tests.processes import FEW_LATENTS

FIXTURES = Path(__file__).parents[1] / "fixtures"
RELEASES = sorted(FIXTURES.glob("*-*"))


@pytest.mark.parametrize("run", RELEASES, ids=lambda path: path.name)
def test_an_older_release_verifies_loads_and_samples(run: Path) -> None:
    report = verify(run / "release")
    assert report.passed, report
    model = Synthesizer.load(run / "release")
    assert model.privacy.epsilon in (1.0, 2.0)
    assert model.privacy.exact_noise
    made = model.sample(20, seed=1)
    if "image" in run.name:
        size = 16 if "labelled" in run.name else 8
        assert made[0].shape == (20, size, size)
        assert set(model.sample(5, where={"class": "dot"}, seed=1)[1]) == {"dot"}
        bars, dots = (model.sample(200, where={"class": name}, seed=1)[0].mean(0) for name in ("bar", "dot"))
        assert np.abs(bars - dots).max() > 20, "the classes differ, as those it was fitted to"
    else:
        assert list(made.columns) == list(records_of(run))
        assert made["age"].between(0, 100).all()
        if "persons" in run.name:
            assert (made["least"] <= made["age"]).all()


def records_of(run: Path) -> Any:
    """Such as the release was fitted to; those of a table without the column of the persons."""
    if "labelled" in run.name:
        pictures, labels = images(60)
        return np.kron(pictures, np.ones((1, 2, 2), dtype=np.uint8)), labels
    if "image" in run.name:
        return images(60)
    return table(60).assign(least=lambda rows: rows["age"] - 5) if "persons" in run.name else table(60)


def within(old: Any, new: Any) -> bool:
    """Whether all settings of an older version have their values still; newer ones may stand beside them."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(name in new and within(value, new[name]) for name, value in old.items())
    return bool(old == new)


@pytest.mark.parametrize("run", RELEASES, ids=lambda path: path.name)
def test_its_settings_are_understood_well_enough_to_fit_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpate.generators.student._REFRESH", FEW_LATENTS)
    release = Release.load(run / "release")
    settings = settings_of(release.settings)
    assert within(dict(release.settings), json.loads(json.dumps(settings.to_json())))
    again = refitter(release.settings, release.schema, epsilon=2.0, delta=1e-5, n=10)
    records = records_of(run)
    if "persons" in run.name:
        records["person"] = [f"p{row // 2}" for row in range(len(records))]
    made = again(records, 1)
    assert len(made[0] if isinstance(made, tuple) else made) == 10


def test_a_changed_byte_in_an_old_release_is_seen(tmp_path: Path) -> None:
    shutil.copytree(RELEASES[0] / "release", tmp_path / "release")
    schema = tmp_path / "release" / "schema.yaml"
    schema.write_bytes(schema.read_bytes().replace(b"8", b"9"))
    assert not verify(tmp_path / "release").passed
