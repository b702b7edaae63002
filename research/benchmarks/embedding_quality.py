"""Private embeddings on a benchmark set: train, sample, train a classifier on the samples, test it once on real images.

    python -m research.benchmarks.embedding_quality --dataset mnist --epsilon 1 --seeds 0 1 --set first.bandwidths=[0.2] --out results.jsonl
    python -m research.benchmarks.embedding_quality --show results.jsonl     the table, with the paper's figures and those of others beside

`--set` takes dotted names of `gpate.methods.embedding.method.Embedding` (and `generator.` for the student's `GeneratorSpec`); `--grid` a
JSON file with a list of configurations, each an object with any of `name`, `dataset`, `epsilon`, `seeds` and `set`; all run in
one process. The noise is fast and seeded: these are experiments. The
classifiers are `gpate evaluate`'s `cnn` and `cnn-wide`, after their last epoch; the lower accuracy counts.
Settings are chosen with `--validation 10000`, which holds so many training images out and tests on them. `--quality` adds
the Inception Score and the Frechet distance, by a judge trained on the real images.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from benchmarks.tables import show
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from gpate.boundary import FastNoise, Gate
from gpate.datasets import dataset, load
from gpate.evaluation import RealRecords
from gpate.evaluation.image_evaluation import utility
from gpate.evaluation.image_quality import FULL, LabelledImages, RealImages
from gpate.evaluation.image_quality import QUICK as QUICK_EFFORT
from gpate.evaluation.results import HEADLINE_CLASSIFIERS
from gpate.methods import method_named
from gpate.methods.recipes import resolve
from gpate.refit import temporary_run
from gpate.release import Release
from gpate.run.progress import Monitor
from gpate.schema import ImageSchema, Schema
from gpate.synthesizer import publish

QUICK = {
    "first.frequencies": 200,
    "later.samples": 300,
    "later.epochs": 1,
    "later.frequencies": 100,
    "matching.steps": 3,
    "matching.batch": 100,
    "rematching.steps": 3,
    "rematching.batch": 100,
    "labelling.samples": 300,
    "labelling.directions": 30,
    "labelling.filters": 4,
}


class Data(NamedTuple):
    """A benchmark set: bytes and labels to train and to test on, and the public schema."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    schema: ImageSchema


def data_of(name: str, *, validation: int, limit: int | None) -> Data:
    """The test images, or the last `validation` training images of a fixed shuffle in their place."""
    schema = Schema.load(dataset(name).schema_path)
    assert isinstance(schema, ImageSchema)
    images, labels = _arrays(name, "train")
    if validation:
        order = np.random.default_rng(0).permutation(len(labels))
        kept, held = order[:-validation], order[-validation:]
        return Data((images[kept][:limit], labels[kept][:limit]), (images[held][:limit], labels[held][:limit]), schema)
    test = _arrays(name, "test")
    return Data((images[:limit], labels[:limit]), (test[0][:limit], test[1][:limit]), schema)


def _arrays(name: str, split: Literal["train", "test"]) -> tuple[np.ndarray, np.ndarray]:
    loaded = load(name, split)
    assert loaded.images is not None
    assert loaded.labels is not None
    return loaded.images, loaded.labels


