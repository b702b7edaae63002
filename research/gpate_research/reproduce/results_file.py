"""The results file: one JSON object a line, each with everything that is needed to repeat it.

Lines are only ever added. A line counts once its newline is on disk: after a crash in the middle of one, reading leaves the torn
rest out, and the next append cuts it off. If a unit was run again, the later line is the one that counts.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "results.jsonl"
    >>> _ = file.write_text('{"gpate_reproduce": 1, "unit": "torn')
    >>> read(file)
    []

**Results are confidential.** They are computed from real records without noise, and are for benchmark data only.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gpate.errors import DataUnreadable
from gpate.evaluation.results import Evaluation, Score
from gpate_research.errors import ResultsWriteFailed

VERSION = 1
NOTICE = "Not for release: computed from benchmark records without noise."


@dataclass(frozen=True, kw_only=True)
class Record:
    """What one unit (a fit and a seed) gave.

    Attributes:
        unit: its id.
        fit: what was asked: recipe, data set, epsilon, delta, changes, task.
        seed: of everything; the noise has the same.
        quick: whether it was a fast, lower-quality run.
        asked: all settings as they were asked for; they say whether a result is of this version's recipe.
        settings: all settings as they were in the end.
        noise: `fast`: experiments are not released.
        privacy: epsilon and delta guaranteed, spend, accountant, events by mechanism, why it is not for release.
        data: the benchmark: checksums and sizes of its splits.
        device: model of the GPU, or `cpu`.
        versions: of gpate, its commit, torch and python.
        seconds: by part; none for a fit that was interrupted and resumed.
        figures: of the run itself: iterations, and what a task without evaluation gives.
        evaluation: all scores, as `Evaluation.to_json` has them; None for a task without.
        warnings: that the fit gave.
        notice: what this line may be used for.
        created: time, UTC, ISO 8601.
    """

    unit: str
    fit: Mapping[str, Any]
    seed: int
    quick: bool
    asked: Mapping[str, Any]
    settings: Mapping[str, Any]
    noise: str
    privacy: Mapping[str, Any]
    data: Mapping[str, Any]
    device: str
    versions: Mapping[str, Any]
    seconds: Mapping[str, float]
    figures: Mapping[str, float] = field(default_factory=dict)
    evaluation: Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()
    notice: str = NOTICE
    created: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data; infinity as the text "inf"."""
        return {"gpate_reproduce": VERSION, **plain(dataclasses.asdict(self))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Record:
        """The inverse of `to_json`."""
        names = {f.name for f in dataclasses.fields(cls)}
        fields = {name: value for name, value in data.items() if name in names}
        return cls(**{**fields, "warnings": tuple(fields.get("warnings", ()))})

    def replaces(self, other: Record) -> bool:
        """Whether this is the later result of a unit, and has all scores of the other, unless that is of other settings."""
        if self.created <= other.created:
            return False
        return plain(self.asked) != plain(other.asked) or other._measured <= self._measured

    @property
    def _measured(self) -> set[tuple[str, str]]:
        """Scores of synthetic records that have a value. A subject may say after a comma by how many images; benchmarks do not."""
        return {
            (score.metric, score.subject.partition(",")[0])
            for score in self._scores
            if score.source == "synthetic" and score.values
        }

    @cached_property
    def _scores(self) -> tuple[Score, ...]:
        return () if self.evaluation is None else Evaluation.from_json(self.evaluation).scores

    def value(self, score: str, subject: str | None, source: str) -> float | str | None:
        """A figure of the run, or the mean of a score; the reason if there is none; None if it was never looked for."""
        if source == "synthetic" and score in self.figures:
            return float(self.figures[score])
        for found in self._scores:
            if found.metric == score and found.source == source and subject in (None, found.subject):
                return found.mean if found.values else found.reason
        return None


def plain(value: Any) -> Any:
    """What JSON can hold: lists for tuples, the text `inf` for infinity."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def read(path: str | os.PathLike[str]) -> list[Record]:
    """All records, one for each unit: the later where there are several. A torn last line is left out.

    Raises:
        DataUnreadable: a whole line is not a record.
    """
    file = Path(path)
    if not file.exists():
        return []
    raw = file.read_bytes()
    found: dict[str, Record] = {}
    for number, line in enumerate(raw[: raw.rfind(b"\n") + 1].splitlines(), start=1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            if data["gpate_reproduce"] != VERSION:
                raise DataUnreadable(
                    f"Line {number} of {file} is of another version. Fix: use the gpate that wrote it."
                )
            record = Record.from_json(data)
        except (ValueError, KeyError, TypeError) as problem:
            raise DataUnreadable(f"Line {number} of {file} is not a result. Fix: remove the line.") from problem
        found.pop(record.unit, None)
        found[record.unit] = record
    return list(found.values())


def append(path: str | os.PathLike[str], record: Record) -> None:
    """Adds a record, on disk when this returns; cuts off a torn line before it.

    Raises:
        ResultsWriteFailed: it could not be brought to disk whole.
    """
    file = Path(path)
    line = json.dumps(record.to_json(), allow_nan=False).encode() + b"\n"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a+b") as out:
            fcntl.flock(out, fcntl.LOCK_EX)  # two runs may share a file
            out.seek(0)
            raw = out.read()
            whole = raw.rfind(b"\n") + 1
            if whole < len(raw):
                out.truncate(whole)
            out.write(line)
            out.flush()
            os.fsync(out.fileno())
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise ResultsWriteFailed(f"{file} could not be written ({reason}). Fix: make room, and run again.") from problem
