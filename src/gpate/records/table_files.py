"""Tables from files: .csv and .parquet to data frames, with the types that the schema declares.

A CSV file has no types. With a schema they are the declared ones: text for categories that are texts (so that `007` stays
`007` and the category `None` stays a category), numbers for numbers. Without one the type of a column is guessed, by
looking at all rows; `gpate.records.content_hash` makes sure that the guess does not reach the partition.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
from numpy.typing import NDArray

from gpate.errors import ColumnMissing, ColumnUndeclared, DataEmpty, DataError, DataUnreadable
from gpate.safe_parsing import Limits, attempt

T = TypeVar("T")

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
"""How a missing number may be written in a .csv file; a missing text is an empty cell."""
_EXACT: dict[str, Any] = {}
"""A number must become the same bits whether pandas reads it or Python: both round correctly, pandas since 3.1."""
if tuple(int(part) for part in pd.__version__.split(".")[:2]) < (3, 1):
    _EXACT["float_precision"] = "round_trip"
_TRUTH = {"true": 1.0, "false": 0.0}


class TableFacts(Protocol):
    """What is asked of a table's schema: `gpate.schema.TableSchema` has it."""

    @property
    def columns(self) -> Sequence[Any]: ...  # noqa: D102
    @property
    def target(self) -> str | None: ...  # noqa: D102
    @property
    def row_id(self) -> str | None: ...  # noqa: D102


def read_csv(path: Path, facts: TableFacts | None, *, limits: Limits, text: bool = False) -> pd.DataFrame:
    """A UTF-8 file with commas and one line of names.

    Args:
        path: the file.
        facts: the schema; it must name every column.
        limits: of the file and of its lines.
        text: without a schema, read every column as text.
    """
    limits.check_text(path)
    if facts is None:
        return _csv(path, dtype=str) if text else _guessed(path)
    types, options = _declared(path, facts)
    try:
        return _csv(path, dtype=types, **_EXACT, **options)
    except _NotNumbers:
        pass  # text where numbers belong: `typed` finds out in which column
    return _csv(path, dtype=dict.fromkeys(types, str), **options)


def read_csv_pieces(path: Path, facts: TableFacts, rows: int) -> Iterator[pd.DataFrame]:
    """The same, so many rows at a time; no more than that is in memory."""
    types, options = _declared(path, facts)
    done = 0
    try:
        for frame in _csv_pieces(path, chunksize=rows, dtype=types, **_EXACT, **options):
            yield frame
            done += 1
        return
    except _NotNumbers:
        pass
    yield from islice(_csv_pieces(path, chunksize=rows, dtype=dict.fromkeys(types, str), **options), done, None)


def _declared(path: Path, facts: TableFacts) -> tuple[dict[str, Any], dict[str, Any]]:
    """How to read each column, and how its missing values are written."""
    names = list(_csv(path, nrows=0, dtype=str).columns)
    check_columns(facts, names, str(path), quote=False)  # where the first line does not end, these may be values
    texts = _text_columns(facts)
    absent = {name: [""] if name in texts else list(MISSING) for name in wanted_columns(facts)}
    # All columns are read, and left out later: told to leave some out, pandas overlooks lines that are too long.
    types = {name: float if name in absent and name not in texts else str for name in names}
    return types, {"keep_default_na": False, "na_values": absent}


def _guessed(path: Path) -> pd.DataFrame:
    """Columns in which pandas sees nothing but numbers, or nothing but truth values, as such; all others as text.

    Mixed columns are read a second time, because what pandas makes of one value in them depends on the others: in
    1, NA, 123456789012345678901 and 1.0 the NA is a text, and with a second 1.0 it is a missing value.
    """
    frame = _csv(path, low_memory=False, **_EXACT)
    plain = {name: kind for name, kind in frame.dtypes.items() if getattr(kind, "kind", "O") in "iufb"}
    if len(plain) == frame.shape[1]:
        return frame
    return _csv(path, dtype={name: plain.get(name, str) for name in frame.columns}, **_EXACT)


def read_parquet(path: Path, facts: TableFacts | None, limits: Limits) -> pd.DataFrame:
    """A parquet file, with the columns that the schema names. What pandas noted in it about types is not read."""
    if path.stat().st_size == 0:
        raise DataEmpty(f"{path} is empty. Fix: check that it is the right file.")
    frame, file = None, limits.open_parquet(path)
    names = None if file is None else attempt(lambda: list(file.schema_arrow.names))
    if names == []:
        raise DataEmpty(f"{path} is empty. Fix: check that it is the right file.")
    if names is not None:
        check_columns(facts, names, str(path))
        wanted = None if facts is None else wanted_columns(facts)
        frame = attempt(lambda: valid(file.read(columns=wanted)).to_pandas(ignore_metadata=True))
    if frame is None:
        raise DataUnreadable(f"{path} is not a parquet file, or is cut short. Fix: write it anew.")
    return frame


def valid(table: Any) -> Any:
    """A table whose texts are texts: pyarrow reads bytes that are no UTF-8 as text, and fails when they are looked at."""
    table.validate(full=True)
    return table


