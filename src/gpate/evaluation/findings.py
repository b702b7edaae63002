"""What was found about the columns and pairs of columns of a synthetic table, as plain data. Confidential: real figures are among it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

Verdict = Literal["close", "differs", "far off"]
"""From best to worst; `gpate.evaluation.column_verdicts` has the rule."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Numbers or times of a column; times in seconds since 1970.

    Attributes:
        mean: of those that are not missing; likewise `deviation`, the standard deviation.
        quantiles: at `QUANTILES`.
    """

    mean: float
    deviation: float
    quantiles: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ColumnFinding:
    """One column of a synthetic table against real records.

    Attributes:
        column: its name.
        kind: the type that the schema declares.
        verdict: in a word.
        words: what differs, the most important first; empty if it is close.
        distance: total variation, as `one-way distance`, of samples of one size.
        reference: the same of real records, of the same size.
        missing: proportion of synthetic values that are missing, and of real ones.
        synthetic: numbers or times; None for other columns, or if all values are missing. `real` likewise.
    """

    column: str
    kind: str
    verdict: Verdict
    words: tuple[str, ...]
    distance: float
    reference: float
    missing: tuple[float, float]
    synthetic: Summary | None = None
    real: Summary | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ColumnFinding:
        """The inverse of `dataclasses.asdict`."""
        sides = {side: None if data[side] is None else _summary(data[side]) for side in ("synthetic", "real")}
        return cls(**{**data, **sides, "words": tuple(data["words"]), "missing": tuple(data["missing"])})


@dataclass(frozen=True, kw_only=True)
class PairFinding:
    """One pair of columns; attributes as those of `ColumnFinding`, and `distance` as `two-way distance`."""

    first: str
    second: str
    verdict: Verdict
    words: tuple[str, ...]
    distance: float
    reference: float

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PairFinding:
        """The inverse of `dataclasses.asdict`."""
        return cls(**{**data, "words": tuple(data["words"])})


def _summary(data: Mapping[str, Any]) -> Summary:
    return Summary(**{**data, "quantiles": tuple(data["quantiles"])})


def counted_verdicts(verdicts: Iterable[str]) -> dict[Verdict, str]:
    """How often each was found, from best to worst, as in: 12 close, 2 differ, 1 far off."""
    counts = Counter(verdicts)
    return {
        verdict: f"{counts[verdict]} {'differ' if verdict == 'differs' and counts[verdict] > 1 else verdict}"
        for verdict in VERDICTS
        if counts[verdict]
    }
