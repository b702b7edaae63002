"""The headline of an image evaluation is the lower of two networks, beside the ceiling of the same network."""

from __future__ import annotations

from gpate.evaluation.results import Evaluation, Score
from gpate.report.utility_section import _headline, _lower


def found(**accuracies: tuple[float, float]) -> Evaluation:
    scores = [
        Score(group="utility", metric="accuracy", subject=name.replace("_", "-"), source=source, values=(value,))
        for name, sides in accuracies.items()
        for source, value in zip(("synthetic", "real"), sides, strict=True)
    ]
    return Evaluation(kind="image", dataset="faces", subject="run", sizes={}, scores=tuple(scores))


def test_the_lower_of_two_is_shown_beside_its_own_ceiling_and_the_other_is_named() -> None:
    both = found(cnn=(0.858, 0.958), cnn_wide=(0.795, 0.977), logistic=(0.5, 0.6))
    assert _headline(both) == ("accuracy", 0.795, 0.977)
    assert _lower(both) == " This is the accuracy of cnn-wide, the lower of two networks; cnn reaches 0.858."
    other = found(cnn=(0.7, 0.958), cnn_wide=(0.795, 0.977))
    assert _headline(other) == ("accuracy", 0.7, 0.958)
    assert "cnn-wide reaches 0.795" in _lower(other)


def test_an_older_record_has_one_network_and_says_nothing_of_two() -> None:
    older = found(cnn=(0.858, 0.958), cnn_strong=(0.7, 0.97))
    assert _headline(older) == ("accuracy", 0.858, 0.958)
    assert _lower(older) == ""
