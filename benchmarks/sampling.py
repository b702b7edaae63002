"""Sampling images beside its floor, in one run: `python -m benchmarks.sampling [-n 2560] [--device cpu] [--keep]`.

The floor is the time of the network's multiplications and additions, counted layer by layer as the network is written, at the rate
at which this machine multiplies matrices of 1024 x 1024 in single precision, measured in turns with the sampling. `seconds` is all of
`Release.sample`: labels, latents, network, bytes. Bar: at most 3 times the floor for the default network (residual, 64 maps). It may
be below 1: of the products of a convolution of a doubled image, as written, 16 of 36 are enough (`doubled_convolution`).
The weights are drawn at random: time does not depend on them. Processor seconds are of all threads, and are what to compare on a
machine with other work.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.tables import keep, show
from gpate.accounting import Budget
from gpate.boundary import FastNoise, Gate
from gpate.generators import GeneratorSpec, Student
from gpate.release import Release, write_release
from gpate.schema import ImageSchema
from gpate.streams import Streams

_SIDE = 1024
_CASES = (
    # network, maps, side, channels
    ("residual", 64, 28, 1),  # the default
    ("residual", 64, 32, 3),
    ("residual", 64, 64, 3),
    ("dcgan", 64, 28, 1),  # the paper's
    ("narrow", 16, 28, 1),  # --quick
)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("-n", type=int, default=2560, help="images of a sample")
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--cases", type=int, default=len(_CASES), help="the first so many")
    arguments.add_argument("--keep", action="store_true", help="write benchmarks/results/sampling.json")
    chosen = arguments.parse_args()
    rows = [
        _measured(*case, n=chosen.n, device=chosen.device, repeats=chosen.repeats) for case in _CASES[: chosen.cases]
    ]
    show(f"{chosen.n} images on {chosen.device}, {torch.get_num_threads()} threads", rows)
    if chosen.keep:
        keep("sampling", {"images": chosen.n, "rows": rows})


def _measured(
    network: str, maps: int, side: int, channels: int, *, n: int, device: str, repeats: int
) -> dict[str, Any]:
    spec = GeneratorSpec(
        kind="image", classes=10, channels=channels, height=side, width=side, network=network, maps=maps
    )
    student = Student(spec, init=Streams(0).torch("init"))
    with FlopCounterMode(display=False) as counter:  # as it is written: in training mode
        student.propose(torch.zeros(4, spec.latent), torch.arange(4))
    work = counter.get_total_flops() / 4 * n
    student.network.eval()
    release = _release(student).to(device)
    a, b = (torch.randn(_SIDE, _SIDE, device=device) for _ in range(2))
    products = max(8, round(work / (2 * _SIDE**3) / 8))

    def multiply() -> None:
        for _ in range(products):
            torch.mm(a, b)
        _wait(device)

    def sample() -> None:
        release.sample(n, seed=0)

    times: dict[str, list[tuple[float, float]]] = {"multiply": [], "sample": []}
    for _ in range(repeats + 1):  # in turns, so that other work on the machine falls on both
        times["multiply"].append(_seconds(multiply))
        times["sample"].append(_seconds(sample))
    wall, processor = (
        {name: statistics.median(each[i] for each in found[1:]) for name, found in times.items()} for i in (0, 1)
    )
    share = work / (products * 2 * _SIDE**3)
    return {
        "network": f"{network} {maps}",
        "size": f"{side}x{side}x{channels}",
        "MFLOP an image": round(work / n / 1e6, 1),
        "GFLOP/s of matmul": round(products * 2 * _SIDE**3 / wall["multiply"] / 1e9, 1),
        "floor, s": wall["multiply"] * share,
        "seconds": wall["sample"],
        "times the floor": wall["sample"] / (wall["multiply"] * share),
        "floor, processor s": processor["multiply"] * share,
        "processor seconds": processor["sample"],
        "times": processor["sample"] / (processor["multiply"] * share) if device == "cpu" else None,
        "60,000 take, s": wall["sample"] * 60_000 / n,
    }


def _seconds(run: Callable[[], None]) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - processor


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def _release(student: Student) -> Release:
    """A release of this generator, in memory after it was loaded."""
    spec = student.spec
    schema = ImageSchema(
        height=spec.height, width=spec.width, channels=spec.channels, classes=tuple(map(str, range(spec.classes)))
    )
    with tempfile.TemporaryDirectory() as name:
        gate = Gate.in_memory(Budget(epsilon=1.0, delta=1e-5), FastNoise(seed=0))
        write_release(
            Path(name),
            spec=spec,
            weights=student.network.state_dict(),
            shares=student.proportions.tolist(),
            schema=schema,
            ledger=gate.ledger,
            settings={},
            not_for_release=gate.not_for_release,
        )
        return Release.load(name)


if __name__ == "__main__":
    main()
