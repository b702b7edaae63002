"""Named streams of randomness for everything but noise: nothing uses global state, and nothing depends on the order
of use.

A stream is a `torch.Generator` seeded by a hash of the run's seed, the stream's name and any numbers that tell it
from its sisters (an iteration, a block of teachers). A resumed run and a sharded one thus draw what an uninterrupted
one would have drawn. Noise is never drawn from here: it comes from `gpate.boundary.noise`.

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
        seed: to repeat a run; drawn from the operating system by default.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = secrets.randbits(63) if seed is None else require_count("seed", seed)

    def integer(self, name: str, *ids: int) -> int:
        """A 63-bit seed for the stream of that name."""
        text = ":".join(map(str, (self.seed, name, *ids)))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1

    def torch(self, name: str, *ids: int, device: torch.device | str = "cpu") -> torch.Generator:
        """A fresh generator at the start of that stream."""
        return torch.Generator(device=device).manual_seed(self.integer(name, *ids))
