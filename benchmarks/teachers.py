"""Speed of Algorithm 1: `python -m benchmarks.teachers [--device cuda] [--only NAME]`.

Records are random: speed does not depend on what they show. Each iteration is timed whole (fakes, teachers' step,
gradients, vote, student's step), and in its two halves.

Floors per iteration of n teachers with W weights each and m records a batch, in single precision:
- memory: Adam reads weights, gradient and two moments and writes three of them (28 W bytes); forward, backward and
  the vote's forward and backward read the weights once each and the gradient is written once (20 W bytes);
- arithmetic: 2 W' operations per record and pass, W' the multiply-adds of one forward pass: two batches forward and
  twice that backward, one batch forward and once backward for the vote: 8 passes of m records.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

from benchmarks.tables import RESULTS, interleaved_clocks, keep, show
from gpate.accounting import Budget
from gpate.boundary import FastNoise, Gate
from gpate.generators import GeneratorSpec, Student, spec_for
from gpate.methods import method_named
from gpate.methods.adversarial_training import train_student
from gpate.methods.pate import Mechanism, Training
from gpate.methods.pate.votes import Voters
from gpate.methods.recipes import recipes
from gpate.methods.settings import Settings
from gpate.records.teachers.ensemble import Ensemble
from gpate.records.teachers.products import times_transpose
from gpate.records.teachers.training import TeacherPlan, discriminator
from gpate.refit import temporary_run
from gpate.run.progress import Monitor, Progress
from gpate.schema import ImageSchema
from gpate.streams import Streams

BANDWIDTH, TF32 = 4.8e12, 400e12
"""Of an H200, as its data sheet and dense TF32 products have it."""

MNIST = ImageSchema(channels=1, height=28, width=28, classes=tuple(map(str, range(10))))
FACES = ImageSchema(channels=3, height=64, width=64, classes=("0", "1"))
DIGITS = ImageSchema(channels=1, height=8, width=8, classes=tuple(map(str, range(10))))


def random_images(schema: ImageSchema, records: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels."""
    rng = np.random.default_rng(0)
    shape = (schema.height, schema.width, schema.channels)[: 3 if schema.channels > 1 else 2]
    return rng.integers(0, 256, (records, *shape), dtype=np.uint8), rng.integers(0, len(schema.classes), records)


