"""What a column of a record may still be, while constraints are solved: `gpate.schema.feasibility`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpate.schema.columns import Boolean, Bounded, Categorical, Column

_MOST_STEPS = 2**50


class Contradiction(Exception):
    """A domain is empty."""


@dataclass(frozen=True, kw_only=True)
class Domain:
    """What a column may still be.

    Attributes:
        lower: least number.
        upper: largest number.
        step: distance of the numbers, which are whole multiples of it; 0 for any number.
        listed: all of them, if they are listed: categories, and integers of combinations.
        present: whether it may have a value.
        absent: whether it may be missing.
    """

    lower: float
    upper: float
    step: float = 0.0
    listed: tuple[float, ...] | None = None
    present: bool = True
    absent: bool = False

    @classmethod
    def of(cls, column: Column) -> Domain:
        """All that is declared."""
        if isinstance(column, Categorical | Boolean):
            count = len(column.categories) if isinstance(column, Categorical) else 2
            return cls(
                lower=0.0, upper=count - 1.0, step=1.0, listed=tuple(map(float, range(count))), absent=column.missing
            )
        assert isinstance(column, Bounded)
        lower, upper = column.span
        step = column.step
        whole = cls(lower=lower, upper=upper, step=step, absent=column.missing)
        first, last = whole.up(lower), whole.down(upper)
        if (
            first > last or max(abs(lower), abs(upper)) > _MOST_STEPS * step > 0
        ):  # no such number, or finer than floats are
            return replace(whole, step=0.0)
        return replace(whole, lower=first, upper=last)

    @property
    def decided(self) -> bool:
        """Whether one value is left, or a missing one."""
        return not self.present or (not self.absent and self.lower == self.upper)

    def up(self, number: float, *, strict: bool = False) -> float:
        """The least number of the grid that is not below (strictly: above) this one."""
        if not self.step:
            return math.nextafter(number, math.inf) if strict else number
        found = self._multiple(math.ceil(number / self.step - 1e-6))
        return found if found > number or not strict else self._multiple(math.ceil(number / self.step - 1e-6) + 1)

    def down(self, number: float, *, strict: bool = False) -> float:
        """The largest number of the grid that is not above (strictly: below) this one."""
        if not self.step:
            return math.nextafter(number, -math.inf) if strict else number
        found = self._multiple(math.floor(number / self.step + 1e-6))
        return found if found < number or not strict else self._multiple(math.floor(number / self.step + 1e-6) - 1)

    def _multiple(self, count: int) -> float:
        return count * self.step if self.step >= 1 else round(count * self.step, round(-math.log10(self.step)))

    def between(self, lower: float, upper: float) -> Domain:
        """Without the numbers outside of an interval."""
        lower, upper = max(lower, self.lower), min(upper, self.upper)
        if lower == self.lower and upper == self.upper:
            return self
        if self.listed is not None:
            return self.among([number for number in self.listed if lower <= number <= upper])
        lower, upper = self.up(lower), self.down(upper)
        return replace(self, lower=lower, upper=upper) if lower <= upper else self.missing_only()

    def among(self, numbers: Sequence[float]) -> Domain:
        """Without the numbers that are not listed here."""
        if self.listed is not None and self.present:
            kept = sorted(set(numbers).intersection(self.listed))
        else:
            kept = sorted(number for number in set(numbers) if self.has(number))
        if self.listed is not None and len(kept) == len(self.listed):
            return self
        if not kept:
            return self.missing_only()
        return replace(self, lower=kept[0], upper=kept[-1], listed=tuple(kept))

    def without(self, number: float) -> Domain:
        """Without one number."""
        if not self.has(number):
            return self
        if self.listed is not None:
            return self.among([each for each in self.listed if each != number])
        if number == self.lower:
            return self.between(self.up(number, strict=True), self.upper)
        return self.between(self.lower, self.down(number, strict=True)) if number == self.upper else self

    def has(self, number: float) -> bool:
        """Whether it may be this number."""
        if not self.present or not self.lower <= number <= self.upper:
            return False
        return number in self.listed if self.listed is not None else self.up(number) == number

    def missing_only(self) -> Domain:
        """Without a value."""
        if not self.absent:
            raise Contradiction
        return replace(self, present=False) if self.present else self

    def present_only(self) -> Domain:
        """Not missing."""
        if not self.present:
            raise Contradiction
        return replace(self, absent=False) if self.absent else self

    def nearest(self, number: float) -> float:
        """The number of the domain that is nearest to this one; of a list that does not have it, the first."""
        if self.listed is not None:
            return number if number in self.listed else self.listed[0]
        inside = min(max(number, self.lower), self.upper)
        below = max(self.down(inside), self.lower)
        above = min(self.up(inside), self.upper)
        return below if abs(inside - below) <= abs(above - inside) else above
