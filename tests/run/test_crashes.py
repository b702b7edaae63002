"""A crash costs nothing: from every state that a kill or a power cut can leave, a run ends in the release that it would have had.

The states are those of `tests.run.crashes`. Noise follows from the ledger line that pays for it, so that a resumed run can be
compared with the undisturbed one byte by byte; its seeds and its partition key are in its plan.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from gpate import Synthesizer
from gpate.accounting import read_ledger
from gpate.boundary import ExactNoise, Gate, Released
from gpate.boundary.gate import Voucher
from gpate.cli import main
from gpate.errors import LedgerMismatch
from gpate.release import verify
from gpate.release.release_files import NAMES
from gpate.run.folder import RunFolderError
from tests.command import gpate
from tests.methods.small import FAST, IMAGES, TABLE, images, table
from tests.processes import FEW_LATENTS, run
from tests.run.crashes import Crashes, State, restore


@dataclass(frozen=True, kw_only=True)
class Case:
    """A small run.

    Attributes:
        recipe: of the run.
        settings: that make it small.
        kind: of its records.
        often: whether each iteration ends with a checkpoint that takes the place of the answers.
    """

    recipe: str
    settings: dict[str, Any]
    kind: str
    often: bool = False

    @property
    def records(self) -> tuple[Any, Any]:
        return images() if self.kind == "image" else (table(), None)

    def fit(self, out: Path) -> Synthesizer:
        settings = {**self.settings, **({"checkpoint_seconds": 0.0} if self.often else {})}
        model = Synthesizer(epsilon=2.0, seed=3, recipe=self.recipe, settings=settings)
        return model.fit(*self.records, schema=IMAGES if self.kind == "image" else TABLE, out=out)


CASES = {
    "table": Case(
        recipe="default",
        settings={"fitting.components": 4, "fitting.restarts": 1, "fitting.steps": 2},
        kind="table",
    ),
    "image": Case(
        recipe="default",
        settings={"first.frequencies": 20, "matching.steps": 2, "matching.batch": 10, "maps": 4},
        kind="image",
    ),
    "votes": Case(recipe="paper-mnist-eps1", settings=FAST, kind="table"),  # until the budget is spent
    "votes and checkpoints": Case(
        recipe="paper-mnist-eps1", settings={**FAST, "iterations": 3}, kind="table", often=True
    ),
    "votes on images": Case(recipe="paper-mnist-eps1", settings=FAST, kind="image"),
    "refined": Case(
        recipe="refined",
        settings={
            **{name: value for name, value in FAST.items() if name in ("teachers", "samples", "teacher_batch")},
            **{"first.frequencies": 20, "matching.steps": 2, "matching.batch": 10, "maps": 4},
            **{"iterations": 3, "warm_up": 1},
        },
        kind="image",
    ),
}


QUICK = ("table", "image", "votes", "votes and checkpoints")
LEDGER = "release/ledger.jsonl"


class KeyedNoise(ExactNoise):
    """Whole steps that follow from a ledger line. For tests: who reads the ledger knows them."""

    def __init__(self, chain: str) -> None:
        self._generator = np.random.default_rng(int(chain[:16], 16))

    def gaussian(self, size: int, sigma: float) -> np.ndarray:
        return np.rint(self._generator.normal(scale=sigma, size=size)).astype(np.int64)

    def laplace(self, size: int, scale: float) -> np.ndarray:
        return np.rint(self._generator.laplace(scale=scale, size=size)).astype(np.int64)


@pytest.fixture(autouse=True)
def repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Voucher._take
    monkeypatch.setattr(Voucher, "_take", lambda self: (take(self), KeyedNoise(self.receipt.chain))[1])
    monkeypatch.setattr("gpate.generators.student._REFRESH", FEW_LATENTS)


@contextmanager
def recorded(case: Case, folder: Path) -> Iterator[Crashes]:
    """All states of a run, for a block that resumes them under the same conditions."""
    with mock.patch("gpate.run.transcript._LARGE", 1 if case.often else 1 << 30):
        with Crashes(folder).recorded() as crashes:
            case.fit(folder)
        yield crashes


def check(case: Case, whole: Path, state: State, folder: Path) -> None:
    """Resumes a run from a state, and compares the release with that of the undisturbed run."""
    restore(state, folder)
    begun, finished = "private/run.json" in state, "release/certificate.json" in state
    if finished:
        with pytest.raises(RunFolderError, match="is finished"):
            Synthesizer.resume(folder, *case.records)
        assert not list((folder / "private").rglob("*checkpoint*.safetensors"))
    elif begun:
        Synthesizer.resume(folder, *case.records)
    else:
        case.fit(folder)  # the same command begins again
    assert verify(folder / "release").releasable
    lines, expected = (read_ledger(place / LEDGER) for place in (folder, whole))
    assert lines.spend == pytest.approx(expected.spend, rel=1e-6)
    if begun:
        for name in NAMES:
            assert (folder / "release" / name).read_bytes() == (whole / "release" / name).read_bytes(), name


def check_all(case: Case, whole: Path, states: list[State], place: Path) -> None:
    for number, state in enumerate(states):
        check(case, whole, state, place / str(number))


def some(states: list[State], last: int) -> list[State]:
    """Those of the last release, with which the budget is gone, and a few of the others."""
    sealed = next(number for number, state in enumerate(states) if b'"seal"' in (state.get(LEDGER) or b""))
    return [*states[sealed - last : sealed], *(states[place * (len(states) - 1) // 3] for place in range(4))]


@pytest.mark.filterwarnings("ignore:.*left incomplete by a crash")
@pytest.mark.parametrize(
    ("name", "every"),
    [(name, False) for name in QUICK] + [pytest.param(name, True, marks=pytest.mark.slow) for name in CASES],
)
def test_a_crash_costs_nothing(name: str, every: bool, tmp_path: Path) -> None:
    case = CASES[name]
    with recorded(case, tmp_path / "whole") as crashes:
        assert {"write", "fsync", "replace", "open", "mkdir"} <= set(crashes.calls)
        check_all(case, tmp_path / "whole", crashes.kill if every else some(crashes.kill, last=5), tmp_path / "killed")
        cut = crashes.power_cut if every else some(crashes.power_cut, last=1)[:2]
        check_all(case, tmp_path / "whole", cut, tmp_path / "power cut")


def ledger_first(self: Gate, release: Callable[[], Released[Any]], *, keep: Callable[..., None]) -> Released[Any]:
    released = release()
    keep(released, b"")
    return released


UNSYNCED = SimpleNamespace(**{**vars(os), "fsync": lambda _: None})
FAULTS = {
    "the ledger first": ("gpate.boundary.Gate.transaction", ledger_first),
    "lines are not completed": ("gpate.accounting.Ledger.complete", lambda *_: None),
    "answers are not synced": ("gpate.run.transcript.os", UNSYNCED),
}


@pytest.mark.filterwarnings("ignore:.*left incomplete by a crash")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_order_is_found(fault: str, tmp_path: Path) -> None:
    """The check above fails on code that pays before it stores, that does not pay for what it stored, or that does not sync."""
    case = CASES["table"]
    with mock.patch(*FAULTS[fault]), recorded(case, tmp_path / "whole") as crashes:
        states = crashes.power_cut if fault == "answers are not synced" else crashes.kill
        begun = [state for state in states if (state.get(LEDGER) or b"").count(b"\n") > 1]
        with pytest.raises((AssertionError, LedgerMismatch), match="ledger"):
            check_all(case, tmp_path / "whole", begun, tmp_path / "killed")


# --- kill -9 --------------------------------------------------------------------------------------------------------------


def killed_at(call: int, half: bool, arguments: list[str]) -> None:
    """The command, killed before a certain call that changes a file; of what it was to write, half is written or nothing."""
    left = call

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def called(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                if half and name == "write":
                    real(args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        return called

    for name in ("write", "fsync", "replace", "unlink", "mkdir", "ftruncate", "truncate"):
        setattr(os, name, counted(name))
    main(arguments)


@pytest.mark.parametrize(
    "calls",
    [(26,), pytest.param(range(1000), marks=pytest.mark.slow)],
    ids=["some", "all"],
)
def test_the_command_is_killed_and_resumed(calls: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a signal that nobody can handle, with noise from the operating system."""
    monkeypatch.undo()
    frame = table()
    frame.to_csv(tmp_path / "data.csv", index=False)
    (tmp_path / "schema.yaml").write_text(TABLE.to_text())
    fit = ["fit", str(tmp_path / "data.csv"), "--schema", str(tmp_path / "schema.yaml"), "--epsilon", "2", "--quiet"]
    fit += [f"--set={name}={value}" for name, value in CASES["table"].settings.items()]
    killed = 0
    for call in calls:
        out = tmp_path / f"run-{call}"
        done = run(killed_at, call, bool(call % 2), [*fit, "--out", str(out)])
        if done.returncode == 0:
            break  # there are no more calls
        assert done.returncode == -signal.SIGKILL, done.stderr
        killed += 1
        if (out / "release" / "certificate.json").exists():
            continue
        resumed = (
            ["fit", "--resume", str(out), "--quiet"]
            if (out / "private" / "run.json").exists()
            else [*fit, "--out", str(out)]
        )
        assert gpate(*resumed) == 0
        assert verify(out / "release").releasable
        contents = read_ledger(out / LEDGER)
        assert contents.spend == pytest.approx(2.0, rel=1e-6)
        purposes = [entry.purpose for entry in contents.entries]
        assert len(purposes) == len(set(purposes)) >= 6, "each table once"
    assert killed == len(calls) or killed > 40
