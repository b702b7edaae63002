"""What an evaluation found: scores, and all that is needed to compare or repeat them.

A score is a list of values, one for each repetition (generator seed x classifier seed), or the reason why there is none.
An `Evaluation` is one JSON record, fit to be appended to a file of records. **Scores are confidential: computed from real
records without noise.** They belong beside the private half of a run, never into a release.

    >>> score = Score(group="utility", metric="accuracy", subject="cnn", source="synthetic", values=(0.9, 0.92))
    >>> round(score.mean, 3), round(score.std, 3)
    (0.91, 0.014)
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gpate.errors import InvalidValue
from gpate.evaluation.findings import ColumnFinding, PairFinding

Group = Literal["utility", "fidelity", "quality", "memorisation"]
Source = Literal["synthetic", "real"]
Value = float | str
"""A number, or the reason why there is none."""

RECORD_VERSION = 1
SHOWN_TIMES = {"k-marginal score": 1000}
"""Scores that people read on another scale than they are kept on: NIST's goes to 1000."""

HEADLINE_CLASSIFIERS = ("cnn", "cnn-wide")
"""Of images: the lower of their accuracies is the headline. A weak classifier overlooks, and a strong one learns, what gives away
the class of a synthetic image without being its class."""

FALSE_ALARMS = (0.01, 0.001)
"""False positive rates at which an attack's hits are reported."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """One metric of one subject.

    Attributes:
        group: `utility` (a model trained on it, tested on real records), `fidelity` (distances between tables), `quality`
            (of images), `memorisation`.
        metric: its name, e.g. `auroc`, `fid`.
        subject: which classifier, column pair or feature space it belongs to; empty for the whole.
        source: what was evaluated: the `synthetic` records, or the `real` training records as the ceiling.
        values: one for each repetition.
        reason: "not computable, because ..."; then there are no values.
        larger_is_better: the direction; None where there is none.
    """

    group: Group
    metric: str
    source: Source = "synthetic"
    subject: str = ""
    values: tuple[float, ...] = ()
    reason: str | None = None
    larger_is_better: bool | None = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(float(value) for value in self.values))
        if bool(self.values) == (self.reason is not None):
            raise InvalidValue("score", self.metric, "either values or a reason why there are none")
        if not all(math.isfinite(value) for value in self.values):
            raise InvalidValue("score", self.values, "finite: give a reason instead")

    @property
    def mean(self) -> float:
        """Mean over repetitions."""
        return statistics.fmean(self.values)

    @property
    def std(self) -> float:
        """Standard deviation over repetitions (n - 1); 0 for a single one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


class Metric(NamedTuple):
    """What a score is of; attributes as those of `Score`."""

    group: Group
    name: str
    subject: str = ""
    larger_is_better: bool | None = True

    def score(self, source: Source, values: Sequence[Value]) -> Score:
        """The score of the numbers among the values; without any, the first reason."""
        numbers = tuple(value for value in values if not isinstance(value, str) and math.isfinite(value))
        reasons = [value for value in values if isinstance(value, str)]
        return Score(
            group=self.group,
            metric=self.name,
            source=source,
            subject=self.subject,
            values=numbers,
            reason=None if numbers else (reasons or ["not computable, because it came out as not a number"])[0],
            larger_is_better=self.larger_is_better,
        )


@dataclass(frozen=True, kw_only=True)
class Hits:
    """Proportion of members found at a false positive rate, with an interval of 95%."""

    false_alarms: float
    share: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Attacker:
    """What one way to score targets achieved.

    Attributes:
        name: in a few words.
        auc: over all targets, with an interval of 95%: `auc_low`, `auc_high`.
        hits: at each of `FALSE_ALARMS` for which there are enough non-members.
        bound: epsilon is at least this.
        guesses: of the plan that gave it, and how many were `right`.
        curve: (false alarms, hits), thinned.
    """

    name: str
    auc: float
    auc_low: float
    auc_high: float
    hits: tuple[Hits, ...]
    bound: float
    guesses: int
    right: int
    curve: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Membership:
    """What attackers achieved against one synthetic set.

    Attributes:
        attackers: the ways that were tried.
        blind: one that never saw the synthetic records.
        delta: at which epsilon is bounded.
        confidence: with which all bounds hold together.
        members: targets that were trained on; `others` were not.
        reference: records that the attackers know not to be members.
        synthetic: records that they saw.
        shadows: models that they fitted themselves.
        space: in which they measure distances.
        seconds: it took.
    """

    attackers: tuple[Attacker, ...]
    blind: Attacker
    delta: float
    confidence: float
    members: int
    others: int
    reference: int
    synthetic: int
    shadows: int
    space: str
    seconds: float

    @property
    def best(self) -> Attacker:
        """The attacker that proved the largest epsilon; of equals, the one with the largest AUC."""
        return max(self.attackers, key=lambda each: (each.bound, each.auc))

    @property
    def bound(self) -> float:
        """Epsilon is at least this."""
        return self.best.bound

    def refutes(self, epsilon: float) -> bool:
        """Whether a claim is refuted. A true claim is refuted with probability 1 - confidence at most."""
        return self.bound > epsilon

    @property
    def split_differs(self) -> bool:
        """Whether members and others differ without any synthetic record: then the split was not random."""
        return not self.blind.auc_low <= 0.5 <= self.blind.auc_high

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Membership:
        """The inverse of `dataclasses.asdict`."""
        made = tuple(_attacker(each) for each in data["attackers"])
        return cls(**{**data, "attackers": made, "blind": _attacker(data["blind"])})


