"""Private embeddings on a benchmark set: train, sample, train a classifier on the samples, test it once on real images.

    python -m research.benchmarks.embedding_quality --dataset mnist --epsilon 1 --seeds 0 1 --set first.bandwidths=[0.2] --out results.jsonl
    python -m research.benchmarks.embedding_quality --show results.jsonl     the table, with the paper's figures and those of others beside

`--set` changes settings of `gpate.methods.embedding.Embedding` by name, with a dot for one inside another (`network=narrow`,
`matching.steps=100`); `--grid` takes a JSON file with a list of configurations, each an object with any of `name`, `dataset`, `epsilon`,
`seeds` and `set`; all run in one process. The noise is fast and seeded: these are experiments. The
classifiers are `gpate evaluate`'s `cnn` and `cnn-wide`, after their last epoch; the lower accuracy counts.
Settings are chosen with `--validation 10000`, which holds so many training images out and tests on them. `--samples 60000 240000`
draws the larger number, and trains on the first 60,000 and on all. `--quality` adds the Inception Score and the Frechet distance, by a
classifier trained on the real images. `--keep FOLDER` keeps the releases.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.tables import show
from research.benchmarks.common import Clock, Data, data_of, put

from gpate.boundary import FastNoise, Gate
from gpate.errors import InvalidValue
from gpate.evaluation import RealRecords
from gpate.evaluation.image_evaluation import utility
from gpate.evaluation.image_quality import FULL, QUICK, LabelledImages, RealImages
from gpate.evaluation.results import HEADLINE_CLASSIFIERS
from gpate.methods import method_named
from gpate.methods.recipes import resolve
from gpate.privacy import Privacy
from gpate.refit import temporary_run
from gpate.release import Release
from gpate.run.progress import Monitor
from gpate.schema.codec import ImageCodec
from gpate.synthesizer import publish
from gpate_research.reproduce.cells import CELLS, DELTA
from gpate_research.reproduce.provenance import data_facts, provenance
from gpate_research.reproduce.published import PEERS
from gpate_research.reproduce.sample_pictures import class_rows, save_picture
from gpate_research.reproduce.units import plain_settings


@dataclass(frozen=True, kw_only=True)
class Options:
    """What all runs have in common.

    Attributes:
        device: of training and of the classifiers.
        samples: synthetic images that classifiers are trained on, a number for each time; the first time's accuracy is the run's.
        quick: tiny settings.
        validation: training images to test on instead of the test images.
        quality: whether to measure Inception Score and Frechet distance.
        pictures: folder for pictures of samples.
        keep: folder for releases.
    """

    device: torch.device
    samples: Sequence[int] = (60_000,)
    quick: bool = False
    validation: int = 0
    quality: bool = False
    pictures: Path | None = None
    keep: Path | None = None


def run(configuration: Mapping[str, Any], seed: int, options: Options, cache: dict[str, RealImages]) -> dict[str, Any]:
    """One fit and its scores; the cache has real images by the name of their data set."""
    name, epsilon, device = configuration["dataset"], float(configuration["epsilon"]), options.device
    label = "-".join(filter(None, (name, f"{epsilon:g}", configuration.get("name"), str(seed))))
    if options.keep is not None and (options.keep / label).exists():
        raise InvalidValue("--keep", str(options.keep), f"a folder without {label}")
    data = data_of(name, validation=options.validation, limit=2000 if options.quick else None)
    schema, (images, labels) = data.schema, data.train
    real = cache.setdefault(name, _real(data, device, options.quick))
    settings = resolve("default", schema=schema, dataset=name, epsilon=epsilon)
    method = method_named(settings.method)
    changes = {**(method.smallest(settings) if options.quick else {}), **configuration.get("set", {})}
    settings = settings.changed({**changes, "device": device.type})
    plan = method.plan(settings, schema, epsilon)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    clock = Clock()
    warnings: list[str] = []
    gate = Gate.in_memory(plan.budget(epsilon, DELTA), FastNoise(seed))
    with temporary_run(images, labels, schema, settings, plan, gate=gate, seed=seed) as fit:
        publish(fit, method.fit(replace(fit, monitor=Monitor(on_warning=warnings.append))))
        clock.lap("train")
        release = Release.load(fit.folder.release).to(device)
        privacy = Privacy.of(release)
        if options.keep is not None:
            shutil.copytree(fit.folder.release, options.keep / label)
    peak = round(torch.cuda.max_memory_allocated() / 1e9, 2) if device.type == "cuda" else None
    clock.start()
    made, names = release.sample(max(options.samples), seed=seed)
    numbers = ImageCodec(schema).encode_labels(names)
    made_records = LabelledImages(images=torch.from_numpy(made).to(device), labels=numbers.to(device))
    clock.lap("sample")
    by_samples = [_scores(_first(number, made_records), real, seed) for number in options.samples]
    first = by_samples[0]
    scores, seconds = first["scores"], {**clock.seconds, **first["seconds"]}
    labeller = getattr(release.spec, "labeller", None)
    if labeller is not None:
        guessed = release.probabilities(np.asarray(data.test[0])).argmax(1)
        scores = {**scores, "labeller": round(float((guessed == np.asarray(data.test[1])).mean()), 4)}
    result = {
        "name": configuration.get("name", ""),
        "dataset": name,
        "epsilon": epsilon,
        "seed": seed,
        "quick": options.quick,
        "tested_on": f"{options.validation} training images held out" if options.validation else "test images",
        **first,
        "scores": scores,
        "by_samples": by_samples,
        "labelled": None if labeller is None else {"agree": labeller.agree, **asdict(release.labelled)},
        "spend": round(gate.spend, 6),
        "seconds": seconds,
        "peak_gb": peak,
        "set": changes,
        "warnings": warnings,
        **provenance(
            asked=plain_settings(settings),
            settings=release.settings,
            noise="fast",
            privacy=asdict(privacy),
            data=data_facts(name, train=data.train, test=data.test),
            device=str(device),
        ),
    }
    if options.quality:
        judged, clock = _first(options.samples[0], made_records), Clock()
        result["judge_accuracy"] = round(real.reference_accuracy(), 4)
        result["inception_score"] = round(real.inception_score(judged), 3)
        result["fid_classifier"] = round(real.fid_classifier(judged), 2)
        if real.weights is not None:
            result["fid"] = round(real.fid(judged), 2)
        clock.lap("quality")
        seconds |= clock.seconds
    if options.pictures is not None:
        pixels = class_rows(made, numbers.numpy(), classes=len(schema.classes), each=10)
        save_picture(pixels, options.pictures / f"{label}.png")
    return result


def _first(number: int, records: LabelledImages) -> LabelledImages:
    return LabelledImages(images=records.images[:number], labels=records.labels[:number])


def _scores(made: LabelledImages, real: RealImages, seed: int) -> dict[str, Any]:
    """Accuracies of classifiers that are trained on nine tenths of these images."""
    clock, found = Clock(), {}
    for network in HEADLINE_CLASSIFIERS:
        found[network] = utility(made, real, network, seed)
        clock.lap(network)
    scores = {network: round(last, 4) for network, (last, _, _) in found.items()}
    _, by_validation, best = found[HEADLINE_CLASSIFIERS[-1]]
    return {
        "samples": len(made),
        "trained_on": len(made) - len(made) // 10,
        "accuracy": min(scores.values()),
        "scores": scores,
        "epoch_by_validation": round(by_validation, 4),
        "legacy_best_epoch": round(best, 4),
        "seconds": clock.seconds,
    }


def _real(data: Data, device: torch.device, quick: bool) -> RealImages:
    """The real records and their reference classifier."""
    real = RealRecords(train=data.train, test=data.test, schema=data.schema)
    return RealImages(real, effort=QUICK if quick else FULL, device=str(device))


def summary(results: Sequence[Mapping[str, Any]]) -> None:
    """Mean and deviation over seeds, beside what was published: `published.PEERS` says for what delta, records and evaluator."""
    rows = []
    groups: dict[tuple[str, str, float], list[Mapping[str, Any]]] = {}
    for result in results:
        groups.setdefault((result["dataset"], result["name"], result["epsilon"]), []).append(result)
    for (name, variant, epsilon), of in groups.items():
        values = np.array([r["accuracy"] for r in of])
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
                "train s": _mean([r["seconds"] for r in of], "train", digits=0),
                "GB": _mean(of, "peak_gb"),
                "G-PATE paper": _paper(name, epsilon),
                "others": _others(name, epsilon),
            }
        )
    show("Accuracy of a CNN trained on synthetic images", rows)


def _paper(name: str, epsilon: float) -> str:
    """The accuracy of G-PATE as the paper's Table 1 (c) has it; empty where that has none."""
    wanted = ("table1c", "g-pate", name, epsilon)
    found = (cell.paper for cell in CELLS if (cell.table, cell.system, cell.dataset, cell.epsilon) == wanted)
    return next(found, None) or ""


