"""A PostgreSQL server of its own for tests: the binaries of Debian's package `postgresql`, a new data folder, a free port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

USER, PASSWORD = "clerk", "a word that nobody may see"


def binaries() -> Path | None:
    """Where `initdb` and `postgres` are; None if they are not installed."""
    found = [Path(folder) for folder in sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)]
    if (command := shutil.which("initdb")) is not None:
        found.insert(0, Path(command).resolve().parent)
    return next((folder for folder in found if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


@dataclass
class Server:
    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()


@contextmanager
def server() -> Iterator[Server]:
    """A server that logs every statement, with one user who needs a password, in a temporary folder of its own."""
    with tempfile.TemporaryDirectory(prefix="gpate-postgres-") as folder, _running(Path(folder)) as found:
        yield found


@contextmanager
def _running(folder: Path) -> Iterator[Server]:
    bin = binaries()
    assert bin is not None
    owner = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}  # it refuses to run as root
    if owner:
        shutil.chown(folder, **owner)
    secret = folder / "secret"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    data = folder / "data"
    flags = ["-D", data, "-U", USER, f"--pwfile={secret}", "--auth=scram-sha-256", "--no-sync", "--encoding=UTF8"]
    subprocess.run([bin / "initdb", *flags, "--locale=C.UTF-8"], check=True, capture_output=True, **owner)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = ["log_statement=all", "fsync=off", "unix_socket_directories=", "listen_addresses=127.0.0.1"]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [bin / "postgres", "-D", data, "-p", str(port), *(word for setting in settings for word in ("-c", setting))],
        stdout=log, stderr=log, **owner,
    )  # fmt: skip
    try:
        _wait(process, port)
        yield Server(folder, port, process)
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def received(running: Server) -> Iterator[tuple[int, Callable[[], int]]]:
    """A port that leads to a server, and how many bytes came back through it so far."""
    total, ends = [0], []

    def forward(source: socket.socket, sink: socket.socket, *, back: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                total[0] += len(data) * back
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                upstream = socket.create_connection(("127.0.0.1", running.port))
                ends.extend((client, upstream))
                for source, sink, back in ((client, upstream, False), (upstream, client, True)):
                    Thread(target=forward, args=(source, sink), kwargs={"back": back}, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1], lambda: total[0]
        listening.shutdown(socket.SHUT_RDWR)
    for end in ends:
        with suppress(OSError):  # closed by the other side already
            end.shutdown(socket.SHUT_RDWR)
        end.close()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    import time

    while process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the server ended")
