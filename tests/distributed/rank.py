"""One rank of a test: `python -m tests.distributed.rank METHOD OUT WHAT [FILE]`, alone or one of several. WHAT: see the tests.

With `-persons` behind it a method protects persons, whose records lie far apart. What goes into the noise is written down beside the run.
Prints a line after each iteration, so that a test can stop a rank in the middle. The variable DEVICE names the GPU or the CPU, its default.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from gpate import synthesizer as method
from gpate.boundary import Grouped, NoisyBlocks, Ranks, Sensitive, Tables, Vectors, Voucher, ranks_here, unit_bound
from gpate.boundary import ranks as boundary
from gpate.boundary.values import opened
from gpate.errors import GpateError
from gpate.generators import student
from gpate.records import open_records
from gpate.run.progress import Monitor
from gpate.schema import PrivacyUnit
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
    "last_matching.steps": 10,
    "last_matching.batch": 20,
    "labelling.samples": 60,
    "labelling.directions": 20,
    "labelling.filters": 4,
    "labelling.steps": 3,
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
    "tuned": {"recipe": "paper-tuned", "settings": {"teachers": 600, "iterations": 4, "projected_dims": 4}},
    "merf": {"recipe": "dpmerf", "settings": {"matching.steps": 20, "first.frequencies": 40}},
}

UNIT = PrivacyUnit(column="person", max_records=3)
RECORDS = 2500


def persons(count: int) -> np.ndarray:
    """Whose each record is: a few records each, far apart, and one person with a stretch of 30 in the middle."""
    owners = np.arange(count) % (count * 2 // 7)
    owners[count // 2 : count // 2 + 30] = 0
    return owners


def before_noise(out: Path) -> Path:
    """The file with all that went into the noise of a run, release after release."""
    return out.with_suffix(".before-noise.npz")


@contextmanager
def written_down(out: Path) -> Iterator[None]:
    """Writes what goes into the noise into a file, in the process that pays: made-up records, for a test's eyes."""
    exact: list[np.ndarray] = []
    perturb = Voucher.perturb

    def noting(self: Voucher, values: np.ndarray, *, unit: float = 1.0) -> np.ndarray:
        exact.append(values.copy())
        return perturb(self, values, unit=unit)

    with mock.patch.object(Voucher, "perturb", noting):
        yield
    if exact:
        np.savez(before_noise(out), *exact)


def go_on(out: Path) -> Path:
    """The file for which `wait` waits after its third iteration."""
    return out.with_suffix(".go-on")


def run(kind: str, out: Path, what: str, file: str | None = None) -> None:
    if what == "version" and os.environ["RANK"] == "1":
        boundary.__version__ = "0.0.1"
    with boundary.Together() if what == "nccl" else ranks_here() as ranks:  # a single rank has no need of it but here
        if what == "nccl":
            ranks.add_up = _told(ranks.add_up)  # type: ignore[method-assign]
        if kind == "tables-persons":
            count(ranks, out)
            return
        with written_down(out):
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
    kind, _, whose = kind.partition("-")
    tables = kind in ("table", "merf")
    schema: Any = replace(TABLE if tables else IMAGES, unit=UNIT if whose else None)
    number = 200 if kind == "votes" else RECORDS
    units = persons(number) if whose and not file and not tables else None
    data: tuple[Any, ...]
    if file:
        data = (file.format(rank=ranks.rank),)
    elif tables:
        data = (table(number).assign(person=persons(number)) if whose else table(number),)
    else:
        data = images(number, seed=(what == "data") * ranks.rank)
    if what == "resume":
        method.Synthesizer.resume(out, *data, ranks=ranks, monitor=monitor)
    else:
        model = method.Synthesizer(
            epsilon=3.0, noise="fast", noise_seed=1, seed=seed, device=os.environ.get("DEVICE", "cpu"), **SETTINGS[kind]
        )
        model.fit(*data, schema=schema, units=units, out=out, ranks=ranks, sites=what == "sites", monitor=monitor)


def count(ranks: Ranks, out: Path) -> None:
    """What persons add to tables and vectors, all ranks together, before noise: no method releases tables on several ranks yet."""
    data = table(RECORDS).assign(person=persons(RECORDS))
    schema: Any = replace(TABLE, unit=UNIT)
    records = open_records(data, None, schema, key=bytes(32), chunk=100, batched=True, ranks=ranks)
    records.fingerprint()
    width = records._dims

    def rows(features: torch.Tensor, labels: torch.Tensor) -> Grouped:
        codes = (features[:, :2] * 9.99).long()
        return Grouped(groups=labels, rows=(codes[labels == 0], features[labels == 1]))

    blocks = (Tables(sizes=(10, 10), tables=((0,), (1,), (0, 1))), Vectors(dimension=width, l2_bound=1.5))
    mechanism = NoisyBlocks(sigma=3.0, blocks=blocks, bound=unit_bound(UNIT.max_records))
    exact = ranks.add_up(mechanism.exact(records.map(rows, chunk=100)))
    if ranks.rank == 0:
        np.savez(before_noise(out), opened(exact).numpy())


def main(kind: str, out: str, *what: str) -> None:
    method.new_key = lambda: bytes(32)  # the same partition whatever the ranks
    student._REFRESH = FEW_LATENTS
    try:
        run(kind, Path(out), *what)
    except GpateError as problem:
        sys.exit(f"{type(problem).__name__}: {problem}")


if __name__ == "__main__":
    main(*sys.argv[1:])
