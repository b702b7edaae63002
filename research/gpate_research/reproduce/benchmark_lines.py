"""Takes lines of `research/benchmarks/` into the results file, so that its tables show them.

Benchmarks and `gpate reproduce run` say alike what a result was made with (`gpate_research.reproduce.provenance`); a benchmark has fewer
scores. A line counts for the unit that it ran. Lines that were tested on anything but the test images, and lines from before benchmarks
recorded their settings, are left out.

    >>> taken([{"tested_on": "6000 training images held out", "asked": {}}, {"accuracy": 0.9}], source="lines.jsonl")
    []
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpate.errors import DataUnreadable
from gpate.evaluation.harness import PROTOCOL
from gpate.evaluation.image_classifiers import NAMES
from gpate.evaluation.results import Evaluation, Metric
from gpate_research.reproduce.cells import Fit
from gpate_research.reproduce.results_file import Record
from gpate_research.reproduce.units import Unit

TEST = "test images"

_METRICS = {
    "inception_score": Metric("quality", "inception_score", "cnn-strong"),
    "fid_classifier": Metric("quality", "fid-classifier", "cnn-strong", False),
    "fid": Metric("quality", "fid", "inception", False),
}


def taken(lines: Iterable[Mapping[str, Any]], *, source: str) -> list[Record]:
    """The records of those lines that are results.

    Args:
        lines: as a benchmark wrote them.
        source: the file they are from, named in each record.

    Raises:
        DataUnreadable: one of them lacks what a result needs.
    """
    results = [line for line in lines if "asked" in line and line.get("tested_on", TEST) == TEST]
    try:
        return [_record(line, source) for line in results]
    except (KeyError, TypeError) as missing:
        raise DataUnreadable(f"A line of {source} is not a benchmark's: {missing}. Fix: remove the line.") from missing


def _record(line: Mapping[str, Any], source: str) -> Record:
    settings = line["settings"]
    recipe, delta = line.get("recipe", "default"), line["privacy"]["delta"]
    changes = tuple(line["set"].items())
    fit = Fit(recipe=recipe, dataset=line["dataset"], epsilon=line["epsilon"], delta=delta, changes=changes)
    unit = Unit(fit=fit, seed=line["seed"], quick=line.get("quick", False))
    seconds = {"fit": line["seconds"]["fit" if "fit" in line["seconds"] else "train"]}
    figures = {"fit_seconds": seconds["fit"], "hours": seconds["fit"] / 3600}
    if line.get("iterations"):
        figures["iterations"] = line["iterations"]
    return Record(
        unit=unit.id,
        fit={name: getattr(fit, name) for name in ("recipe", "dataset", "epsilon", "delta", "changes", "task")},
        seed=unit.seed,
        quick=unit.quick,
        asked=line["asked"],
        settings=settings,
        noise=line["noise"],
        privacy=line["privacy"],
        data=line["data"],
        device=line["device"],
        versions=line["versions"],
        seconds=seconds,
        figures=figures,
        evaluation=_evaluation(line, recipe, source).to_json(),
        warnings=tuple(line.get("warnings", ())),
        created=line["created"],
    )


def _evaluation(line: Mapping[str, Any], recipe: str, source: str) -> Evaluation:
    accuracies = {name: value for name, value in line["scores"].items() if name in NAMES}  # not the labeller's own
    scores = [Metric("utility", "accuracy", name).score("synthetic", [value]) for name, value in accuracies.items()]
    scores += [metric.score("synthetic", [line[name]]) for name, metric in _METRICS.items() if name in line]
    return Evaluation(
        kind="image",
        dataset=line["dataset"],
        subject=recipe,
        sizes={
            "synthetic": line["trained_on"],
            **{split: line["data"][split]["records"] for split in ("train", "test")},
        },
        privacy=line["privacy"],
        recipe=recipe,
        protocol=PROTOCOL,
        seeds={"generator": [line["seed"]], "classifier": [line["seed"]]},
        quick=line.get("quick", False),
        scores=tuple(scores),
        notes=(f"Run by a benchmark, and taken from {source}.",),
        version=line["versions"]["gpate"],
        commit=line["versions"]["commit"],
        device=line["device"],
        created=line["created"],
    )