def typed(frame: pd.DataFrame, facts: TableFacts | None, where: str) -> pd.DataFrame:
    """The declared columns, in the declared order; numbers that came as text become numbers.

    Raises:
        ColumnMissing: a declared column is not there.
        DataUnreadable: a column of numbers holds something else.
    """
    if facts is None:
        return frame
    check_columns(facts, list(frame.columns), where)
    frame = frame[wanted_columns(facts)].copy()
    for column in facts.columns:
        values = frame[column.name]
        if pd.api.types.is_numeric_dtype(values.dtype) or not (_is_number(column) or column.type == "boolean"):
            continue
        numbers = _numbers(values, truth=column.type == "boolean")
        if numbers is None:
            what = "true or false" if column.type == "boolean" else "numbers"
            raise DataUnreadable(
                f"Column {column.name!r} of {where} is declared as {what} but holds something else. Fix: correct the "
                "values, leave unknown ones empty, or declare it as categorical."
            )
        frame[column.name] = numbers
    return frame


def _numbers(values: pd.Series, *, truth: bool) -> NDArray[np.float64] | None:
    """Each value by itself as a number, NaN where it is missing; None if one of them is no number."""
    cells = values.to_numpy(dtype=object, na_value=np.nan)
    if truth:
        said = (_TRUTH.get(cell.lower(), cell) if isinstance(cell, str) else cell for cell in cells)
        cells = np.fromiter(said, dtype=object, count=len(cells))  # np.array would look into cells that are lists
    try:
        numbers = cells.astype(np.float64)  # Python's own float(): rounds correctly, whatever the other values are
    except (ValueError, TypeError):
        return None
    return None if truth and not np.isin(numbers[~np.isnan(numbers)], (0.0, 1.0)).all() else numbers


def _csv(path: Path, **options: Any) -> pd.DataFrame:
    """The reader of pandas, with errors that quote nothing."""
    return _told(path, lambda: pd.read_csv(path, encoding="utf-8", index_col=False, **options))


def _csv_pieces(path: Path, **options: Any) -> Iterator[pd.DataFrame]:
    """The same, piece by piece."""
    end = pd.DataFrame()
    with _told(path, lambda: pd.read_csv(path, encoding="utf-8", index_col=False, **options)) as reader:
        while (frame := _told(path, lambda: next(reader, end))) is not end:
            yield frame


def _told(path: Path, read: Callable[[], T]) -> T:
    """What pandas reads; its errors by our names, and those that nobody has met yet."""
    found = attempt(lambda: _named(path, read))
    if found is None:
        raise DataUnreadable(f"{path} cannot be read as a table. Fix: write it anew.")
    return found


def _named(path: Path, read: Callable[[], T]) -> T:
    try:
        with _strict():
            return read()
    except _FAULTS as problem:
        error = _fault(path, problem)
    raise error  # out here, so that pandas' own message, which quotes the file, is not chained to it


@contextmanager
def _strict() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # more fields in a line than names
        yield


_FAULTS = (ValueError, OSError, pd.errors.ParserWarning)  # the other errors of pandas are among these


def _fault(path: Path, problem: Exception) -> DataError:
    if isinstance(problem, UnicodeDecodeError):
        return DataUnreadable(f"{path} is not UTF-8. Fix: save it as UTF-8, for example with `iconv -t UTF-8`.")
    if isinstance(problem, pd.errors.EmptyDataError):
        return DataEmpty(f"{path} is empty. Fix: check that it is the right file.")
    if isinstance(problem, pd.errors.ParserError | pd.errors.ParserWarning | OSError):
        return DataUnreadable(
            f"{path} is not a table with commas between values and the same number of them in each line. Fix: quote "
            "texts that hold commas or line ends, and put the names of the columns into the first line."
        )
    return _NotNumbers(f"{path} holds text where numbers belong. Fix: correct it, or declare it categorical.")


class _NotNumbers(DataUnreadable):
    """A column that is to be read as numbers holds something else."""


def check_columns(facts: TableFacts | None, names: Sequence[Any], where: str, *, quote: bool = True) -> None:
    """Raises unless a source has the declared columns and no others; `quote` whether it may name those others."""
    if facts is None:
        return
    declared, there = dict.fromkeys(wanted_columns(facts)), set(map(str, names))
    if len(names) == 1 and str(names[0]) not in declared and any(sign in str(names[0]) for sign in ";\t|"):
        raise DataUnreadable(
            f"{where} seems to have other signs than commas between its columns. Fix: save it with commas."
        )
    for name in declared:
        if name not in there:
            # The names that *are* there stay unsaid: without a header line they would be a record.
            what = "target" if name == facts.target else "row id" if name == facts.row_id else "declared"
            raise ColumnMissing(
                f"{where} has no column {name!r} ({what}). Fix: name it in the first line, or correct the schema."
            )
    if len(there) < len(names):
        raise DataUnreadable(f"Two columns of {where} have the same name. Fix: give each column its own.")
    undeclared = [str(name) for name in names if str(name) not in declared]
    if undeclared:
        listed = f": {', '.join(map(repr, undeclared))}" if quote else ""
        raise ColumnUndeclared(
            f"{where} has columns that the schema does not declare{listed}. "
            "Fix: declare them, or leave them out of the data; the first line must hold names only, and end."
        )


def wanted_columns(facts: TableFacts) -> list[str]:
    """The declared columns, and that of the row ids."""
    return [*(column.name for column in facts.columns), *([facts.row_id] if facts.row_id else [])]


def _is_number(column: Any) -> bool:
    if column.type == "categorical":
        return not any(isinstance(value, str) for value in column.categories)
    return column.type in ("numeric", "integer")


def _text_columns(facts: TableFacts) -> set[str]:
    return set(wanted_columns(facts)) - {column.name for column in facts.columns if _is_number(column)}
