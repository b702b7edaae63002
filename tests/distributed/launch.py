"""Starts real ranks on this machine: by torchrun, or by its environment variables alone, so that a fault is ours to see."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from tests.distributed import rank
from tests.processes import LIMIT, ROOT, Child, start

_LOOPBACK = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def torchrun(size: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`torchrun --nproc-per-node size` of `tests.distributed.rank`, to its end."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size), "--max-restarts", "0"]
    command = [sys.executable, *launcher, "-m", "tests.distributed.rank", *arguments]
    environment = {**os.environ, **_LOOPBACK, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False
    )


def ranks(size: int, *arguments: str, **environment: str) -> list[Child]:
    """The same processes without torchrun, which would end the others when one ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    world = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = []
    for number in range(size):
        place = {name: str(value) for name, value in {**world, "RANK": number, "LOCAL_RANK": number}.items()}
        started.append(start(rank.main, *arguments, env={**_LOOPBACK, **place, **environment}, server=number))
    return started
