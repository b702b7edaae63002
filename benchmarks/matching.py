"""Speed of a student's step: `python -m benchmarks.matching [--device cuda] [--profile]`.

A student matches random means, since speed does not depend on what they say: in the first round through scattering and Fourier
features, in later ones through learned ones as well, all at once or one by one. A step is timed plain and, on a GPU, recorded, in
turns. The floor is its arithmetic, as torch counts it, at the rate of large products in single precision; the network's own, in half
precision, could be twice as fast. The features of the scene network are timed alone too, forward and both ways, by Triton kernels
and by torch's operations, in turns, beside their convolutions alone. `--profile` names the kernels that a plain step spends its time in.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import patch

import torch
from torch.nn import functional as F  # noqa: N812 - its usual name
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.tables import interleaved_seconds, keep, show
from gpate.accounting import Receipt
from gpate.boundary import Released
from gpate.features import FeatureMap, learn_features
from gpate.features.image_features import image_features
from gpate.features.perceptual import PerceptualFeatures
from gpate.features.scene_network import HALVED, scene_network
from gpate.generators import GeneratorSpec, Student
from gpate.generators.matching import ClassMeans, match
from gpate.methods.embedding.method import COLOUR_IMAGES, Embedding
from gpate.streams import Streams
from gpate.torch_utils import has_triton

TF32 = 400e12
"""Operations a second of an H200 in large products."""

CASES = {
    "grey 28x28": (GeneratorSpec(kind="image", channels=1, height=28, width=28, classes=10), Embedding()),
    "colour 32x32": (GeneratorSpec(kind="image", channels=3, height=32, width=32, classes=2), COLOUR_IMAGES),
    "colour 64x64": (GeneratorSpec(kind="image", channels=3, height=64, width=64, classes=2), COLOUR_IMAGES),
}


def targets_of(spec: GeneratorSpec, settings: Embedding, rounds: int, device: torch.device) -> list[ClassMeans]:
    """Random means for the map of the first round, and of later ones learned from random images."""
    shape, streams = (spec.channels, spec.height, spec.width), Streams(0)
    maps: list[FeatureMap] = [image_features(shape, settings=settings.first, streams=streams, device=device)]
    images = torch.rand(512, *shape, generator=streams.torch("images")).to(device)
    labels = torch.arange(512, device=device) % spec.classes
    for r in range(1, rounds):
        learner = replace(settings.later, epochs=1)
        maps.append(learn_features(images, labels, spec.classes, settings=learner, streams=streams, round_=r))
    receipts = (Receipt(line=1, chain="0"),)
    means = [torch.randn(spec.classes, phi.dims, generator=streams.torch("means")) / phi.dims**0.5 for phi in maps]
    weights = torch.ones(spec.classes)
    return [
        ClassMeans(features=phi, means=Released(mean, receipts=receipts), weights=weights)
        for phi, mean in zip(maps, means, strict=True)
    ]


class Steps:
    """Some steps of a student, plain or recorded."""

    def __init__(self, name: str, rounds: int, *, steps: int, device: torch.device) -> None:
        plain, settings = CASES[name]
        self.spec, self.settings, self.device = settings.spec_for(plain), settings, device
        self.matching = replace(settings.matching, steps=steps)
        self.targets = targets_of(self.spec, settings, rounds, device)
        self.student = Student(self.spec, init=Streams(0).torch("init"), device=device)

    def run(self, *, recorded: bool, one_by_one: bool = False) -> None:
        """All of them, to their end."""
        warm_up = patch("gpate.torch_utils._WARM_UP", 3 if recorded else self.matching.steps)
        with warm_up, patch("gpate.generators.matching.joined", list) if one_by_one else nullcontext():
            match(self.student, self.targets, settings=self.matching, streams=Streams(0))
        self._wait()

    def seconds(self) -> dict[str, float]:
        """Of a step, plain and recorded; as it is run, also with one learned map after the other."""
        on_gpu = self.device.type == "cuda"
        ways = {"plain": lambda: self.run(recorded=False)}
        if on_gpu:
            ways["recorded"] = lambda: self.run(recorded=True)
        if len(self.targets) > 2:
            ways["one by one"] = lambda: self.run(recorded=on_gpu, one_by_one=True)
        return {name: total / self.matching.steps for name, total in interleaved_seconds(ways, repeats=3).items()}

    def operations(self) -> float:
        """Of products and convolutions in a step."""
        one = replace(self.matching, steps=1)
        with FlopCounterMode(display=False) as counter:
            match(self.student, self.targets, settings=one, streams=Streams(0))
        return float(counter.get_total_flops())

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", choices=tuple(CASES))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--profile", action="store_true")
    asked = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    device, rows = torch.device(asked.device), []
    for name in [asked.only] if asked.only else CASES:
        for rounds in sorted({1, len(CASES[name][1].shares)}):
            steps = Steps(name, rounds, steps=asked.steps, device=device)
            found = steps.seconds()
            row = {"images": name, "round": rounds, "batch": steps.matching.batch}
            row |= {f"{way}, ms": round(1000 * seconds, 2) for way, seconds in found.items()}
            operations = steps.operations()
            row["operations, 1e9"] = round(operations / 1e9)
            if "recorded" in found:
                row["plain / recorded"] = round(found["plain"] / found["recorded"], 2)
                row["floor, ms"] = round(1000 * operations / TF32, 2)
            rows.append(row)
            if asked.profile:
                _profile(steps)
    show("A step of matching", rows)
    features = [_features(name, device) for name in CASES if asked.only in (None, name) and "colour" in name]
    show("Features of the scene network", features)
    keep(f"matching-{device.type}", {"steps": rows, "features": features})


def _features(name: str, device: torch.device) -> dict[str, object]:
    """Milliseconds for a batch, a quarter of it on a CPU."""
    plain, settings = CASES[name]
    count = settings.matching.batch if device.type == "cuda" else settings.matching.batch // 4
    phi = PerceptualFeatures(plain.shape, device=device)
    images = torch.rand(count, *plain.shape, generator=torch.Generator().manual_seed(0)).to(device).requires_grad_()
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    weights = [layer.weight.to(dtype) for layer in scene_network(device)]

    def forward() -> None:
        with torch.no_grad():
            phi(images)

    def both() -> None:
        phi(images).square().sum().backward()

    def convolutions() -> None:
        y = x = images.detach().to(dtype).contiguous(memory_format=torch.channels_last).requires_grad_()
        for i, weight in enumerate(weights):
            y = F.conv2d(F.avg_pool2d(y, 2) if i in HALVED else y, weight, padding=1)
        torch.autograd.grad(y.sum(), x)

    def timed(function: Callable[[], None], *, kernels: bool) -> Callable[[], None]:
        def run() -> None:
            with patch("gpate.features.scene_network.has_triton", lambda: kernels):
                function()
            if device.type == "cuda":
                torch.cuda.synchronize()

        return run

    ways = {"forward": forward, "both": both}
    kinds = {"kernels": True, "torch": False} if device.type == "cuda" and has_triton() else {"torch": False}
    runs = {f"{way}, {kind}": timed(ways[way], kernels=on) for way in ways for kind, on in kinds.items()}
    runs["convolutions alone, both"] = timed(convolutions, kernels=False)
    found = interleaved_seconds(runs, repeats=5)
    return {"images": name, "batch": count, **{f"{way}, ms": round(1000 * s, 2) for way, s in found.items()}}


def _profile(steps: Steps) -> None:
    from torch.profiler import ProfilerActivity, profile

    gpu = steps.device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU]) as found:
        steps.run(recorded=False)
    by = "self_device_time_total" if gpu else "self_cpu_time_total"
    print(found.key_averages().table(sort_by=by, row_limit=25, max_name_column_width=60))


if __name__ == "__main__":
    main()
