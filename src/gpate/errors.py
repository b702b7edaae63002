"""Every error a user can meet. Each message names the value that was wrong and the mend.

No message ever holds a number computed from a private record: the values quoted are the user's own settings, or what
has already been released.
"""

from __future__ import annotations

import math
import reprlib
import sys
from typing import Any

_SHOWN = reprlib.Repr()
_SHOWN.maxlevel = 4
_SHOWN.maxlist = _SHOWN.maxtuple = _SHOWN.maxdict = _SHOWN.maxset = 30
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 300


def shown(value: object) -> str:
    """A value as messages show it: cut short, for it may be a megabyte, or one that a few aliases make of a line."""
    try:
        return _SHOWN.repr(value)
    except ValueError:  # Python refuses to write out a whole number of more than 4300 digits
        return f"<{type(value).__name__} too long to show>"


class GpateError(Exception):
    """Base of all errors raised on purpose; the command prints its message and exits with code 2."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _as_raised, (
            type(self),
            self.args,
            self.__dict__,
        )  # from another process, too, whatever its arguments were


def _as_raised(kind: type[GpateError], args: tuple[Any, ...], attributes: dict[str, Any]) -> GpateError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class InvalidValue(GpateError, ValueError):
    """A setting is outside what it may be."""

    def __init__(self, name: str, value: object, rule: str, mend: str = "") -> None:
        super().__init__(f"{name} must be {rule}. Got {shown(value)}." + (f" {mend}" if mend else ""))
        self.name, self.value, self.rule = name, value, rule


class NotComputable(GpateError, ValueError):
    """An accountant was asked about an event whose guarantee it cannot express."""


class NonFiniteInput(GpateError, ValueError):
    """Sensitive input holds NaN or infinity. The message says neither where nor how many: that would be un-noised."""


class SensitiveAccess(GpateError, TypeError):
    """Something tried to print, compare, copy out or store a value that has not passed the gate."""


class BudgetExceeded(GpateError):
    """A query would spend more than the budget allows. Nothing was recorded and nothing was drawn.

    Attributes:
        asked: the events that were refused.
        left: how much of the budget's epsilon is not spent yet.
    """

    def __init__(self, asked: tuple[Any, ...], left: float, detail: str) -> None:
        names = " + ".join(str(event) for event in asked)
        super().__init__(
            f"The budget does not allow {names}: epsilon left is {left:.6g}. {detail} "
            "Fix: stop here and release what there is, ask for less (fewer queries, larger sigma), "
            "or start a new run with a larger budget."
        )
        self.asked, self.left = asked, left


class VoucherSpent(GpateError, RuntimeError):
    """A paid-for draw was used twice, or for another number of values than was paid for."""


class LedgerError(GpateError):
    """Base of what can be wrong with a ledger."""


class LedgerCorrupt(LedgerError):
    """A line was edited, cut out, moved or added by something other than the gate."""


class LedgerVersion(LedgerError):
    """The ledger was written by a newer version of gpate."""


class LedgerBusy(LedgerError):
    """Another process holds the ledger open for writing."""


class LedgerSealed(LedgerError):
    """The ledger was closed for good; nothing more can be spent on it."""


class LedgerWriteFailed(LedgerError):
    """A line could not be brought to disk, so what it should have paid for was not released."""


class LedgerMismatch(LedgerError):
    """A run was resumed with another budget, other noise or another version than it was begun with."""


def _too_large(value: float) -> bool:
    """Whether it is a whole number beyond all floats."""
    return isinstance(value, int) and value > sys.float_info.max


def require_positive(name: str, value: float, mend: str = "") -> float:
    """Returns `value` as a float if it is finite and > 0."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= sys.float_info.max:
        raise InvalidValue(name, value, "a finite number > 0", mend)
    return float(value)


def require_count(name: str, value: int, minimum: int = 0, mend: str = "") -> int:
    """Returns `value` if it is a whole number >= `minimum`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise InvalidValue(name, value, f"a whole number >= {minimum}", mend)
    return value


def require_probability(name: str, value: float, mend: str = "") -> float:
    """Returns `value` as a float if it lies strictly between 0 and 1."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0.0 < value < 1.0:
        raise InvalidValue(name, value, "strictly between 0 and 1", mend)
    return float(value)


