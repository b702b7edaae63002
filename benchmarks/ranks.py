"""Voting over ranks: `python -m benchmarks.ranks [--teachers 2000] [--ranks 1 2]`, each rank on one thread.

Records are random 8x8 images, ten to a teacher; speed does not depend on what they show. Each number of ranks is a set of
processes of its own; an iteration is timed whole (fakes, teachers' step, votes, reduction, noise, student's step) on rank 0,
after a warm-up, and the median is shown with the bytes that rank 0 sent and received in one iteration.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.tables import keep, show
from gpate.accounting import Budget
from gpate.boundary import ClosedGate, FastNoise, Gate, ranks_here
from gpate.methods.recipes import RECIPES
from gpate.methods.run import RunFolder
from gpate.methods.school import Material, shard_block
from gpate.methods.training import train_student
from gpate.methods.votes import Voters
from gpate.private.partition import Partition
from gpate.streams import Streams
from gpate.student import GeneratorSpec, Student

DIGITS = GeneratorSpec(kind="image", channels=1, height=8, width=8, classes=10)
CPU = torch.device("cpu")


def one_rank(teachers: int, iterations: int, folder: Path) -> dict[str, Any]:
    """What one process does; rank 0's figures are shown."""
    generator = torch.Generator().manual_seed(0)
    records = 10 * teachers
    hashes = torch.randint(0, 2**62, (records,), generator=generator).numpy().astype("uint64") << 1
    material = Material(
        features=torch.rand(records, DIGITS.dims, generator=generator),
        labels=torch.randint(0, DIGITS.classes, (records,), generator=generator),
        partition=Partition.from_hashes(hashes, teachers=teachers),
    )
    recipe = next(recipe for recipe in RECIPES.values() if recipe.method == "votes")
    changes = {"teachers": teachers, "teacher": "dense", "samples": 16, "teacher_batch": 8, "device": "cpu"}
    settings, budget = recipe.changed(changes), Budget(epsilon=1e6, delta=1e-5)
    times, sent = [time.monotonic()], [0]
    with ranks_here() as ranks:
        if ranks.size > 1:
            block = shard_block(DIGITS, teachers=teachers, variant="dense", batch=16, device=CPU)
            material = material.shard(ranks.part(teachers, block=block))
        gate = Gate.in_memory(budget, FastNoise()) if ranks.first else ClosedGate(budget, FastNoise())
        voters = Voters(
            material, spec=DIGITS, settings=settings, gate=gate, streams=Streams(0), device=CPU, ranks=ranks
        )

        def note(_: object) -> None:
            times.append(time.monotonic())
            sent.append(ranks.sent + ranks.received)

        train_student(
            voters,
            student=Student(DIGITS, init=Streams(0).torch("init")),
            gate=gate,
            folder=RunFolder.create(folder) if ranks.first else RunFolder(folder),
            streams=Streams(0),
            iterations=iterations + 2,
            checkpoint_seconds=1e9,
            ranks=ranks,
            on_progress=note,
        )
    steps = [1e3 * (after - before) for before, after in itertools.pairwise(times[2:])]
    return {
        "teachers": teachers,
        "ranks": ranks.size,
        "ms": statistics.median(steps),
        "least ms": min(steps),
        "kB an iteration": (sent[-1] - sent[-2]) / 1e3,
    }


def measured(teachers: int, size: int, iterations: int) -> dict[str, Any]:
    """Starts the ranks and waits for rank 0's figures."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.ranks", "--teachers", str(teachers)]
        command += ["--iterations", str(iterations), "--folder", str(Path(folder) / "run")]
        own = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        started = [
            subprocess.Popen(
                command,
                env={**os.environ, **own, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]
        said = [process.communicate()[0] for process in started]
    found: dict[str, Any] = json.loads(said[0].splitlines()[-1])
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teachers", type=int, nargs="+", default=[2000])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    if asked.folder is not None:
        sys.stdout.write(json.dumps(one_rank(asked.teachers[0], asked.iterations, asked.folder)) + "\n")
        return
    rows = [measured(teachers, size, asked.iterations) for teachers in asked.teachers for size in asked.ranks]
    show("Voting over ranks, one thread each", rows)
    keep("ranks", {"votes": rows})


if __name__ == "__main__":
    main()
