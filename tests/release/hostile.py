"""Releases that ask for hours or gigabytes, and a process that verifies each of them in a child of limited time and memory.

`main(FOLDER, CASES)` prints, for each case, the checks that failed, or the signal that ended the child.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from gpate.accounting import grid_for
from gpate.neighbours import RECORD
from gpate.release import release_files as files
from tests.release.forger import Lines, write_ledger

CPU_SECONDS, MEMORY = 10, 1 << 30


def gaussian(sigma: float, **more: Any) -> dict[str, Any]:
    kind = {"kind": "DiscreteGaussian", "count": 1, "sigma": sigma, "grid": grid_for(sigma)}
    return {**kind, "sensitivity": 1.0, "dimension": 1, **more}


def sampled(noise: float, q: float, count: int, kind: str = "PoissonSampledGaussian") -> dict[str, Any]:
    event = {"kind": kind, "count": count, "noise_multiplier": noise, "sampling_probability": q}
    return {**event, "sensitivity": 1.0, "dimension": 1, "grid": 2.0**-34}


def laplace(scale: float, **more: Any) -> dict[str, Any]:
    event = {"kind": "Laplace", "count": 1, "scale": scale, "sensitivity": 1.0, "dimension": 1, "grid": 1.0}
    return {**event, **more}


def ledger(events: Iterable[dict[str, Any]], **budget: Any) -> Callable[[Path], None]:
    """A ledger of these events, with an intact chain."""

    def write(folder: Path) -> None:
        spent = {"epsilon": 1.0, "delta": 1e-5, "pure": 0.0, "accountant": "auto", **budget}
        first = {"gpate_ledger": 1, "budget": spent, "noise": "exact", "neighbours": RECORD}
        lines: Lines = [{"event": event, "purpose": "threshold"} for event in events]
        write_ledger(folder, [first, *lines, {"seal": {"entries": len(lines)}}])

    return write


def text(name: str, content: Callable[[str], str]) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(content((folder / name).read_text())) and None  # type: ignore[func-returns-value]


def many_tensors(folder: Path) -> None:
    names = {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(40_000)}
    header = json.dumps(names).encode()
    (folder / files.WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header)


def hole(folder: Path) -> None:
    with open(folder / files.WEIGHTS, "r+b") as file:
        file.truncate(2**32)


def many_classes(folder: Path) -> None:
    data = json.loads((folder / files.CONFIG).read_text())
    column = {"kind": "flag", "start": 0, "cells": 2, "missing": False}
    number = 60_000
    data["generator"] = {"kind": "mixture", "width": 1, "columns": [column], "components": [1] * number}
    data["generator"]["groups"] = [[2]] * number
    (folder / files.CONFIG).write_bytes(files.to_json(data))


def scattering_scales(folder: Path) -> None:
    """Settings of a run of images with 2^(10^15) pixels between two points of a grid."""
    data = json.loads((folder / files.CONFIG).read_text())
    data["settings"] |= {"method": "embedding", "embedding": {"first": {"base": "scattering", "scales": 10**15}}}
    (folder / files.CONFIG).write_bytes(files.to_json(data))


CASES: dict[str, Callable[[Path], None]] = {
    "a number of four million digits": text(files.CERTIFICATE, lambda t: t.replace('"line": 5', '"line": ' + "9" * 4_000_000)),
    "brackets in brackets": text(files.CERTIFICATE, lambda _: "[" * 2_000_000),
    "a count of 4,000 digits": ledger([gaussian(40.0, count=10**4000)]),
    "a count beyond all counting": ledger([gaussian(40.0, count=10**18)]),
    "a sigma at the end of all numbers": ledger([gaussian(1e308)]),
    "a histogram of 10^18 columns": ledger([gaussian(5.0, kind="StableHistogram", threshold=40.0, columns=10**18)]),
    "a thousand sampled events": ledger(sampled(1 + i / 1000, 0.01, 100) for i in range(1000)),
    "a thousand sampled events, by Renyi": ledger((sampled(1 + i / 1000, 0.01, 9) for i in range(1000)), accountant="rdp"),
    "a thousand draws of one in many": ledger(sampled(1 + i / 1000, 0.01, 9, "OneOfManyGaussian") for i in range(1000)),
    "hardly any noise on a sample": ledger([sampled(0.05, 0.5, 10**7)]),
    "hardly any noise on a rare sample": ledger([sampled(0.05, 1e-9, 10**7)]),
    "hardly any noise, by loss distributions": ledger([gaussian(1e-6)], accountant="pld"),
    "ten thousand events": ledger(gaussian(1e6 + i) for i in range(10_000)),
    "ten thousand pure events": ledger((laplace(1e6 + i) for i in range(10_000)), pure=0.5),
    "a grid of 10^9 steps": ledger([laplace(1.0, sensitivity=1e9)], accountant="pld", pure=0.5),
    "a list of 500,000 values": text(files.SCHEMA, lambda _: "a: [" + "1," * 500_000 + "1]\n"),
    "a schema's number of a million digits": text(files.SCHEMA, lambda _: "a: " + "9" * 1_000_000 + "\n"),
    "a schema's number of 20,000 minutes": text(files.SCHEMA, lambda _: "a: 1" + ":59" * 20_000 + "\n"),
    "40,000 tensors": many_tensors,
    "weights of 4 GiB": hole,
    "60,000 classes": many_classes,
    "10^15 scales": scattering_scales,
}  # fmt: skip

SLOW: dict[str, Callable[[Path], None]] = {
    "as many lines as are read": ledger([gaussian(40.0)] * 550_000),
    "as many different lines as are read": ledger(gaussian(40.0 + i) for i in range(60_000)),
    "as little noise as is composed": ledger([sampled(0.29, 1e-6, 200_000)], epsilon=20.0),
    "as many sampled events as are composed": ledger(
        (sampled(1 + i / 64, 0.01, 9) for i in range(64)), accountant="rdp"
    ),
}


def verified(folder: Path) -> list[str]:
    from gpate import verify

    return [check.name for check in verify(folder).checks if not check.passed]


def in_a_child(folder: Path) -> list[str] | int:
    """The checks that failed; or the signal, if it took more time than allowed, and 1 if more memory."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
        resource.setrlimit(resource.RLIMIT_CPU, (used + CPU_SECONDS, used + CPU_SECONDS + 1))
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
        try:
            os.write(writer, json.dumps(verified(folder)).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    status = os.waitpid(child, 0)[1]
    return json.loads(told) if status == 0 else os.waitstatus_to_exitcode(status)


def main(place: str, cases: Iterable[str]) -> None:
    original = Path(place) / "release"
    verified(original)  # so that children need not import, or do first things, themselves
    import_module("dp_accounting.pld.privacy_loss_distribution")
    for case in cases:
        folder = Path(shutil.copytree(original, Path(place) / "hostile"))
        {**CASES, **SLOW}[case](folder)
        sys.stdout.write(json.dumps([case, in_a_child(folder)]) + "\n")
        sys.stdout.flush()
        shutil.rmtree(folder)