class Clock:
    """Seconds of each part, with the device waited for."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Ends the part of this name."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[name] = round(now - self._last, 2)
        self._last = now


def run(
    configuration: Mapping[str, Any],
    *,
    device: torch.device,
    quick: bool,
    validation: int,
    quality: bool,
    pictures: Path | None,
    cache: dict[str, RealImages],
) -> Iterator[dict[str, Any]]:
    """All seeds of one configuration."""
    name, epsilon = configuration["dataset"], float(configuration["epsilon"])
    data = data_of(name, validation=validation, limit=2000 if quick else None)
    schema, (images, labels) = data.schema, data.train
    real = cache.setdefault(name, _real(data, device, quick))
    changes = {**(QUICK if quick else {}), **configuration.get("set", {})}
    shape = (schema.channels, schema.height, schema.width)
    settings = resolve("default", schema=schema, dataset=name, epsilon=epsilon)
    settings = settings.changed({**changes, "device": device.type})
    plan = method_named(settings.method).plan(settings, schema, epsilon)
    for seed in configuration.get("seeds", [0]):
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        clock = Clock()
        warnings: list[str] = []
        gate = Gate.in_memory(plan.budget(epsilon, 1e-5), FastNoise(seed))
        with temporary_run(images, labels, schema, settings, plan, gate=gate, seed=seed) as run:
            publish(run, method_named(settings.method).fit(replace(run, monitor=Monitor(on_warning=warnings.append))))
            clock.lap("train")
            release = Release.load(run.folder.release).to(device)
        peak = round(torch.cuda.max_memory_allocated() / 1e9, 2) if device.type == "cuda" else None
        made, names = release.sample(1000 if quick else 60_000, seed=seed)
        numbers = {name: number for number, name in enumerate(schema.classes)}
        made_labels = torch.tensor([numbers[name] for name in names.tolist()], device=device)
        made_records = LabelledImages(images=torch.from_numpy(made).to(device), labels=made_labels)
        clock.lap("sample")
        scores = {}
        for network in HEADLINE_CLASSIFIERS:
            scores[network], by_validation, best = utility(made_records, real, network, seed)
            clock.lap(network)
        accuracy = min(scores.values())
        labeller = getattr(release.spec, "labeller", None)
        if labeller is not None:
            guessed = release.probabilities(np.asarray(data.test[0])).argmax(1)
            scores["labeller"] = float((guessed == np.asarray(data.test[1])).mean())
        result = {
            "name": configuration.get("name", ""),
            "dataset": name,
            "epsilon": epsilon,
            "seed": seed,
            "tested_on": f"{validation} training images held out" if validation else "test images",
            "accuracy": round(accuracy, 4),
            "scores": {which: round(score, 4) for which, score in scores.items()},
            "labelled": None if labeller is None else {"agree": labeller.agree, **asdict(release.labelled)},
            "epoch_by_validation": round(by_validation, 4),
            "legacy_best_epoch": round(best, 4),
            "spend": round(gate.spend, 6),
            "seconds": clock.seconds,
            "peak_gb": peak,
            "set": dict(changes),
            "warnings": warnings,
        }
        if quality:
            result["judge_accuracy"] = round(real.reference_accuracy(), 4)
            result["inception_score"] = round(real.inception_score(made_records), 3)
            result["fid_classifier"] = round(real.fid_classifier(made_records), 2)
            if real.weights is not None:
                result["fid"] = round(real.fid(made_records), 2)
            clock.lap("quality")
        if pictures is not None:
            path = pictures / f"{name}-{epsilon:g}-{result['name']}-{seed}.png"
            pixels = torch.from_numpy(made).view(-1, *shape[1:], shape[0]).permute(0, 3, 1, 2) / 255
            picture(pixels, made_labels.cpu(), plan.spec.classes, path)
        print(json.dumps(result), flush=True)
        yield result


def _real(data: Data, device: torch.device, quick: bool) -> RealImages:
    """The real records and their reference classifier."""
    real = RealRecords(train=data.train, test=data.test, schema=data.schema)
    return RealImages(real, effort=QUICK_EFFORT if quick else FULL, device=str(device))


def picture(images: Tensor, labels: Tensor, classes: int, path: Path) -> None:
    """Ten images of each class, a row for each."""
    from PIL import Image

    rows = [images[labels == c][:10] for c in range(classes)]
    rows = [F.pad(row, (0, 0, 0, 0, 0, 0, 0, 10 - len(row))) for row in rows]
    grid = torch.cat([torch.cat(list(row), 2) for row in rows], 1).permute(1, 2, 0).cpu().numpy()
    Image.fromarray(np.squeeze((grid * 255).round().astype(np.uint8))).save(path)


OTHERS = {
    ("mnist", 0.2): (None, "FETA-Pro .862, DPDM .863, DP-MERF .791"),
    ("mnist", 1.0): (0.588, "FETA-Pro .971, DP-FETA .956, DPDM .953, DP-MERF .839"),
    ("mnist", 10.0): (0.809, "FETA-Pro .986, DP-FETA .981, DPDM .981, DP-MERF .832"),
    ("fashion-mnist", 0.2): (None, "DP-FETA .734, DPDM .723, FETA-Pro .702, DP-MERF .697"),
    ("fashion-mnist", 1.0): (0.581, "FETA-Pro .823, DP-FETA .817, DPDM .794, DP-MERF .724"),
    ("fashion-mnist", 10.0): (0.693, "FETA-Pro .883, DP-FETA .873, DPDM .862, DP-MERF .717"),
    ("celeba-gender-s", 1.0): (0.670, "FETA-Pro .885, DP-FETA .823, DP-MERF .810, DP-GAN .779"),
    ("celeba-gender-s", 10.0): (0.690, "FETA-Pro .946, DP-FETA .942, DP-GAN .892, DP-MERF .812"),
}
"""What the paper reports and what others do, by data set and epsilon, none of it run by us. Those of others are from the
method's own paper or DPImageBench, with delta = 1 / (N ln N) and the best of three classifiers."""