def require_epsilon(value: float) -> float:
    """Returns `value` as a float if it is > 0; infinity is allowed and means no privacy."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= math.inf or _too_large(value):
        raise InvalidValue("epsilon", value, "> 0", "Small budgets such as 0.2 are fine; none at all is not.")
    return float(value)


class SchemaError(GpateError, ValueError):
    """A schema file is wrong or unfinished, or data do not fit it.

    The message names columns, which are public, and never a value, a row or a number of rows, which are not.
    """


class DataError(GpateError):
    """Base of what can be wrong with records that were brought in.

    Its messages name the source (the user's own setting) and the mend. They never hold a value of a record, a row
    number, the name of a record's file, or a count: whoever sees a log sees no more than that something was wrong.
    """


class DataNotFound(DataError, FileNotFoundError):
    """A data set, or a part of it, is not where it was looked for."""


class DataUnreadable(DataError, ValueError):
    """A file is there but is not what it should be: another encoding, a broken image, text where numbers belong."""


class DataEmpty(DataError, ValueError):
    """A source holds no record at all."""


class ColumnMissing(DataError, ValueError):
    """A column that the schema or a setting names is not in the source."""


class ColumnUndeclared(DataError, ValueError):
    """The source has a column that the schema does not declare."""


class OneClassOnly(DataError, ValueError):
    """All records have the same label, so there is nothing to tell apart."""


class ImageSizesDiffer(DataError, ValueError):
    """Images are not all of one size, or not of the declared one."""


class DataTooLarge(DataError, ValueError):
    """A source would unpack to more than the limits allow: a decompression bomb, or a limit set too low."""


class ChecksumMismatch(DataError):
    """What was fetched, or kept in the cache, is not what this version of gpate knows."""


class ReleaseError(GpateError):
    """Base of what can be wrong with a release and with sampling from one."""


class ReleaseRefused(ReleaseError, ValueError):
    """Something was to be put into a release that does not belong there, or its stamp was left out."""


class ReleaseNotFound(ReleaseError, FileNotFoundError):
    """There is no release at this path, or its run is not finished."""


class ReleaseCorrupt(ReleaseError, ValueError):
    """A release is not what its certificate says, or not something that gpate writes."""


class ReleaseVersion(ReleaseError):
    """The release was written by a newer version of gpate."""


class ReleaseWriteFailed(ReleaseError):
    """A file of a release could not be brought to disk; there is no certificate, so there is no release."""


class UnknownClass(ReleaseError, ValueError):
    """A class was asked for that the schema does not have."""


class ConditionTooRare(ReleaseError):
    """Too few synthetic records meet the conditions to go on looking for them."""


class OutputExists(ReleaseError, FileExistsError):
    """A file or folder is in the way of the output."""


class OutputFailed(ReleaseError):
    """Synthetic records could not be written, for want of room or for another reason; what was begun is removed."""


class PluginError(GpateError):
    """An installed plug-in cannot be imported, or is not what its group asks for: see `gpate.plugins`."""

    def __init__(self, group: str, name: str, problem: str, mend: str = "repair or uninstall the package") -> None:
        super().__init__(f"The plug-in {name!r} of the group {group} {problem}. Fix: {mend}.")


class RankError(GpateError):
    """Base of what can go wrong between the ranks of one run."""


class RankLost(RankError):
    """Another rank ended, or its connection did."""

    def __init__(self, what: str, *, rank: int, size: int) -> None:
        super().__init__(
            f"Rank {rank} of {size} could not {what}: another rank ended. "
            "Fix: see that rank's own message, then `gpate fit --resume` under torchrun with as many ranks."
        )


class RankSlow(RankError):
    """Another rank did not answer in time."""

    def __init__(self, what: str, *, rank: int, size: int, seconds: float) -> None:
        super().__init__(
            f"Rank {rank} of {size} could not {what}: another rank did not answer within {seconds:g} seconds. "
            "Fix: set GPATE_RANK_SECONDS higher if it is slow, give it less to do beside, or start it anew if it hangs; "
            "then `gpate fit --resume` under torchrun with as many ranks."
        )


class OtherRankStopped(RankError):
    """Another rank stopped with an error of its own, which is quoted."""

    def __init__(self, rank: int, quoted: str) -> None:
        super().__init__(f"Rank {rank} stopped. {quoted}")


class RanksDisagree(RankError):
    """Ranks that must have the same settings, data or versions have not. What differs is named and not quoted."""

    def __init__(self, name: str, others: list[int], mend: str) -> None:
        numbers = ", ".join(map(str, others))
        super().__init__(f"Ranks differ in their {name}: {numbers} not as rank 0. Fix: {mend}.")