def _mean(score: Score) -> float:
    return score.mean


def _attacker(data: Mapping[str, Any]) -> Attacker:
    hits = tuple(Hits(**each) for each in data["hits"])
    return Attacker(**{**data, "hits": hits, "curve": tuple((float(x), float(y)) for x, y in data["curve"])})


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Everything that was found about one synthetic set.

    Attributes:
        kind: `table` or `image`.
        dataset: a benchmark's name, or the name of the real file.
        subject: what was evaluated: a release's folder name, or a file's.
        sizes: records: synthetic, train, test.
        privacy: epsilon, delta, accountant, neighbours, not_for_release; empty for a bare file, about which nothing is known.
        recipe: of the release; None for a bare file.
        protocol: when the test set was touched, in words, and how many seeds.
        seeds: generator seeds and classifier seeds.
        quick: whether it was the quick mode.
        scores: what was found.
        columns: findings about each column of a table, of the first synthetic set.
        pairs: likewise about pairs of columns, the worst.
        membership: how well attackers guessed who was trained on; None if no attack was run.
        notes: what a reader must know (a substitution, a class left out).
        version: of gpate.
        commit: of the source, if it ran from a checkout.
        device: where classifiers were trained.
        seconds: it took.
        created: time, UTC, ISO 8601.
    """

    kind: Literal["table", "image"]
    dataset: str
    subject: str
    sizes: Mapping[str, int]
    privacy: Mapping[str, Any] = field(default_factory=dict)
    recipe: str | None = None
    protocol: str = ""
    seeds: Mapping[str, list[int]] = field(default_factory=dict)
    quick: bool = False
    scores: tuple[Score, ...] = ()
    columns: tuple[ColumnFinding, ...] = ()
    pairs: tuple[PairFinding, ...] = ()
    membership: Membership | None = None
    notes: tuple[str, ...] = ()
    version: str = ""
    commit: str | None = None
    device: str = "cpu"
    seconds: float = 0.0
    created: str = ""

    def find(self, metric: str, subject: str = "", source: str = "synthetic") -> Score | None:
        """The score of that name, if there is one."""
        wanted = (metric, subject, source)
        return next((s for s in self.scores if (s.metric, s.subject, s.source) == wanted), None)

    @property
    def headline(self) -> Score | None:
        """Of images: the lower accuracy of `HEADLINE_CLASSIFIERS`, or of the one that an older record has; None if there is none."""
        found = [self.find("accuracy", name) for name in HEADLINE_CLASSIFIERS if self.kind == "image"]
        return min((score for score in found if score is not None and score.values), key=_mean, default=None)

    @property
    def refuted(self) -> bool:
        """Whether an attack proved more than the epsilon that is claimed."""
        claimed = self.privacy.get("epsilon")
        return self.membership is not None and claimed is not None and self.membership.refutes(float(claimed))

    @property
    def memorised(self) -> bool | None:
        """Whether a synthetic set repeats training records; None if that could not be measured."""
        found = [v for s in self.scores if (s.metric, s.source) == ("memorised", "synthetic") for v in s.values]
        return max(found) > 0 if found else None

    @property
    def must_not_be_released(self) -> bool:
        """Whether a finding forbids the release of these records."""
        return self.refuted or bool(self.memorised)

    def to_json(self) -> dict[str, Any]:
        """Plain data; means, deviations, the headline and the verdicts are written beside the values for those who read without gpate."""
        plain = dataclasses.asdict(self)
        plain["scores"] = [
            {**dataclasses.asdict(s), **({"mean": s.mean, "std": s.std} if s.values else {})} for s in self.scores
        ]
        if (headline := self.headline) is not None:
            plain["headline"] = {"metric": headline.metric, "subject": headline.subject, "mean": headline.mean}
        verdicts = {name: getattr(self, name) for name in ("memorised", "refuted", "must_not_be_released")}
        return {"gpate_evaluation": RECORD_VERSION, **plain, **verdicts}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evaluation:
        """The inverse of `to_json`."""
        if data.get("gpate_evaluation") != RECORD_VERSION:
            raise InvalidValue("evaluation record", data.get("gpate_evaluation"), f"of version {RECORD_VERSION}")
        names = {f.name for f in dataclasses.fields(cls)}
        fields = {name: value for name, value in data.items() if name in names}
        scores = tuple(
            Score(**{name: value for name, value in score.items() if name not in ("mean", "std")})
            for score in data["scores"]
        )
        attacked = data.get("membership")
        return cls(
            **{
                **fields,
                "scores": scores,
                "columns": tuple(ColumnFinding.from_json(each) for each in data.get("columns", ())),
                "pairs": tuple(PairFinding.from_json(each) for each in data.get("pairs", ())),
                "notes": tuple(data["notes"]),
                "membership": None if attacked is None else Membership.from_json(attacked),
            }
        )

    def append_to(self, path: str | os.PathLike[str]) -> None:
        """Adds this record to a JSON-lines file; a new one is readable by its owner only."""
        with open(path, "a", opener=lambda name, flags: os.open(name, flags, 0o600)) as out:
            out.write(json.dumps(self.to_json()) + "\n")


def read_evaluations(path: str | os.PathLike[str]) -> list[Evaluation]:
    """All records of a JSON-lines file."""
    return [Evaluation.from_json(json.loads(line)) for line in Path(path).read_text().splitlines() if line.strip()]
