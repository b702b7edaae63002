"""All errors of gpate. Each message names the invalid value and the fix.

No message contains anything computed from private records: the values quoted are settings, or were already released.
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
    """A value as text for messages, shortened."""
    try:
        return _SHOWN.repr(value)
    except ValueError:  # Python refuses to print an integer of more than 4300 digits
        return f"<{type(value).__name__} too long to show>"


class GpateError(Exception):
    """Base of all errors of gpate; the command prints its message and exits with code 2."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)  # between processes, for any constructor


def _rebuild(kind: type[GpateError], args: tuple[Any, ...], attributes: dict[str, Any]) -> GpateError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class InvalidValue(GpateError, ValueError):
    """A setting has an invalid value."""

    def __init__(self, name: str, value: object, rule: str, fix: str = "") -> None:
        super().__init__(f"{name} must be {rule}. Got {shown(value)}." + (f" {fix}" if fix else ""))
        self.name, self.value, self.rule = name, value, rule


class NotComputable(GpateError, ValueError):
    """An accountant cannot express the guarantee of an event."""


class SensitiveAccess(GpateError, TypeError):
    """An attempt to print, compare, copy or store a value that has not passed the gate."""


class BudgetExceeded(GpateError):
    """A query would spend more than the budget allows. Nothing was recorded and nothing was drawn.

    Attributes:
        asked: the events that were refused.
        left: epsilon that is not spent yet.
    """

    def __init__(self, asked: tuple[Any, ...], left: float, detail: str) -> None:
        names = " + ".join(str(event) for event in asked)
        super().__init__(
            f"The budget does not allow {names}: epsilon left is {left:.6g}. {detail} "
            "Fix: stop and release the current generator, ask for less (fewer queries, larger sigma), "
            "or start a new run with a larger budget."
        )
        self.asked, self.left = asked, left


class VoucherSpent(GpateError, RuntimeError):
    """A charged noise draw was used twice, or for another number of values than was charged."""


class LedgerError(GpateError):
    """Base of ledger errors."""


class LedgerCorrupt(LedgerError):
    """A line was edited, removed, moved or added by something other than the gate."""


class LedgerVersion(LedgerError):
    """The ledger was written by a newer version of gpate."""


class LedgerBusy(LedgerError):
    """Another process holds the ledger open for writing."""


class LedgerSealed(LedgerError):
    """The ledger is sealed: nothing more can be charged to it."""


class LedgerWriteFailed(LedgerError):
    """A line could not be written to disk, so its value was not released."""


class LedgerMismatch(LedgerError):
    """A run was resumed with another budget, noise or version than it was started with."""


def _too_large(value: float) -> bool:
    """Whether an integer exceeds the range of floats."""
    return isinstance(value, int) and value > sys.float_info.max


def require_positive(name: str, value: float, fix: str = "") -> float:
    """Return `value` as a float if it is finite and > 0."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= sys.float_info.max:
        raise InvalidValue(name, value, "a finite number > 0", fix)
    return float(value)


def require_not_negative(name: str, value: float, fix: str = "") -> float:
    """Return `value` as a float if it is finite and >= 0."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= sys.float_info.max:
        raise InvalidValue(name, value, "a finite number >= 0", fix)
    return float(value)


def require_count(name: str, value: int, minimum: int = 0, fix: str = "") -> int:
    """Return `value` if it is an integer >= `minimum`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise InvalidValue(name, value, f"a whole number >= {minimum}", fix)
    return value


def require_probability(name: str, value: float, fix: str = "") -> float:
    """Return `value` as a float if it lies strictly between 0 and 1."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0.0 < value < 1.0:
        raise InvalidValue(name, value, "strictly between 0 and 1", fix)
    return float(value)


def require_fraction(name: str, value: float, fix: str = "") -> float:
    """Return `value` as a float if it is at least 0 and below 1, such as the decay of a running mean."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0.0 <= value < 1.0:
        raise InvalidValue(name, value, "a number at least 0 and below 1", fix)
    return float(value)


def require_epsilon(value: float) -> float:
    """Return `value` as a float if it is > 0; infinity is allowed and means no privacy."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= math.inf or _too_large(value):
        raise InvalidValue("epsilon", value, "> 0", "Small budgets such as 0.2 are allowed; 0 is not.")
    return float(value)


class SchemaError(GpateError, ValueError):
    """A schema is invalid or unfinished, or data do not fit it.

    The message names columns, which are public, and never a value, a row or a number of rows, which are private.
    """


class DataError(GpateError):
    """Base of errors in sources of records: a file that is not there, another format, a missing column, another shape.

    What a record holds is never an error of a fit. Messages name the source (a setting) and the fix. They never contain a value
    of a record, a row number, the name of a record's file, or a count.
    """


