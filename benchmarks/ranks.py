"""Voting over ranks: `python -m benchmarks.ranks [--teachers 1000 ...] [--ranks 1 2 4]`, each rank on one thread.

Records are random 8x8 images, ten to a teacher; speed does not depend on what they show. Each number of ranks is a set of
processes of its own; an iteration is timed whole (fakes, teachers' step, votes, reduction, noise, student's step) on rank 0,
after a warm-up. Shown are the median, the CPU time of rank 0 in the median iteration, which a busy machine leaves as it is,
and the bytes that rank 0 sent and received in one iteration.

`--claims` measures what the project claims: two ranks of one thread against one, at 2000 teachers with the network of the
paper, and one rank under torchrun against the same without it, by turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.tables import keep, show
from benchmarks.teachers import DIGITS, random_images
from gpate.accounting import Budget
from gpate.boundary import ClosedGate, FastNoise, Gate, ranks_here
from gpate.generators import Student
from gpate.methods import method_named
from gpate.methods.adversarial_training import train_student
from gpate.methods.base import Run
from gpate.methods.pate.votes import Voters
from gpate.methods.recipes import recipes
from gpate.records import open_records
from gpate.run.folder import RunFolder
from gpate.run.progress import Monitor
from gpate.run.transcript import Transcript
from gpate.streams import Streams

NETWORKS = {"light": "dense", "paper": "dcgan"}
"""Of the student: that of small images, whose fakes cost less than the teachers, for scale; and the paper's."""


def one_rank(teachers: int, iterations: int, folder: Path, *, network: str, per_teacher: int) -> dict[str, Any]:
    """What one process does; rank 0's figures are shown."""
    changes = {"teachers": teachers, "teacher": "dense", "samples": 16, "teacher_batch": 8, "device": "cpu"}
    settings = recipes()["paper-mnist-eps1"].changed({**changes, "checkpoint_seconds": 1e9})
    budget = Budget(epsilon=1e6, delta=1e-5)
    plan = method_named(settings.method).plan(settings, DIGITS, budget.epsilon)
    spec = replace(plan.spec, network=NETWORKS[network])
    images, labels = random_images(DIGITS, per_teacher * teachers)
    times, work, sent = [time.monotonic()], [time.process_time()], [0]
    with ranks_here() as ranks:

        def note(_: object) -> None:
            times.append(time.monotonic())
            work.append(time.process_time())
            sent.append(ranks.sent + ranks.received)

        place = RunFolder(Path(ranks.broadcast(lambda: str(RunFolder.create(folder).path))))
        gate = Gate.in_memory(budget, FastNoise()) if ranks.first else ClosedGate(budget, FastNoise())
        run = Run(
            records=open_records(images, labels, DIGITS, key=bytes(32), chunk=plan.chunk, sharded=True, ranks=ranks),
            schema=DIGITS,
            settings=settings,
            plan=plan,
            gate=gate,
            folder=place,
            transcript=Transcript(gate, place, ranks=ranks),
            streams=Streams(0),
            monitor=Monitor(on_progress=note),
            ranks=ranks,
        )
        student = Student(spec, init=run.streams.torch("init"))
        train_student(Voters(run, settings, spec=spec), student, run, iterations=iterations + 2)
    steps, cpu = (
        [1e3 * (after - before) for before, after in itertools.pairwise(clock[2:])] for clock in (times, work)
    )
    return {
        "teachers": teachers,
        "ranks": ranks.size,
        "records per teacher": per_teacher,
        "threads": torch.get_num_threads(),
        "ms": statistics.median(steps),
        "least ms": min(steps),
        "cpu ms": statistics.median(cpu),
        "least cpu ms": min(cpu),
        "kB an iteration": (sent[-1] - sent[-2]) / 1e3,
    }


def measured(
    teachers: int, size: int, iterations: int, *, network: str = "light", per_teacher: int = 10, threads: int = 1
) -> dict[str, Any]:
    """Starts the ranks, as forks of this process, and waits for rank 0's figures."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    place = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    forks = multiprocessing.get_context("fork")
    found: Any = forks.SimpleQueue()

    def one(rank: int, folder: Path) -> None:
        os.environ.update(place, RANK=str(rank), LOCAL_RANK=str(rank))
        torch.set_num_threads(threads)
        row = one_rank(teachers, iterations, folder, network=network, per_teacher=per_teacher)
        if rank == 0:
            found.put(row)

    with tempfile.TemporaryDirectory() as folder:
        started = [forks.Process(target=one, args=(rank, Path(folder) / "run")) for rank in range(size)]
        for process in started:
            process.start()
        for process in started:
            process.join()
    if any(process.exitcode for process in started):
        sys.exit("a rank failed")
    row: dict[str, Any] = found.get()
    return row


def launched(teachers: int, iterations: int, *, torchrun: bool) -> dict[str, Any]:
    """One rank in a process of its own, with torchrun or without it."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"] if torchrun else []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *launcher, "-m", "benchmarks.ranks", "--teachers", str(teachers)]
        command += ["--iterations", str(iterations), "--folder", str(Path(folder) / "run")]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    row: dict[str, Any] = {**json.loads(said.splitlines()[-1]), "torchrun": torchrun}
    return row


def claims(iterations: int) -> dict[str, Any]:
    """Two ranks against one, and torchrun against none; in turns, so that what else the machine does falls on both."""
    speed = [
        measured(2000, size, iterations, network="paper", threads=threads) for size, threads in ((1, 1), (2, 1), (1, 2))
    ]
    turns = [launched(2000, iterations, torchrun=bool(turn % 2)) for turn in range(4)]
    plain, under = (min(row["least ms"] for row in turns[which::2]) for which in (0, 1))
    one, two, threads = (row["ms"] for row in speed)
    return {
        "two ranks": speed,
        "one rank over two": one / two,
        "one rank on two threads over two": threads / two,
        "torchrun": turns,
        "overhead of torchrun": under / plain - 1,
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teachers", type=int, nargs="+", default=[1000, 2000, 4000, 8000, 16_000])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--network", choices=list(NETWORKS), default="light")
    parser.add_argument("--claims", action="store_true")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    if asked.folder is not None:
        row = one_rank(asked.teachers[0], asked.iterations, asked.folder, network="light", per_teacher=10)
        sys.stdout.write(json.dumps(row) + "\n")
        return
    if asked.claims:
        found = claims(asked.iterations)
        show("Claims", [*found["two ranks"], *found["torchrun"]])
        show("So", [{name: value for name, value in found.items() if isinstance(value, float)}])
        keep("ranks-claims", found)
        return
    rows: list[dict[str, Any]] = []
    for teachers, size in itertools.product(asked.teachers, asked.ranks):
        rows.append(measured(teachers, size, asked.iterations, network=asked.network))
        keep("ranks", {"votes": rows})  # what is measured is kept, however the rest goes
    more = measured(asked.teachers[0], asked.ranks[-1], asked.iterations, network=asked.network, per_teacher=100)
    show("Voting over ranks, one thread each", [*rows, more])
    keep("ranks", {"votes": rows, "ten times the records": more})


if __name__ == "__main__":
    main()
