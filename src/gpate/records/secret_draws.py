"""Secret draws: which records, or which part of them, a release reads.

Amplification by sampling holds against anyone who cannot guess the sample. So these draws come from the run's secret key (32 bytes
from the operating system, kept in private/) by SHAKE-256, and not from the run's seed, which a user may choose and tell.
They depend on the key and the number of the draw alone. That number counts payments in the ledger: a sample that was paid for is
never drawn again, and one that was not is still unused.

    >>> draws = SecretDraws(bytes(32), "sample")
    >>> len(draws.poisson(0, 1000, probability=0.5)) == len(draws.poisson(0, 1000, probability=0.5))
    True
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import torch
from torch import Tensor

from gpate.errors import InvalidValue, require_count

_WORD = 1 << 64


class SecretDraws:
    """Draws from a secret key.

    Args:
        key: at least 16 bytes.
        name: tells these draws from others of the same key.
    """

    def __init__(self, key: bytes, name: str) -> None:
        if len(key) < 16:
            raise InvalidValue("key", "not shown", "at least 16 bytes")
        self._prefix = len(key).to_bytes(8) + key + name.encode() + b"\0"

    def __repr__(self) -> str:
        return "SecretDraws(<withheld>)"

    def poisson(self, number: int, records: int, *, probability: float) -> Tensor:
        """A sample that each record is in with the given probability, by itself: places in order, int64.

        Args:
            number: of the draw; each is used for one release.
            records: how many there are.
            probability: rounded down to a multiple of 2^-64.
        """
        if not 0.0 < probability <= 1.0:
            raise InvalidValue("probability", probability, "above 0 and at most 1")
        if probability == 1.0:
            return torch.arange(records)
        first, rest = divmod(math.floor(probability * _WORD), 1 << 48)
        words = np.frombuffer(self._bytes(number, 2 * records), dtype="<u2")  # 16 of 64 bits decide, but for a tie
        chosen = words < first
        ties = np.flatnonzero(words == first)
        chosen[ties] = np.frombuffer(self._bytes(number, 8 * len(ties), b"ties"), dtype="<u8") >> 16 < rest
        return torch.from_numpy(np.flatnonzero(chosen))

    def choices(self, number: int, parties: int, count: int) -> Tensor:
        """So many times one of the parties, each draw by itself, all equally likely: int64."""
        require_count("parties", parties, 1)
        last = _WORD - _WORD % parties - 1  # words beyond the last whole round would favour the first parties
        words = self._words(number, count + 64)
        fair = words[words <= np.uint64(last)][:count]
        if len(fair) < count:
            raise AssertionError("more than 64 words beyond the last whole round")
        return torch.from_numpy((fair % np.uint64(parties)).astype(np.int64))

    def _words(self, number: int, count: int) -> np.ndarray:
        return np.frombuffer(self._bytes(number, 8 * count), dtype="<u8")

    def _bytes(self, number: int, count: int, of: bytes = b"") -> bytes:
        return hashlib.shake_256(self._prefix + require_count("number", number).to_bytes(8) + of).digest(count)
