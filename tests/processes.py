"""Processes of their own for tests, forked from a server that has loaded the libraries: a start takes milliseconds, not seconds.

`start(function, *arguments)` runs a module's function with arguments that JSON can carry; `run` waits for its end. What is
started has its own standard streams, folder and environment, and ends as a program does; small students have few latents
behind their normalisation statistics, and classifiers have few trees, which is most of the time that they take. What a fresh
interpreter loads, and `python -m gpate` itself, are tested with `subprocess`.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
FEW_LATENTS = 64
"""Behind normalisation statistics, for students of which no test asks how good they are."""
FEW_TREES = 10
"""In the classifiers of an evaluation: `research/tests/test_real_benchmarks.py` has as many as users have."""
LIMIT = 600.0
"""Seconds after which a process counts as hung. No test asks how long something takes."""
_LOADED = (
    "dp_accounting.pld.pld_privacy_accountant",
    "jinja2",
    "matplotlib.figure",
    "opendp.prelude",
    "pandas",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
    "rich.markdown",
    "rich.traceback",
    "safetensors.torch",
    "scipy.stats",
    "sklearn.ensemble",
    "torch",
    "torch._dynamo",  # which every optimizer loads: two seconds
    "torch.distributed",
    "typer._adapters",
    "gpate.audit",
    "gpate.evaluation.harness",
    "gpate.report.page",
    "gpate.schema.dictionary",
    "gpate.schema.draft_file",
    "gpate.schema.file_types",
    "gpate.schema.proposals",
    "gpate.synthesizer",
    "gpate.verification",
    "gpate_research.datasets",
)
"""What commands load, but `gpate.cli` and `typer.rich_utils`: they look at their terminal when they are loaded."""
_LOADED_BY_FITS = ("opendp.prelude", "safetensors.torch", "torch._dynamo", "torch.distributed", "gpate.synthesizer")
"""Servers but the first are for further ranks of one fit."""


class Child:
    """A process that was forked, to be used as `subprocess.Popen` is."""

    def __init__(self, report: IO[str], stdout: IO[str] | None, stderr: IO[str] | None) -> None:
        self.stdout, self.stderr = stdout, stderr
        self.returncode: int | None = None
        self._report = report
        self.pid = int(self._line())

    def _line(self) -> str:
        ready, _, _ = select.select([self._report], [], [], LIMIT)
        if not ready:
            self.kill()
            raise subprocess.TimeoutExpired("a forked process", LIMIT)
        return self._report.readline()

    def wait(self) -> int:
        """The exit code; minus the signal's number where one ended it."""
        if self.returncode is None:
            self.returncode = int(self._line())
        return self.returncode

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        if self.returncode is None and not select.select([self._report], [], [], 0)[0]:
            return None
        return self.wait()

    def communicate(self) -> tuple[str, str]:
        """All (more) that it writes to its standard output and standard error, at its end."""
        said = ["", ""]

        def read(number: int, stream: IO[str]) -> None:
            said[number] = stream.read()

        streams = [(number, stream) for number, stream in enumerate((self.stdout, self.stderr)) if stream]
        readers = [threading.Thread(target=read, args=each, daemon=True) for each in streams]
        for reader in readers:
            reader.start()
        self.wait()
        for reader in readers:
            reader.join(LIMIT)
        return said[0], said[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()
        for stream in (self.stdout, self.stderr, self._report):
            if stream:
                stream.close()


def start(
    function: Callable[..., object] | str,
    *arguments: Any,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    terminal: int | None = None,
    server: int = 0,
) -> Child:
    """Runs a function, or "module:function", in a process of its own, at a terminal where one is given.

    Args:
        function: Of a module; `exec` with the text of a program will do.
        arguments: What JSON can carry.
        cwd: Its working folder; this process's if None.
        env: Environment variables besides this process's.
        terminal: A pseudo-terminal's file descriptor, for all its standard streams. Pipes if None.
        server: Which server to fork from. Each has a hash seed of its own, as programs have that are started apart.
    """
    name = function if isinstance(function, str) else f"{function.__module__}:{function.__qualname__}"
    asked = {
        "function": name,
        "arguments": arguments,
        "cwd": str(cwd or Path.cwd()),
        "env": {**os.environ, **(env or {})},
        "terminal": terminal is not None,
    }
    request, report = os.pipe(), os.pipe()
    pipes = [] if terminal is not None else [os.pipe(), os.pipe()]
    nothing = os.open(os.devnull, os.O_RDONLY)
    streams = [nothing, *(write for _, write in pipes)] if terminal is None else [terminal] * 3
    socket.send_fds(_server(server), [b"x"], [*streams, request[0], report[1]])
    for descriptor in (nothing, request[0], report[1], *(write for _, write in pipes)):
        os.close(descriptor)
    with os.fdopen(request[1], "w") as file:
        json.dump(asked, file)
    readers = [os.fdopen(read, errors="replace") for read, _ in pipes] or [None, None]
    return Child(os.fdopen(report[0]), *readers)


def run(
    function: Callable[..., object] | str,
    *arguments: Any,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Starts it and waits for its end."""
    with start(function, *arguments, cwd=cwd, env=env) as child:
        out, err = child.communicate()
        return subprocess.CompletedProcess(list(map(str, arguments)), child.wait(), out, err)


@cache
def _server(number: int) -> socket.socket:
    """A connection to a server that all workers of a test run share. It is started by the first, and ends with the last."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    address = Path(tempfile.gettempdir(), f"gpate-tests-{run}-{number}")
    for _ in range(int(LIMIT / 0.05)):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as listener:  # another one has bound it
            listener.bind(str(address))
            listener.listen()
            _start_server(number, listener)
        ours = socket.socket(socket.AF_UNIX)
        try:
            ours.connect(str(address))
        except (ConnectionRefusedError, FileNotFoundError):  # about to begin, or just ended
            ours.close()
            time.sleep(0.05)
        else:
            return ours
    raise TimeoutError(f"no server listens at {address}")


def _start_server(number: int, listener: socket.socket) -> None:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    subprocess.Popen(
        [sys.executable, "-m", "tests.processes", str(listener.fileno()), str(number)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(number + 1), "OMP_NUM_THREADS": "1"},
        pass_fds=[listener.fileno()],
        start_new_session=True,
    )


def _serve(listener: socket.socket, number: int) -> None:
    gc.disable()
    for name in _LOADED_BY_FITS if number else _LOADED:
        with contextlib.suppress(ImportError):
            import_module(name)
    import_module("gpate.generators.student")._REFRESH = FEW_LATENTS
    import_module("gpate.evaluation.table_classifiers")._TREES = FEW_TREES
    gc.freeze()  # a collection in a fork would touch, and so copy, all of it
    gc.enable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the watchers
    connections = [listener.accept()[0]]
    while connections:
        for ready in select.select([listener, *connections], [], [])[0]:
            if ready is listener:
                connections.append(listener.accept()[0])
            elif descriptors := socket.recv_fds(ready, 1, 5)[1]:
                _fork([listener, *connections], descriptors)
            else:
                connections.remove(ready)
                ready.close()
    os.unlink(listener.getsockname())


def _fork(sockets: list[socket.socket], descriptors: list[int]) -> None:
    if os.fork() == 0:
        for each in sockets:
            each.close()
        _watch(*descriptors)
        os._exit(0)
    for descriptor in descriptors:
        os.close(descriptor)


def _watch(stdin: int, stdout: int, stderr: int, request: int, report: int) -> None:
    """Forks once more, and reports the process's number and its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a test run in the background ignores it, and so would what it starts
    pid = os.fork()
    if pid == 0:
        os.close(report)
        with os.fdopen(request) as file:
            asked = json.load(file)
        _become((stdin, stdout, stderr), cwd=asked["cwd"], env=asked["env"], terminal=asked["terminal"])
        os._exit(_call(asked["function"], asked["arguments"]))
    os.write(report, f"{pid}\n".encode())
    for descriptor in (stdin, stdout, stderr, request):
        os.close(descriptor)
    _, status = os.waitpid(pid, 0)
    os.write(report, f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _become(streams: tuple[int, ...], *, cwd: str, env: dict[str, str], terminal: bool) -> None:
    if terminal:
        os.setsid()
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    for descriptor in set(streams):
        os.close(descriptor)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False, buffering=1 if terminal else -1)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)


def _call(function: str, arguments: list[Any]) -> int:
    """The exit code that a program has. What is registered for the end is done; the interpreter does not take itself apart."""
    module, _, name = function.partition(":")
    code: object = 0
    try:
        getattr(import_module(module), name)(*arguments)
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            sys.stderr.write(f"{code}\n")
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 1


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
