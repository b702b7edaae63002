"""Private embeddings on a benchmark set: train, sample, train a classifier on the samples, test it once on real images.

    python -m benchmarks.embedding --dataset mnist --epsilon 1 --seeds 0 1 --set first.bandwidths=[0.2] --out results.jsonl

`--set` takes dotted names of `gpate.methods.embedding.Embedding` (and `generator.` for the student's `GeneratorSpec`); `--grid` a JSON
file with a list of configurations, each an object with any of `name`, `dataset`, `epsilon`, `seeds` and `set`; all run in
one process. The noise is fast and seeded: these are experiments. The classifier sees the test set once, after its last epoch.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gpate.accounting import Budget
from gpate.boundary import FastNoise, Gate
from gpate.datasets import dataset
from gpate.methods.embedding import train_by_embedding
from gpate.methods.recipes import resolve
from gpate.methods.run import RunFolder
from gpate.schema import Schema
from gpate.schema.codec import ImageCodec
from gpate.streams import Streams
from gpate.student import GeneratorSpec
from gpate.student.student import sample_chunks

QUICK = {
    "first.frequencies": 200,
    "later.samples": 300,
    "later.epochs": 1,
    "later.frequencies": 100,
    "matching.steps": 3,
    "matching.batch": 100,
    "rematching.steps": 3,
    "rematching.batch": 100,
}


def images_of(name: str, split: str, limit: int | None) -> tuple[Tensor, Tensor, Any]:
    """Images [records, channels, height, width] in [0, 1], labels, and the public schema."""
    schema = Schema.load(dataset(name).schema_path)
    loaded = dataset(name).load(split)  # type: ignore[arg-type]
    assert loaded.images is not None
    assert loaded.labels is not None
    images = ImageCodec(schema).encode(loaded.images[:limit])  # type: ignore[arg-type]
    return images, torch.from_numpy(loaded.labels[:limit]), schema


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


def small_cnn(images: Tensor, labels: Tensor, classes: int, *, seed: int, epochs: int) -> nn.Module:
    """conv32, conv64, dropout, dense128; Adam."""
    torch.manual_seed(seed)
    _, channels, height, width = images.shape
    network = nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, classes),
    ).to(images.device)  # fmt: skip
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(epochs):
        for chosen in torch.randperm(len(images)).to(images.device).split(128):
            loss = F.cross_entropy(network(images[chosen]), labels[chosen])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
    return network.eval()


@torch.no_grad()
def accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    right = sum(
        int((network(x).argmax(1) == y).sum()) for x, y in zip(images.split(1000), labels.split(1000), strict=True)
    )
    return right / len(images)


def run(
    configuration: Mapping[str, Any], *, device: torch.device, quick: bool, pictures: Path | None
) -> list[dict[str, Any]]:
    """All seeds of one configuration."""
    name, epsilon = configuration["dataset"], float(configuration["epsilon"])
    limit = 2000 if quick else None
    images, labels, schema = images_of(name, "train", limit)
    test_images, test_labels, _ = images_of(name, "test", limit)
    test_images, test_labels = test_images.to(device), test_labels.to(device)
    changes = {**(QUICK if quick else {}), **configuration.get("set", {})}
    shape = (schema.channels, schema.height, schema.width)
    settings = resolve("default", schema=schema, dataset=name, epsilon=epsilon).changed(changes).embedding
    plain = GeneratorSpec(
        kind="image", channels=shape[0], height=shape[1], width=shape[2], classes=max(1, len(schema.classes))
    )
    spec = settings.spec_for(plain)
    results = []
    for seed in configuration.get("seeds", [0]):
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        clock, streams = Clock(), Streams(seed)
        warnings: list[str] = []
        with tempfile.TemporaryDirectory() as folder:
            gate = Gate.in_memory(Budget(epsilon=epsilon, delta=1e-5), FastNoise(seed))
            student, _ = train_by_embedding(
                images.flatten(1),
                labels,
                spec=spec,
                settings=settings,
                gate=gate,
                folder=RunFolder.create(Path(folder) / "run"),
                streams=streams,
                device=device,
                on_warning=warnings.append,
            )
        clock.lap("train")
        count = 1000 if quick else 60_000
        made_labels = student.labels(count, streams.torch("sample labels", device=device))
        frozen = student.frozen(streams.torch("sample statistics", device=device))
        made = torch.cat([x for x, _ in sample_chunks(frozen, made_labels, streams.torch("sample", device=device))])
        made = (made * 255).round().div(255).view(-1, *shape)
        clock.lap("sample")
        network = small_cnn(made, made_labels, spec.classes, seed=seed, epochs=1 if quick else 10)
        clock.lap("classifier")
        result = {
            "name": configuration.get("name", ""),
            "dataset": name,
            "epsilon": epsilon,
            "seed": seed,
            "accuracy": round(accuracy(network, test_images, test_labels), 4),
            "spend": round(gate.spend, 6),
            "seconds": clock.seconds,
            "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2) if device.type == "cuda" else None,
            "set": dict(changes),
            "warnings": warnings,
        }
        if pictures is not None:
            picture(made, made_labels, spec.classes, pictures / f"{name}-{epsilon:g}-{result['name']}-{seed}.png")
        print(json.dumps(result), flush=True)
        results.append(result)
    return results


def picture(images: Tensor, labels: Tensor, classes: int, path: Path) -> None:
    """Ten images of each class, a row for each."""
    from PIL import Image

    rows = [images[labels == c][:10] for c in range(classes)]
    rows = [F.pad(row, (0, 0, 0, 0, 0, 0, 0, 10 - len(row))) for row in rows]
    grid = torch.cat([torch.cat(list(row), 2) for row in rows], 1).permute(1, 2, 0).cpu().numpy()
    Image.fromarray(np.squeeze((grid * 255).round().astype(np.uint8))).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--grid", type=Path, help="JSON list of configurations")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="tiny settings, to see that it runs")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pictures", type=Path)
    arguments = parser.parse_args()
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
    for configuration in configurations:
        whole = {**base, **configuration, "set": {**changes, **configuration.get("set", {})}}
        results = run(whole, device=torch.device(arguments.device), quick=arguments.quick, pictures=arguments.pictures)
        if arguments.out:
            with arguments.out.open("a") as out:
                out.writelines(json.dumps(result) + "\n" for result in results)


if __name__ == "__main__":
    main()
