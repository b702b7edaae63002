"""Starts real ranks on this machine: by torchrun, or by its environment variables alone, so that a fault is ours to see."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def torchrun(size: int, *command: str, restarts: int = 0, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
    """`torchrun --nproc-per-node size` of a command, to its end."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    arguments = [sys.executable, *launcher, "--max-restarts", str(restarts), *command]
    return subprocess.run(
        arguments, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
    )


def ranks(size: int, *command: str, **extra: str) -> list[subprocess.Popen[str]]:
    """The same processes without torchrun, which would end the others when one ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = []
    for rank in range(size):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
        own = {**environment(), **{name: str(value) for name, value in place.items()}, **extra}
        started.append(
            subprocess.Popen(
                [sys.executable, *command],
                env={**own, "MASTER_ADDR": "127.0.0.1"},
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return started


def environment() -> dict[str, str]:
    """Of a rank: one thread, this source tree, the loop-back device."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), "GLOO_SOCKET_IFNAME": "lo"}
