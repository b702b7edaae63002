"""Two types that never mix: what has not passed the gate, and what has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar

from gpate.accounting import Receipt
from gpate.errors import InvalidValue, SensitiveAccess

T = TypeVar("T")
U = TypeVar("U")


def _refused(what: str) -> Callable[..., NoReturn]:
    def refuse(self: object, *_: object, **__: object) -> NoReturn:
        raise SensitiveAccess(
            f"A {type(self).__name__} value cannot be {what}: it has not passed the gate. Fix: give it to a mechanism of gpate.boundary."
        )

    return refuse


class Sensitive(Generic[T]):
    """A value computed from private records without noise.

    It has no length, no shape and no text form; it cannot be compared, iterated, converted, copied or pickled. Only
    mechanisms in this folder open it (`opened`), which a test over the source tree enforces.
    """

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<withheld>)"

    __str__ = __repr__
    __format__ = _refused("formatted")
    __bool__ = _refused("used as a condition")
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refused("compared")
    __hash__ = _refused("hashed")
    __len__ = __iter__ = __getitem__ = __contains__ = _refused("looked into")
    __int__ = __float__ = __index__ = __complex__ = __array__ = _refused("converted to a number")
    __copy__ = __deepcopy__ = _refused("copied")
    __reduce__ = __reduce_ex__ = __getstate__ = _refused("stored")


def opened(sensitive: Sensitive[T]) -> T:
    """The value inside. For mechanisms of this folder only."""
    if not isinstance(sensitive, Sensitive):
        raise InvalidValue(
            "input", type(sensitive).__name__, "Sensitive", "Wrap what comes from private records in Sensitive(...)."
        )
    return sensitive._value


@dataclass(frozen=True)
class Released(Generic[T]):
    """A value that passed the gate: noised, paid for, free to use in any way and for ever (post-processing).

    Attributes:
        value: the noised value.
        receipts: the ledger lines that paid for it; at least one.
    """

    value: T
    receipts: tuple[Receipt, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        if not self.receipts or not all(isinstance(receipt, Receipt) for receipt in self.receipts):
            raise InvalidValue("receipts", self.receipts, "the ledger lines that paid for this value")
        if isinstance(self.value, Sensitive):
            raise SensitiveAccess(
                "A Sensitive value cannot be released as it is. Fix: noise it with a mechanism first."
            )

    def map(self, function: Callable[[T], U]) -> Released[U]:
        """Post-processing: the same receipts pay for anything computed from the value alone."""
        return Released(function(self.value), receipts=self.receipts)

    def with_(self, other: Released[Any], function: Callable[[T, Any], U]) -> Released[U]:
        """Post-processing of two released values."""
        return Released(function(self.value, other.value), receipts=(*self.receipts, *other.receipts))