def _others(name: str, epsilon: float) -> str:
    """The accuracies that others published."""
    found = []
    for peer in PEERS:
        accuracy = dict(peer.accuracy).get(epsilon)
        if peer.dataset == name and accuracy is not None:
            found.append(peer.name + (f" ({peer.note})" if peer.note else "") + f" {accuracy:.3f}")
    return ", ".join(found)


def _mean(results: Sequence[Mapping[str, Any]], key: str, *, digits: int = 2) -> str:
    values = [r[key] for r in results if r.get(key) is not None]
    return f"{np.mean(values):.{digits}f}" if values else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--grid", type=Path, help="JSON list of configurations")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="tiny settings, to see that it runs")
    parser.add_argument(
        "--samples", type=int, nargs="+", help="images to train classifiers on: 60,000; 1,000 with --quick"
    )
    parser.add_argument("--validation", type=int, default=0, help="training images to hold out and test on")
    parser.add_argument("--quality", action="store_true", help="Inception Score and Frechet distance too")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds after which no run is started")
    parser.add_argument("--show", type=Path, nargs="+", help="print the table of earlier results")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--keep", type=Path, help="folder for a copy of each run's release")
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
    options = Options(
        device=torch.device(arguments.device),
        samples=arguments.samples or [1000 if arguments.quick else 60_000],
        quick=arguments.quick,
        validation=arguments.validation,
        quality=arguments.quality,
        pictures=arguments.pictures,
        keep=arguments.keep,
    )
    began, cache = time.monotonic(), {}
    for configuration in configurations:
        whole = {**base, **configuration, "set": {**changes, **configuration.get("set", {})}}
        for seed in whole.pop("seeds"):
            if time.monotonic() - began > arguments.time_limit:
                print(f"left out for lack of time: {json.dumps(whole)}, seed {seed}", flush=True)
                continue
            put(run(whole, seed, options, cache), arguments.out)


if __name__ == "__main__":
    main()
