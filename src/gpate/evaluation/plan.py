"""What an evaluation is given: real records, and how it is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpate.errors import InvalidValue, require_count
from gpate.evaluation.membership_attack import check_shadows
from gpate.schema import ImageSchema, TableSchema

Draw = Callable[[int], Any]
"""The synthetic set of a seed: a data frame, or (images, numbers of classes), or (images, class probabilities)."""

OnProgress = Callable[[int, int, str], None]
"""Called after each part of the work with how many are done, how many there are, and the part's name."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RealRecords:
    """The real records that a synthetic set is compared with. Confidential.

    Attributes:
        train: what it was made from: a data frame, or (images, numbers of classes).
        test: records of the same kind that it was not made from.
        schema: of all of them, and of the synthetic set.
        name: of the data.
    """

    train: Any
    test: Any
    schema: TableSchema | ImageSchema
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    """How an evaluation is done.

    Attributes:
        generator_seeds: one synthetic set each; only the first if `quick`.
        classifier_seeds: every classifier with chance in it is trained once for each on each set; only the first if `quick`.
        n: records of a release's synthetic set; as many as real training records by default.
        quick: a fast evaluation of lower quality: fewer records, classifiers and seeds.
        device: for images, where classifiers are trained: `cpu` or `cuda`.
        attack: whether to try membership inference (`gpate.evaluation.membership_attack`).
        shadows: models that are fitted for it; 0, or an even number from 4, which implies `attack`.
        jobs: processes for tables; by default one for each processor if the table is large. Scores do not depend on it.
        inception: path of Inception's weights, if the extra `fid` is not installed.
        flips: for images, whether a mirror image is of the same class, so that `cnn-wide` may be trained on both; by default
            if they are in colour.
    """

    generator_seeds: tuple[int, ...] = (0, 1)
    classifier_seeds: tuple[int, ...] = (0, 1)
    n: int | None = None
    quick: bool = False
    device: str = "cpu"
    attack: bool = False
    shadows: int = 0
    jobs: int | None = None
    inception: Path | None = None
    flips: bool | None = None

    def __post_init__(self) -> None:
        check_shadows(self.shadows)
        if self.n is not None:
            require_count("n", self.n, 1)
        for name in ("generator_seeds", "classifier_seeds"):
            seeds = tuple(getattr(self, name))
            if not seeds or len(set(seeds)) < len(seeds):
                raise InvalidValue(name, list(seeds), "one or more different seeds")
            object.__setattr__(self, name, seeds[:1] if self.quick else seeds)