class DataNotFound(DataError, FileNotFoundError):
    """A data set, or a part of it, was not found."""


class DataUnreadable(DataError, ValueError):
    """A file exists but is not of its format, or an array not of the declared kind."""


class DataEmpty(DataError, ValueError):
    """A file has no bytes; or there is no record where an evaluation needs one."""


class DriverMissing(DataError, ImportError):
    """The package by which an engine is read is not installed."""

    def __init__(self, engine: str, extra: str) -> None:
        super().__init__(f"{engine} needs a package that is not installed. Fix: pip install 'gpate[{extra}]'")


class SourceUnavailable(DataError, ConnectionError):
    """A database refuses the connection, or lost it."""


class ColumnMissing(DataError, ValueError):
    """A column named by the schema or a setting is not in the source."""


class ColumnUndeclared(DataError, ValueError):
    """The source has a column that the schema does not declare."""


class ImageSizesDiffer(DataError, ValueError):
    """An array of images differs from the declared size."""


class DataTooLarge(DataError, ValueError):
    """A source would unpack to more than the limits allow: a decompression bomb, or a limit set too low."""


class ChecksumMismatch(DataError):
    """A downloaded or cached file does not have the expected checksum."""


class ReleaseError(GpateError):
    """Base of errors in releases and in sampling."""


class ReleaseRefused(ReleaseError, ValueError):
    """Content does not belong in a release, or a required stamp is missing."""


class ReleaseNotFound(ReleaseError, FileNotFoundError):
    """There is no release at this path, or its run is not finished."""


class ReleaseCorrupt(ReleaseError, ValueError):
    """A release differs from its certificate, or is not in gpate's format."""


class ReleaseVersion(ReleaseError):
    """The release was written by a newer version of gpate."""


class ReleaseWriteFailed(ReleaseError):
    """A file of a release could not be written; there is no certificate, so there is no release."""


class SignatureFailed(ReleaseError):
    """A release could not be signed."""


class UnknownClass(ReleaseError, ValueError):
    """A requested class is not in the schema."""


class ConditionTooRare(ReleaseError):
    """Too few synthetic records meet the conditions."""


class OutputExists(ReleaseError, FileExistsError):
    """The output path exists."""


class OutputFailed(ReleaseError):
    """Synthetic records could not be written (a full disk, for example); the partial output is removed."""


class PluginError(GpateError):
    """An installed plug-in cannot be imported, or is not what its group asks for: see `gpate.plugins`."""

    def __init__(self, group: str, name: str, problem: str, fix: str = "repair or uninstall the package") -> None:
        super().__init__(f"The plug-in {name!r} of the group {group} {problem}. Fix: {fix}.")


class RankError(GpateError):
    """Base of errors between the ranks of a run."""


class RankLost(RankError):
    """Another rank ended, or its connection closed."""

    def __init__(self, what: str, *, rank: int, size: int) -> None:
        super().__init__(
            f"Rank {rank} of {size} could not {what}: another rank ended. "
            "Fix: see that rank's error, then `gpate fit --resume` under torchrun with the same number of ranks."
        )


class RankSlow(RankError):
    """Another rank did not answer in time."""

    def __init__(self, what: str, *, rank: int, size: int, seconds: float) -> None:
        super().__init__(
            f"Rank {rank} of {size} could not {what}: another rank did not answer within {seconds:g} seconds. "
            "Fix: set GPATE_RANK_SECONDS higher if it is slow, reduce its load, or restart it if it hangs; "
            "then `gpate fit --resume` under torchrun with the same number of ranks."
        )


class OtherRankStopped(RankError):
    """Another rank stopped with an error, which is quoted."""

    def __init__(self, rank: int, quoted: str) -> None:
        super().__init__(f"Rank {rank} stopped. {quoted}")


class RanksDisagree(RankError):
    """Ranks differ in settings, data or versions. The difference is named, not quoted."""

    def __init__(self, name: str, others: list[int], fix: str) -> None:
        numbers = ", ".join(map(str, others))
        super().__init__(f"Ranks differ in their {name}: {numbers} from rank 0. Fix: {fix}.")


class BudgetBookError(GpateError):
    """Base of errors of a budget book."""


class BudgetBookCorrupt(BudgetBookError):
    """A budget book was edited, or is not one."""


class BudgetBookExceeded(BudgetBookError):
    """A run does not fit into what is left of a data set's budget. Nothing was reserved and nothing was spent.

    Attributes:
        left: the largest epsilon that would fit, at the delta that was asked for.
    """

    def __init__(self, message: str, left: float) -> None:
        super().__init__(message)
        self.left = left


class BudgetBookMismatch(BudgetBookError):
    """A run, a ledger or a privacy unit does not belong to this budget book."""


class BudgetBookWriteFailed(BudgetBookError):
    """An entry could not be written to disk."""
