"""Runs cases of one target, in a process of its own, and says which of them did not end as they must.

A case is a function of (target, seed, number), so that any of them can be run again alone. It ends well, or with an
error of `gpate.errors`. Whatever else happens is a fault:

- any other exception, a crash of the process, or more than `SECONDS` of processor time;
- more than `MEMORY` bytes beyond what the process had (they become a MemoryError);
- a file opened outside of the case's folder, a pickle, a new process or a connection: Python's audit events tell;
- for private input: a message, or an error chained to it, or a warning, that holds a canary or a number that is neither
  in the schema nor in the limits.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from mmap import mmap
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NoReturn

from gpate.errors import GpateError

SECONDS = 20.0
"""Of processor time, for one case: a busy machine is no fault."""
MEMORY = 2**32
STALLED = 300.0
"""Seconds after which a process that no signal reaches is killed."""
MOST_FAULTS = 20
_FORBIDDEN = (
    *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen", "pty.spawn"),
    *("pickle.find_class", "socket.connect", "socket.bind", "socket.getaddrinfo", "ctypes.dlopen", "webbrowser.open"),
    *("os.chmod", "os.chown", "os.link", "os.symlink", "shutil.copyfile", "shutil.move", "shutil.unpack_archive"),
)
_PLACES = ("open", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir", "os.truncate")
_NUMBER = re.compile(r"\d+")

Make = Callable[[Random, Path], Callable[[], None]]


@dataclass(frozen=True, kw_only=True)
class Target:
    """One kind of input.

    Attributes:
        name: on the command line.
        setup: writes what every case may use into a folder, once, and returns what makes a case: called with that case's
            own stream and an empty folder, it writes the files there and returns what reads them.
        canaries: texts of private values; no message may hold one.
        numbers: what a message may say in digits; None for input that is not private.
    """

    name: str
    setup: Callable[[Path], Make]
    canaries: Sequence[str] = ()
    numbers: frozenset[str] | None = None


@dataclass(kw_only=True)
class Outcome:
    """What became of the cases of one target."""

    target: str
    cases: int = 0
    seconds: float = 0.0
    ends: Counter[str] = field(default_factory=Counter)
    messages: set[str] = field(default_factory=set)
    faults: list[tuple[int, str]] = field(default_factory=list)


class Fault(AssertionError):
    """A case that ended as none may."""


class _TooSlow(BaseException):
    """Not an Exception, so that no handler takes it for an error of its own."""


def run(target: Target, *, cases: int, seed: int = 0, start: int = 0) -> Outcome:
    """Runs the cases `start` to `start + cases`. A crash costs one case: a new process goes on after it."""
    outcome, began, stop = Outcome(target=target.name), time.monotonic(), start + cases
    place = mmap(-1, 8)
    while start < stop and len(outcome.faults) < MOST_FAULTS:
        place[:] = start.to_bytes(8, "little")
        ours, theirs = Pipe(duplex=False)
        child = os.fork()
        if child == 0:
            _work(target, seed, range(start, stop), place, theirs)
        theirs.close()
        why = _watch(child, ours, outcome, place)
        ours.close()
        start = int.from_bytes(place[:], "little") + 1
        if why:
            outcome.cases += 1
            outcome.faults.append((start - 1, why))
    outcome.seconds = time.monotonic() - began
    return outcome


def _watch(child: int, pipe: Connection, outcome: Outcome, place: mmap) -> str:
    """Collects what the child sends; returns why it died, or nothing if it came to its end."""
    last, since, over = b"", time.monotonic(), False
    while not over:
        if pipe.poll(1.0):
            with contextlib.suppress(EOFError):
                cases, ends, messages, faults, over = pipe.recv()
                outcome.cases += cases
                outcome.ends.update(ends)
                outcome.messages |= messages
                outcome.faults += faults
                continue
            break
        if place[:] != last:
            last, since = place[:], time.monotonic()
        elif time.monotonic() - since > STALLED:
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return (
        ""
        if over
        else f"the process ended: {signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else status}"
    )


def _work(target: Target, seed: int, numbers: range, place: mmap, pipe: Connection) -> NoReturn:
    try:
        with tempfile.TemporaryDirectory(prefix="gpate-fuzz-", dir=_shared_memory()) as name:
            root = Path(name).resolve()
            make = target.setup(root)
            with guarded(root) as guard:
                _cases(target, seed, numbers, place, pipe, make, guard)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the child must never return into the parent's code
        traceback.print_exc()
        os._exit(1)


def _cases(
    target: Target,
    seed: int,
    numbers: range,
    place: mmap,
    pipe: Connection,
    make: Make,
    guard: Guard,
) -> None:
    ends: Counter[str] = Counter()
    messages: set[str] = set()
    faults: list[tuple[int, str]] = []
    done = 0
    folder = guard.root / "case"
    for number in numbers:
        place[:] = number.to_bytes(8, "little")
        folder.mkdir()
        try:
            ends[one(target, make, Random(f"{target.name}/{seed}/{number}"), folder, guard, messages)] += 1
        except Fault as fault:
            faults.append((number, str(fault)))
        shutil.rmtree(folder)
        done += 1
        if done == 1000 or len(faults) >= MOST_FAULTS or number == numbers[-1]:
            over = len(faults) >= MOST_FAULTS or number == numbers[-1]
            pipe.send((done, ends, messages, faults, over))
            done, ends, messages, faults = 0, Counter(), set(), []
            if over:
                return


def one(
    target: Target,
    make: Make,
    rng: Random,
    folder: Path,
    guard: Guard,
    messages: set[str] | None = None,
) -> str:
    """Runs one case and returns the name of the error it ended with, or `ok`.

    Raises:
        Fault: it ended as none may.
    """
    case, error = make(rng, folder), None
    guard.breaches, guard.active = [], True
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            case()
        except GpateError as problem:
            error = problem
        except (Exception, _TooSlow) as problem:  # noqa: BLE001 - this is what is looked for
            signal.setitimer(signal.ITIMER_PROF, 0)
            raise Fault(_short(problem)) from None
        finally:
            guard.active = False
            signal.setitimer(signal.ITIMER_PROF, 0)
    if guard.breaches:
        raise Fault(f"reached outside: {guard.breaches[:3]}")
    texts = [str(each.message) for each in warned] + list(_said(error))
    if target.numbers is not None:
        _check_private(target, texts, folder)
        if warned:
            raise Fault(f"a warning: {texts[0]}")
    if messages is not None and error is not None and len(messages) < 10_000:
        messages.add(str(error).replace(str(folder), "FOLDER")[:300])
    return "ok" if error is None else type(error).__name__


def _check_private(target: Target, texts: list[str], folder: Path) -> None:
    assert target.numbers is not None
    for text in texts:
        public = text.replace(str(folder), "")
        for canary in target.canaries:
            if canary in public:
                raise Fault(f"a private value in: {public[:300]}")
        if more := set(_NUMBER.findall(public)) - target.numbers:
            raise Fault(f"numbers {sorted(more)[:5]} in: {public[:300]}")


def _said(error: BaseException | None) -> Iterator[str]:
    """What a traceback of this error would show: its own words, and those of the errors chained to it."""
    while error is not None:
        yield str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _short(problem: BaseException) -> str:
    frames = traceback.extract_tb(problem.__traceback__)
    ours = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames if "/gpate/" in frame.filename][-3:]
    last = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(problem).__name__}: {str(problem)[:200]!r} at {' > '.join([*ours, last])}"


class Guard:
    """Notes what is done outside of a folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.breaches, self.active = root, list[str](), False
        libraries = {sys.prefix, sys.base_prefix, *(entry for entry in sys.path if entry), "/usr", "/sys", "/proc"}
        self._readable = tuple(os.path.realpath(place) for place in libraries)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook; it cannot be taken off again, only told to look away."""
        if not self.active:
            return
        if event in _FORBIDDEN:
            self.breaches.append(event)
        elif event in _PLACES and isinstance(arguments[0], str | bytes | os.PathLike):
            path = _place(event, arguments)
            inside = path == str(self.root) or path.startswith(f"{self.root}/case")
            reads = event in ("os.listdir", "os.scandir") or (event == "open" and not _writes(arguments))
            if not inside and not (reads and path.startswith(self._readable)):
                self.breaches.append(f"{event} {path}")


def _place(event: str, arguments: tuple[Any, ...]) -> str:
    """What a call reaches: links are followed as it follows them, and names within an open folder belong to that."""
    path = os.fsdecode(arguments[0])
    if event != "open":
        beside = arguments[1] if len(arguments) == 2 and isinstance(arguments[1], int) else -1
        path = path if beside < 0 else os.path.join(os.readlink(f"/proc/self/fd/{beside}"), path)
        return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    if isinstance(arguments[2], int) and arguments[2] & os.O_NOFOLLOW:
        return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return os.path.realpath(path)


def _writes(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = arguments
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


@contextlib.contextmanager
def guarded(root: Path) -> Iterator[Guard]:
    """Limits on time, memory and reach for what is run inside."""
    guard = Guard(root)
    sys.addaudithook(guard.hook)
    signal.signal(signal.SIGPROF, _too_slow)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, most))
    try:
        yield guard
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _too_slow(number: int, frame: FrameType | None) -> NoReturn:
    raise _TooSlow(f"more than {SECONDS:g} seconds of processor time")


def _shared_memory() -> str | None:
    """Cases are small files by the hundred thousand: a disk would be most of the time."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