def iteration(
    schema: ImageSchema, settings: Settings, *, records: int, device: str, iterations: int = 8
) -> dict[str, Any]:
    """Milliseconds per iteration, all in, after a warm-up; peak memory; floors."""
    settings = settings.changed({"iterations": iterations + 3, "device": device, "checkpoint_seconds": 1e9})
    mechanism, training = settings.of(Mechanism), settings.of(Training)
    times: list[float] = []

    def note(step: Progress) -> None:
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter())

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    torch.set_float32_matmul_precision("high")
    gate = Gate.in_memory(Budget(epsilon=1e3, delta=1e-5), FastNoise())
    plan = method_named(settings.method).plan(settings, schema, 1e3)
    with temporary_run(*random_images(schema, records), schema, settings, plan, gate=gate, seed=0) as run:
        voters = Voters(run, settings, spec=run.spec)
        student = Student(run.spec, init=run.streams.torch("init"), device=run.device)
        train_student(voters, student, replace(run, monitor=Monitor(on_progress=note)), iterations=iterations + 3)
        placement = voters.teachers.plan.placement(run.device)
    per_iteration = sorted(b - a for a, b in itertools.pairwise(times[2:]))
    memory, arithmetic = floors(plan.spec, settings)
    return {
        "teachers": mechanism.teachers,
        "dims": plan.spec.dims,
        "k": mechanism.projected_dims,
        "batch": training.teacher_batch,
        "ms": per_iteration[len(per_iteration) // 2] * 1e3,
        "memory floor ms": memory * 1e3 if device == "cuda" else None,
        "arithmetic floor ms": arithmetic * 1e3 if device == "cuda" else None,
        "peak GB": torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else None,
        "chunk": placement.chunk,
        "state on": placement.storage.type,
    }


def floors(spec: GeneratorSpec, settings: Settings) -> tuple[float, float]:
    """Seconds per iteration that no program can beat, by memory traffic and by arithmetic (H200)."""
    shapes = discriminator(spec, settings.of(Training).teacher).shapes()
    n, m = settings.of(Mechanism).teachers or 0, settings.of(Training).teacher_batch
    weights = sum(torch.Size(shape).numel() for shape, _ in shapes.values())
    products = 0
    for name, (shape, _) in shapes.items():
        size = torch.Size(shape).numel()
        stage = int(name[4]) + 1 if name.startswith("conv") and "." not in name else None
        positions = (spec.height >> stage) * (spec.width >> stage) if stage else 1
        products += size * positions if "." not in name else size
    return 48 * weights * n / BANDWIDTH, 8 * m * n * 2 * products / TF32


def against_a_loop(teachers: int = 200) -> list[dict[str, Any]]:
    """One training step of an ensemble on digits, batched and as a loop of nn.Modules with an Adam each; and the floor of a batched
    one. By the wall, where the loop has as many threads as suit it, and in processor time.
    """
    from tests.records.test_teachers import SlowTeacher

    cpu = torch.device("cpu")
    plan = TeacherPlan(spec=spec_for(DIGITS, latent=50), teachers=teachers, network="paper", batch=15)
    ensemble = Ensemble(
        plan.layout(),
        teachers=teachers,
        placement=plan.placement(cpu),
        streams=Streams(0),
        learning_rate=plan.learning_rate,
    )
    slow = [SlowTeacher(ensemble.network, ensemble.weights, i).float() for i in range(teachers)]
    optimisers = [torch.optim.Adam(teacher.parameters(), lr=1e-3, betas=(0.5, 0.999)) for teacher in slow]
    generator = torch.Generator().manual_seed(0)
    real, fake = (torch.rand(teachers, 7, 64, generator=generator) for _ in range(2))
    labels = torch.randint(0, 10, (teachers, 7), generator=generator)
    everyone = torch.ones(teachers, dtype=torch.bool)

    def batched() -> None:
        ensemble.train(lambda part: (real[part], fake[part], labels[part]), has_records=everyone)

    def loop() -> None:
        for i, (teacher, optimiser) in enumerate(zip(slow, optimisers, strict=True)):
            optimiser.zero_grad()
            loss = F.softplus(-teacher(real[i], labels[i])).mean() + F.softplus(teacher(fake[i], labels[i])).mean()
            loss.backward()
            optimiser.step()

    everything = torch.nn.Parameter(torch.cat([weight.flatten() for weight in ensemble.weights.values()]))
    everything.grad = torch.rand(everything.shape, generator=generator)
    one = torch.optim.Adam([everything], lr=1e-3, betas=(0.5, 0.999), fused=True)
    runs = {
        "batched": batched,
        "loop": loop,
        "loop, one thread": lambda: with_one_thread(loop),
        "products": products_alone(ensemble, samples=14),
        "adam": one.step,
    }
    rows = []
    for clock, seconds in interleaved_clocks(runs, repeats=5).items():
        best, floor = min(seconds["loop"], seconds["loop, one thread"]), seconds["products"] + seconds["adam"]
        rows.append(
            {
                "clock": clock,
                "batched ms": seconds["batched"] * 1e3,
                "loop ms": best * 1e3,
                "loop / batched": best / seconds["batched"],
                "products ms": seconds["products"] * 1e3,
                "Adam ms": seconds["adam"] * 1e3,
                "batched / floor": seconds["batched"] / floor,
                "most possible": best / floor,
            }
        )
    return rows


def with_one_thread(run: Callable[[], object]) -> None:
    """Runs it with one thread inside torch."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run()
    finally:
        torch.set_num_threads(threads)


def products_alone(ensemble: Ensemble, *, samples: int) -> Callable[[], None]:
    """A step's five large matrix products, chunks side by side as in the step: what any program made of
    torch's products takes. Labels, normalisation, activations and the loss come on top, and so does Adam.
    """
    kernels, dense = ensemble.weights["conv0"], ensemble.weights["dense"]
    (n, maps, taps), (inputs, outputs) = kernels.shape, dense.shape[1:]
    count = samples * inputs // maps
    patches, rows = torch.rand(n, taps, count), torch.rand(n, samples, inputs)
    maps_after, after = torch.rand(n, maps, count), torch.rand(n, samples, outputs)
    maps_transposed = torch.rand(n, count, maps)

    def chunk(part: slice) -> None:
        torch.bmm(kernels[part], patches[part], out=maps_after[part])
        torch.bmm(rows[part], dense[part], out=after[part])
        times_transpose(after[part], dense[part])
        gradient = torch.empty(inputs, outputs)
        for x, g in zip(rows[part].mT, after[part], strict=True):
            torch.mm(x, g, out=gradient)
        torch.bmm(patches[part], maps_transposed[part])

    def run() -> None:
        # each thread is told to have none of its own: a product that is the first thing it does would not know
        with ThreadPoolExecutor(torch.get_num_threads(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            with_one_thread(lambda: list(pool.map(chunk, ensemble.chunks())))

    return run


def plot_against_n(rows: list[dict[str, Any]], path: Path) -> None:
    """Time per iteration against the number of teachers, with its memory floor and the line through the first two."""
    from matplotlib.figure import Figure

    n, ms, floor = ([row[name] for row in rows] for name in ("teachers", "ms", "memory floor ms"))
    slope = (ms[1] - ms[0]) / (n[1] - n[0])
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(n, ms, "o-", color="#b4501e", label="measured")
    axes.plot(n, [ms[0] + slope * (x - n[0]) for x in n], "--", color="#888", label="line through the first two")
    axes.plot(n, floor, ":", color="#1e5f8c", label="memory floor")
    axes.set(xlabel="teachers", ylabel="ms per iteration", xlim=(0, None), ylim=(0, None))
    axes.set_title("Algorithm 1 on MNIST-size images: cost against the number of teachers", loc="left")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    device, tables = arguments.device, {}
    mnist, faces = (recipes()[f"paper-{name}-eps1"] for name in ("mnist", "celeba"))
    if device == "cpu":
        plans: dict[str, list[tuple[ImageSchema, Settings, int]]] = {
            "digits": [(DIGITS, mnist.changed({"teachers": n, "teacher": "paper"}), 1437) for n in (50, 100, 200)]
        }
    else:
        plans = {
            "mnist": [(MNIST, mnist, 60_000)],
            "n": [(MNIST, mnist.changed({"teachers": n}), 60_000) for n in (500, 1000, 2000, 4000, 8000)],
            "k": [(MNIST, mnist.changed({"projected_dims": k}), 60_000) for k in (5, 10, 20, 100)],
            "faces": [(FACES, faces, 45_000)],
        }
    for name, cases in plans.items():
        if arguments.only in ("", name):
            rows = [
                iteration(s, settings, records=n, device=device, iterations=3 if name == "faces" else 8)
                for s, settings, n in cases
            ]
            tables[name] = rows
            show(f"One iteration, {name}, on {device}", rows)
    if device == "cpu" and arguments.only in ("", "loop"):
        tables["loop"] = against_a_loop()
        show("200 batched teachers against a loop of modules, digits (bar: 12 by the wall, two cores)", tables["loop"])
    if "n" in tables:
        plot_against_n(tables["n"], RESULTS / f"teachers-{device}-n.png")
    keep(f"teachers-{device}" + (f"-{arguments.only}" if arguments.only else ""), tables)


if __name__ == "__main__":
    main()
