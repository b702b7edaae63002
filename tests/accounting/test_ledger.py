"""The ledger: an edit is found, a crash loses nothing that was released, a full disk releases nothing."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gpate.accounting import (
    Budget,
    DiscreteGaussian,
    GNMax,
    Header,
    Laplace,
    Ledger,
    NoisyMaxThreshold,
    Receipt,
    read_ledger,
)
from gpate.accounting.hash_chain import GENESIS, body_of, linked
from gpate.boundary import ExactNoise, Gate
from gpate.errors import (
    InvalidValue,
    LedgerBusy,
    LedgerCorrupt,
    LedgerMismatch,
    LedgerSealed,
    LedgerVersion,
    LedgerWriteFailed,
)
from tests.processes import run

HEADER = Header(budget=Budget(epsilon=1.0, delta=1e-5, pure=0.01), noise="exact")
EVENTS = [
    Laplace(scale=100.0, dimension=10, grid=1.0),
    NoisyMaxThreshold(sigma=3000.0, count=150, grid=2.0**-19),
    GNMax(sigma=1000.0, bins=10, count=80, grid=2.0**-21),
]


def written(path: Path, *, seal: bool = False) -> bytes:
    with Ledger.create(path, HEADER) as ledger:
        for event in EVENTS:
            ledger.append(event, purpose="test")
        if seal:
            ledger.seal()
    return path.read_bytes()


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    written(tmp_path / "l", seal=True)
    contents = read_ledger(tmp_path / "l")
    assert [entry.event for entry in contents.entries] == EVENTS
    assert contents.header == HEADER
    assert contents.sealed
    assert not contents.torn
    assert contents.head.line == len(EVENTS) + 2
    assert contents.spend == HEADER.budget.spend(EVENTS)


def test_every_line_is_plain_json(tmp_path: Path) -> None:
    lines = written(tmp_path / "l", seal=True).decode().splitlines()
    assert [sorted(json.loads(line)) for line in lines][1] == ["chain", "event", "purpose"]


def test_infinite_epsilon_survives_json(tmp_path: Path) -> None:
    header = Header(budget=Budget(epsilon=float("inf"), delta=1e-5), noise="fast")
    Ledger.create(tmp_path / "l", header).close()
    assert read_ledger(tmp_path / "l").header == header
    json.loads((tmp_path / "l").read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_any_single_changed_byte_is_found(tmp_path: Path) -> None:
    raw = written(tmp_path / "l", seal=True)
    path = tmp_path / "edited"
    for position in range(len(raw) - 1):  # the last newline alone only makes the seal torn, tested below
        changed = bytes([raw[position] ^ 1])
        path.write_bytes(raw[:position] + changed + raw[position + 1 :])
        with pytest.raises((LedgerCorrupt, LedgerVersion)):
            read_ledger(path)


@pytest.mark.parametrize("number", range(len(EVENTS) + 1))
def test_a_removed_line_is_found(tmp_path: Path, number: int) -> None:
    lines = written(tmp_path / "l", seal=True).splitlines(keepends=True)
    (tmp_path / "l").write_bytes(b"".join(lines[:number] + lines[number + 1 :]))
    with pytest.raises(LedgerCorrupt):
        read_ledger(tmp_path / "l")


def test_swapped_and_doubled_lines_are_found(tmp_path: Path) -> None:
    lines = written(tmp_path / "l").splitlines(keepends=True)
    for forged in ([0, 2, 1, 3], [0, 1, 1, 2, 3]):
        (tmp_path / "l").write_bytes(b"".join(lines[i] for i in forged))
        with pytest.raises(LedgerCorrupt):
            read_ledger(tmp_path / "l")


def test_lines_cut_from_the_end_miss_their_seal_and_head(tmp_path: Path) -> None:
    lines = written(tmp_path / "l", seal=True).splitlines(keepends=True)
    head = read_ledger(tmp_path / "l").head
    (tmp_path / "l").write_bytes(b"".join(lines[:-2]))
    assert not read_ledger(tmp_path / "l").sealed
    with pytest.raises(LedgerCorrupt, match=f"line {head.line}"):
        read_ledger(tmp_path / "l", head=head)


def test_lines_after_the_seal_are_found(tmp_path: Path) -> None:
    """A line appended after the seal is refused even if its hash is right."""
    raw = written(tmp_path / "l", seal=True)
    late = body_of({"event": EVENTS[0].to_json(), "purpose": "late"})
    (tmp_path / "l").write_bytes(raw + linked(read_ledger(tmp_path / "l").head.chain, late)[1])
    with pytest.raises(LedgerCorrupt):
        read_ledger(tmp_path / "l")


def test_cut_at_every_byte_leaves_whole_lines_and_can_go_on(tmp_path: Path) -> None:
    """Kill -9 at any byte: what is left is a prefix of lines, the torn one is dropped, writing goes on."""
    raw = written(tmp_path / "l")
    header_end = raw.index(b"\n") + 1
    for length in range(header_end, len(raw) + 1):
        path = tmp_path / "cut"
        path.write_bytes(raw[:length])
        whole = raw[:length].count(b"\n")
        torn = not raw[:length].endswith(b"\n")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with Ledger.open(path, HEADER) as ledger:
                ledger.append(EVENTS[0], purpose="after the crash")
        assert bool(seen) == torn
        contents = read_ledger(path)
        assert [entry.event for entry in contents.entries] == [*EVENTS[: whole - 1], EVENTS[0]]


def test_cut_inside_the_header_is_an_error_that_says_so(tmp_path: Path) -> None:
    raw = written(tmp_path / "l")
    for length in range(raw.index(b"\n") + 1):
        (tmp_path / "l").write_bytes(raw[:length])
        with pytest.raises(LedgerCorrupt, match="nothing was released"):
            read_ledger(tmp_path / "l")


def test_newer_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpate.accounting.ledger.VERSION", 2)
    written(tmp_path / "l")
    monkeypatch.setattr("gpate.accounting.ledger.VERSION", 1)
    with pytest.raises(LedgerVersion, match="version 2"):
        read_ledger(tmp_path / "l")


def test_resuming_with_another_budget_or_noise_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "l")
    for other in (
        Header(budget=Budget(epsilon=2.0, delta=1e-5), noise="exact"),
        Header(budget=HEADER.budget, noise="fast"),
    ):
        with pytest.raises(LedgerMismatch):
            Ledger.open(tmp_path / "l", other)


def test_two_writers_are_refused(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "l", HEADER), pytest.raises(LedgerBusy):
        Ledger.open(tmp_path / "l", HEADER)


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    raw = written(tmp_path / "l")
    with pytest.raises(InvalidValue, match="new file"):
        Ledger.create(tmp_path / "l", HEADER)
    assert (tmp_path / "l").read_bytes() == raw


def test_nothing_is_appended_after_the_seal(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "l", HEADER) as ledger:
        sealed = ledger.seal()
        with pytest.raises(LedgerSealed):
            ledger.append(EVENTS[0], purpose="late")
        assert ledger.seal() == sealed


def test_memory_and_disk_agree(tmp_path: Path) -> None:
    on_disk, in_memory = Ledger.create(tmp_path / "l", HEADER), Ledger.in_memory(HEADER)
    for event in EVENTS:
        assert on_disk.append(event, purpose="x") == in_memory.append(event, purpose="x")
    assert on_disk.tally == in_memory.tally == read_ledger(tmp_path / "l").tally
    assert on_disk.durable
    assert not in_memory.durable


def test_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = written(tmp_path / "l")
    real = os.write

    def fails_half_way(descriptor: int, data: bytes) -> int:
        real(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    ledger = Ledger.open(tmp_path / "l", HEADER)
    monkeypatch.setattr(os, "write", fails_half_way)
    with pytest.raises(LedgerWriteFailed, match="No space left"):
        ledger.append(EVENTS[0], purpose="x")
    monkeypatch.undo()
    assert (tmp_path / "l").read_bytes() == raw
    with pytest.raises(LedgerWriteFailed, match="open it again"):
        ledger.append(EVENTS[0], purpose="x")
    with Ledger.open(tmp_path / "l", HEADER) as again:
        assert again.append(EVENTS[0], purpose="x") == Receipt(line=5, chain=again.head.chain)


def test_the_line_is_on_disk_before_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (real(fd), synced.append(os.fstat(fd).st_size))[0])
    with Ledger.create(tmp_path / "l", HEADER) as ledger:
        for event in EVENTS:
            ledger.append(event, purpose="x")
            assert synced[-1] == (tmp_path / "l").stat().st_size


# --- lines that are kept back ---


def test_lines_that_are_kept_back_count_at_once_and_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = written(tmp_path / "one by one")
    writes: list[bytes] = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: (writes.append(data), real(fd, data))[1])
    with Ledger.create(tmp_path / "l", HEADER) as ledger:
        header = (tmp_path / "l").read_bytes()
        with ledger.deferred():
            receipts = [ledger.append(event, purpose="test") for event in EVENTS]
            assert ledger.tally == {event.once(): event.count for event in EVENTS}
            assert all(map(ledger.holds, receipts))
            assert (tmp_path / "l").read_bytes() == header
            lines = ledger.uncommitted
            ledger.commit()
            assert ledger.uncommitted == b""
        assert header + lines == (tmp_path / "l").read_bytes() == raw
        assert writes[1:] == [lines]
        ledger.append(EVENTS[0], purpose="at once again")
        assert len(read_ledger(tmp_path / "l").entries) == len(EVENTS) + 1


def test_a_ledger_whose_lines_were_not_committed_takes_no_more(tmp_path: Path) -> None:
    raw = written(tmp_path / "l")
    with Ledger.open(tmp_path / "l", HEADER) as ledger:
        with ledger.deferred():
            ledger.append(EVENTS[0], purpose="lost")
        with pytest.raises(LedgerWriteFailed, match="open it again"):
            ledger.append(EVENTS[0], purpose="x")
        with pytest.raises(LedgerWriteFailed, match="open it again"):
            ledger.seal()
    assert (tmp_path / "l").read_bytes() == raw


@pytest.mark.filterwarnings("ignore:.*left incomplete by a crash")
def test_lines_are_completed_whatever_part_of_them_was_written(tmp_path: Path) -> None:
    raw = written(tmp_path / "l")
    first = raw.index(b"\n", raw.index(b"\n") + 1) + 1
    lines = raw[first:]
    assert lines.count(b"\n") == 2
    second = raw.index(b"\n", first) + 1
    for length in {*range(first, len(raw), 20), second - 1, second, second + 1, len(raw) - 1, len(raw)}:
        (tmp_path / "cut").write_bytes(raw[:length])
        with Ledger.open(tmp_path / "cut", HEADER) as ledger:
            ledger.complete(lines)
            assert (tmp_path / "cut").read_bytes() == raw, length
            assert [entry.event for entry in ledger.entries] == EVENTS
            ledger.complete(lines)
            ledger.append(EVENTS[0], purpose="the next")
        assert [entry.event for entry in read_ledger(tmp_path / "cut").entries] == [*EVENTS, EVENTS[0]]


def test_lines_that_do_not_continue_the_ledger_are_refused(tmp_path: Path) -> None:
    raw = written(tmp_path / "l", seal=True).splitlines(keepends=True)
    header, first, second, third, seal = raw
    wrong = {
        "a gap": (header, second),
        "another order": (header, second + first),
        "an incomplete line": (header, first[:-1]),
        "a seal": (header + first + second + third, seal),
        "an edited line": (header, first.replace(b"test", b"tent")),
        "no line": (header, b"{}\n"),
    }
    for name, (kept, lines) in wrong.items():
        (tmp_path / name).write_bytes(kept)
        with Ledger.open(tmp_path / name, HEADER) as ledger, pytest.raises(LedgerMismatch, match="do not continue it"):
            ledger.complete(lines)
        assert (tmp_path / name).read_bytes() == kept
    with Ledger.create(tmp_path / "another", HEADER) as ledger:
        ledger.append(EVENTS[2], purpose="test")
        with pytest.raises(LedgerMismatch):
            ledger.complete(first)
    with Ledger.create(tmp_path / "sealed", HEADER) as ledger:
        ledger.seal()
        with pytest.raises(LedgerMismatch):
            ledger.complete(first)
    with pytest.raises(LedgerMismatch):
        Ledger.in_memory(HEADER).complete(first)


# --- kill -9 ---


def publish(folder: Path) -> None:
    """Pays for and "publishes" one value after another, as fast as it can."""
    gate = Gate.create(folder / "ledger", Budget(epsilon=10.0, delta=1e-5))
    out = os.open(folder / "released", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for _ in range(10**6):
        voucher = gate.pay(DiscreteGaussian(sigma=1e5, grid=gate.grid(1e5)), purpose="x")
        value = voucher.perturb(np.zeros(1, dtype=np.int64))[0]
        os.write(out, f"{voucher.receipt.line} {voucher.receipt.chain} {value}\n".encode())


def publish_until(folder: Path, call: int, *, half: bool) -> None:
    """The same, killed before a certain call that writes or syncs; of what it was to write, half is written or nothing."""
    left = call
    real = {name: getattr(os, name) for name in ("write", "fsync")}

    def counted(name: str) -> Callable[..., object]:
        def called(descriptor: int, *data: bytes) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                if half and data:
                    real["write"](descriptor, data[0][: len(data[0]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real[name](descriptor, *data)

        return called

    for name in real:
        setattr(os, name, counted(name))
    publish(folder)


CALLS = 40
KILLS = 120


def kill_two_hundred_times(place: str) -> None:
    """In one process, which has loaded everything and forks. First at every call, then at any moment."""
    ExactNoise().gaussian(1, 2.0**30)
    for call in range(CALLS):
        for half in (False, True):
            folder = Path(place) / f"call-{call}-{half}"
            folder.mkdir()
            pid = os.fork()
            if pid == 0:
                publish_until(folder, call, half=half)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    for number in range(KILLS):
        folder = Path(place) / f"moment-{number}"
        folder.mkdir()
        pid = os.fork()
        if pid == 0:
            publish(folder)
        while lines_of(folder / "released") < number % 6:  # however busy the machine is
            time.sleep(0.0003)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.slow
def test_kill_9_two_hundred_times_never_leaves_a_release_without_its_line(tmp_path: Path) -> None:
    done = run(kill_two_hundred_times, str(tmp_path))
    assert done.returncode == 0, done.stderr
    folders = sorted(tmp_path.iterdir())
    assert len(folders) == 2 * CALLS + KILLS == 200
    released = torn = 0
    for folder in folders:
        published = (folder / "released").read_text().splitlines(True) if (folder / "released").exists() else []
        whole = [line for line in published if line.endswith("\n")]
        if not lines_of(folder / "ledger"):
            assert not published, folder.name
            continue
        contents = read_ledger(folder / "ledger")
        lines = (folder / "ledger").read_text().splitlines()[: contents.head.line]
        chains = {json.loads(line)["chain"] for line in lines}
        assert all(line.split()[1] in chains for line in whole), folder.name
        assert len(published) <= len(contents.entries) <= len(whole) + 1, folder.name
        released, torn = released + len(whole), torn + contents.torn
    assert released > 500  # it did something before it died
    assert torn > 5


def test_many_thousand_lines_are_verified(tmp_path: Path) -> None:
    """How long that takes: `make bench`."""
    counts = [number % 150 + 1 for number in range(20_000)]
    ledger = Ledger.in_memory(HEADER)
    chain, out = GENESIS, []
    heading = {
        "gpate_ledger": 1,
        "budget": {"epsilon": 1.0, "delta": 1e-5},
        "noise": "exact",
        "neighbours": ledger.header.neighbours,
    }
    events = [GNMax(sigma=1000.0, bins=10, count=count).to_json() for count in range(1, 151)]
    for content in (heading, *({"event": events[count - 1], "purpose": "vote"} for count in counts)):
        chain, line = linked(chain, body_of(content))
        out.append(line)
    (tmp_path / "l").write_bytes(b"".join(out))
    assert read_ledger(tmp_path / "l").tally == {GNMax(sigma=1000.0, bins=10): sum(counts)}
