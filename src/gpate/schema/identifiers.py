"""Columns of ids: never modelled and never read, placeholders of a public format in every sample.

Visit numbers, names, addresses and other free text identify people and say nothing that a model could learn. A column of
`type: id` may be among the data, whose readers pass over it. In synthetic records it has the number of the record in the sample,
from 1 on, in the declared `format`: `P-{number:06d}`, or `uuid` for texts like those of RFC 9562. Values are unique in a
sample of any length, whatever the size of its chunks.

    >>> Id(name="visit", format="P-{number:04d}").placeholders(0, 2, seed=1)
    ['P-0001', 'P-0002']
    >>> Id(name="visit", format="uuid").placeholders(0, 1, seed=1)
    ['7b6d152b-9185-4473-b4dd-b1c5ff249969']
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from gpate.errors import InvalidValue
from gpate.schema.columns import Column, is_text

UUID_FORMAT = "uuid"
_FORMAT = re.compile(r"(?P<before>[^{}]*)\{number(?::0?(?P<width>[1-9][0-9]?)d)?\}(?P<after>[^{}]*)")
_MOST = 200


@dataclass(frozen=True, kw_only=True)
class Id(Column):
    """An id, of which samples have placeholders.

    Attributes:
        format: a text with `{number}` or `{number:06d}` in it, which is the number of the record, here with at least 6 digits; or `uuid`.
    """

    type: ClassVar[str] = "id"
    format: str = "{number}"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.missing or self.invalid is not None:
            raise InvalidValue(
                f"column {self.name!r} of type id",
                self.to_dict(),
                "without missing and invalid",
                "Its values are never read.",
            )
        fits = is_text(self.format) and len(self.format) <= _MOST and self.format.isprintable()
        if not fits or (self.format != UUID_FORMAT and not _FORMAT.fullmatch(self.format)):
            raise InvalidValue(
                f"format of column {self.name!r}",
                self.format,
                "uuid, or a text with {number} or {number:06d} in it once, and no other braces",
                'Such as "P-{number:06d}".',
            )

    def placeholders(self, start: int, stop: int, *, seed: int) -> list[str]:
        """The ids of the records start, start + 1, ... of a sample; `seed` decides those of the format `uuid`."""
        if self.format == UUID_FORMAT:
            return [self._uuid(number, seed) for number in range(start, stop)]
        found = _FORMAT.fullmatch(self.format)
        assert found is not None
        before, width, after = found["before"], int(found["width"] or 1), found["after"]
        return [f"{before}{number + 1:0{width}d}{after}" for number in range(start, stop)]

    def _uuid(self, number: int, seed: int) -> str:
        """Ten bytes that look random, and six in which the number is hidden by a mask: two records never have the same."""
        mask = hashlib.blake2b(f"{seed}:{self.name}".encode(), digest_size=6).digest()
        drawn = hashlib.blake2b(f"{seed}:{self.name}:{number}".encode(), digest_size=10).digest()
        last = (int.from_bytes(mask) ^ number % 2**48).to_bytes(6)
        return str(UUID(bytes=drawn + last, version=4))
