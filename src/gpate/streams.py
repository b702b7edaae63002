"""Named random streams for everything but noise, independent of global state and of the order of use.

A stream is a `torch.Generator` seeded by a hash of the run's seed, the stream's name and optional numbers (an iteration,
a block of teachers). A resumed or sharded run thus draws the same numbers as an uninterrupted one. Privacy noise comes
from `gpate.boundary.noise` instead.

    >>> a, b = (Streams(7).torch("batch", 3).initial_seed() for _ in range(2))
    >>> a == b, a == Streams(7).torch("latent", 3).initial_seed()
    (True, False)
"""

from __future__ import annotations

import hashlib
import secrets

import torch

from gpate.errors import require_count


class Streams:
    """All streams of one run.

    Args:
        seed: of the run; drawn from the operating system by default.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = secrets.randbits(63) if seed is None else require_count("seed", seed)

    def integer(self, name: str, *ids: int) -> int:
        """The 63-bit seed of a stream."""
        text = ":".join(map(str, (self.seed, name, *ids)))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1

    def torch(self, name: str, *ids: int, device: torch.device | str = "cpu") -> torch.Generator:
        """A new generator at the start of a stream."""
        return torch.Generator(device=device).manual_seed(self.integer(name, *ids))
