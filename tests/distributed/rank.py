"""One rank of a test: `python -m tests.distributed.rank METHOD OUT WHAT [FILE]`, alone or one of several. WHAT: see the tests.

Prints a line after each iteration, so that a test can stop a rank in the middle. The variable DEVICE names the GPU or the CPU, its default.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gpate import synthesizer as method
from gpate.boundary import Ranks, Sensitive, ranks_here
from gpate.boundary import ranks as boundary
from gpate.boundary.values import opened
from gpate.errors import GpateError
from gpate.generators import student
from gpate.run.progress import Monitor
from tests.methods.small import IMAGES, TABLE, images, table
from tests.processes import FEW_LATENTS, LIMIT

VOTES = {
    "teachers": 11,
    "samples": 3,
    "projected_dims": 4,
    "threshold_sigma": 30.0,
    "vote_sigma": 20.0,
    "threshold": 0.3,
}
MATCH = {"matching.steps": 20, "matching.batch": 20, "first.frequencies": 40, "latent": 5}
LATER = {
    "rematching.steps": 20,
    "rematching.batch": 20,
    "later.samples": 200,
    "later.epochs": 1,
    "later.frequencies": 40,
    "network": "dcgan",
}
SETTINGS: dict[str, dict[str, Any]] = {
    "votes": {"recipe": "paper", "settings": {**VOTES, "teacher_batch": 4, "checkpoint_seconds": 0.5, "iterations": 5}},
    "table": {"recipe": "paper", "settings": {**VOTES, "teacher_batch": 4, "counts_epsilon": 0.5, "iterations": 4}},
    "embedding": {"recipe": "default", "settings": MATCH},
    "rounds": {"recipe": "default-images", "settings": {**MATCH, **LATER, "shares": (0.5, 0.5)}},
    "refined": {
        "recipe": "refined",
        "settings": {**MATCH, **VOTES, "teacher_batch": 4, "iterations": 3, "warm_up": 2, "shares": (1.0,)},
    },
    "merf": {"recipe": "dpmerf", "settings": {"matching.steps": 20, "first.frequencies": 40}},
}


def go_on(out: Path) -> Path:
    """The file for which `wait` waits after its third iteration."""
    return out.with_suffix(".go-on")


def run(kind: str, out: Path, what: str, file: str | None = None) -> None:
    if what == "version" and os.environ["RANK"] == "1":
        boundary.__version__ = "0.0.1"
    with boundary.Together() if what == "nccl" else ranks_here() as ranks:  # a single rank has no need of it but here
        if what == "nccl":
            ranks.add_up = _told(ranks.add_up)  # type: ignore[method-assign]
        fit(ranks, kind, out, what, file)


def _told(add_up: Callable[[Sensitive[torch.Tensor]], Sensitive[torch.Tensor]]) -> Any:
    """The sum, with a word about who made it: one rank's is its own part."""

    def adding(part: Sensitive[torch.Tensor]) -> Sensitive[torch.Tensor]:
        total = add_up(part)
        same = torch.equal(opened(total), opened(part))
        backend = torch.distributed.get_backend_config(torch.distributed.group.WORLD)
        sys.stdout.write(f"added up on {opened(total).device.type} by {backend}: {'same' if same else 'changed'}\n")
        return total

    return adding


def fit(ranks: Ranks, kind: str, out: Path, what: str, file: str | None) -> None:
    seed = 5 + (what == "differ") * ranks.rank
    if what == "slow" and ranks.rank == 1:
        time.sleep(LIMIT)

    def show(progress: Any) -> None:
        if what == "full":  # no file may grow from here on: what a full disk does
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))
        sys.stdout.write(f"{progress.iteration}\n")
        sys.stdout.flush()
        while what == "wait" and progress.iteration == 3 and not go_on(out).exists():
            time.sleep(0.01)

    monitor = Monitor(on_progress=show)
    data: tuple[Any, ...] = (
        (file.format(rank=ranks.rank),)
        if file
        else (table(2500),)
        if kind in ("table", "merf")
        else images(200 if kind == "votes" else 2500, seed=(what == "data") * ranks.rank)
    )
    if what == "resume":
        method.Synthesizer.resume(out, *data, ranks=ranks, monitor=monitor)
    else:
        model = method.Synthesizer(
            epsilon=3.0, noise="fast", noise_seed=1, seed=seed, device=os.environ.get("DEVICE", "cpu"), **SETTINGS[kind]
        )
        schema = TABLE if kind in ("table", "merf") else IMAGES
        model.fit(*data, schema=schema, out=out, ranks=ranks, sites=what == "sites", monitor=monitor)


def main(kind: str, out: str, *what: str) -> None:
    method.new_key = lambda: bytes(32)  # the same partition whatever the ranks
    student._REFRESH = FEW_LATENTS
    try:
        run(kind, Path(out), *what)
    except GpateError as problem:
        sys.exit(f"{type(problem).__name__}: {problem}")


if __name__ == "__main__":
    main(*sys.argv[1:])