def summary(results: Sequence[Mapping[str, Any]]) -> None:
    """Mean and deviation over seeds, beside what was published."""
    rows = []
    groups: dict[tuple[str, str, float], list[Mapping[str, Any]]] = {}
    for result in results:
        groups.setdefault((result["dataset"], result["name"], result["epsilon"]), []).append(result)
    for (name, variant, epsilon), of in groups.items():
        values = np.array([r["accuracy"] for r in of])
        paper, others = OTHERS.get((name, epsilon), (None, ""))
        rows.append(
            {
                "data": name,
                "variant": variant,
                "epsilon": f"{epsilon:g}",
                "accuracy": f"{values.mean():.4f} +- {values.std(ddof=1) if len(values) > 1 else 0:.4f}",
                "seeds": len(values),
                "IS": _mean(of, "inception_score"),
                "FID": _mean(of, "fid"),
                "FID-classifier": _mean(of, "fid_classifier"),
                "train s": f"{np.mean([r['seconds']['train'] for r in of]):.0f}",
                "GB": _mean(of, "peak_gb"),
                "G-PATE paper": "" if paper is None else f"{paper:.3f}",
                "others": others,
            }
        )
    show("Accuracy of a CNN trained on synthetic images", rows)


def _mean(results: Sequence[Mapping[str, Any]], key: str) -> str:
    values = [r[key] for r in results if r.get(key) is not None]
    return f"{np.mean(values):.2f}" if values else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--grid", type=Path, help="JSON list of configurations")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="tiny settings, to see that it runs")
    parser.add_argument("--validation", type=int, default=0, help="training images to hold out and test on")
    parser.add_argument("--quality", action="store_true", help="Inception Score and Frechet distance too")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds after which no run is started")
    parser.add_argument("--show", type=Path, nargs="+", help="print the table of earlier results")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pictures", type=Path)
    arguments = parser.parse_args()
    if arguments.show:
        summary([json.loads(line) for path in arguments.show for line in path.read_text().splitlines()])
        return
    torch.set_float32_matmul_precision("high")
    changes = {}
    for item in arguments.set:
        key, _, value = item.partition("=")
        try:
            changes[key] = json.loads(value)
        except json.JSONDecodeError:
            changes[key] = value
    base = {"dataset": arguments.dataset, "epsilon": arguments.epsilon, "seeds": arguments.seeds}
    configurations = json.loads(arguments.grid.read_text()) if arguments.grid else [{}]
    device, began, cache = torch.device(arguments.device), time.monotonic(), {}
    for configuration in configurations:
        whole = {**base, **configuration, "set": {**changes, **configuration.get("set", {})}}
        for seed in whole.pop("seeds"):
            if time.monotonic() - began > arguments.time_limit:
                print(f"left out for lack of time: {json.dumps(whole)}, seed {seed}", flush=True)
                continue
            (result,) = run(
                {**whole, "seeds": [seed]},
                device=device,
                quick=arguments.quick,
                validation=arguments.validation,
                quality=arguments.quality,
                pictures=arguments.pictures,
                cache=cache,
            )
            if arguments.out:
                with arguments.out.open("a") as out:
                    out.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
