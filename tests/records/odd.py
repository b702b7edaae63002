"""Five hundred odd records: odd values of every type of column, odd lines of csv, odd cells of frames and of Parquet, odd images."""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import fractions
import io
import math
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from gpate.schema import ImageSchema, Schema, TableSchema

COLUMNS = {
    "age": {"type": "integer", "bounds": [0, 100]},
    "pay": {"type": "numeric", "bounds": [1, 10000], "scale": "log", "missing": True},
    "job": {"type": "categorical", "categories": ["cook", "clerk", "other"], "other": "other"},
    "code": {"type": "categorical", "categories": ["1", "2", "007"], "missing": True},
    "grade": {"type": "categorical", "categories": [1, 2, 3]},
    "ok": {"type": "boolean"},
    "seen": {"type": "datetime", "bounds": ["2001-01-01", "2030-12-31"], "unit": "day"},
    "ill": {"type": "categorical", "categories": ["no", "yes"]},
}
TABLE = Schema.from_dict({"kind": "table", "target": "ill", "columns": COLUMNS})
PICTURES = ImageSchema(height=8, width=8, classes=("bar", "dot"))
assert isinstance(TABLE, TableSchema)

GOOD: dict[str, Any] = {
    "age": 40,
    "pay": 250.5,
    "job": "cook",
    "code": "2",
    "grade": 1,
    "ok": True,
    "seen": "2020-01-31",
    "ill": "no",
}
LINE = "40,250.5,cook,2,1,True,2020-01-31,no"


class Odd(NamedTuple):
    """One odd record: what it is called, and how to write a source with it, or without it, to a folder.

    Those of one family are the same without it.
    """

    family: str
    name: str
    schema: TableSchema | ImageSchema
    write: Callable[[Path, bool], tuple[Any, Any]]


class _Silent:
    """An object whose every text and comparison fails."""

    def __repr__(self) -> str:
        raise RuntimeError

    __str__ = __repr__
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __float__(self) -> float:
        raise RuntimeError


CELLS: list[Any] = [
    *(None, math.nan, math.inf, -math.inf, 1e308, -0.0, 0.5, 10**30, 10**5000, -7, True, False, 1j, pd.NA, pd.NaT),
    *(
        "",
        " ",
        "NA",
        "zebra",
        "1e5",
        "1_000",
        "0x10",
        "٣",
        "nan",
        "-inf",
        "true",
        "TRUE",
        "2020-02-30",
        "now",
        "a\0b",
        "\ud800",
    ),
    *("2020-01-31T12:00:00+05:00", "30000-01-01", "9999-12-31T23:59:59-12:00", "x" * 200_000, b"40", b"\xff", "=1+1"),
    *(
        [],
        [1, 2],
        {},
        {"a": 1},
        {1},
        (),
        (1,),
        np.zeros(3),
        np.array(5),
        object(),
        _Silent(),
        print,
        Path("x"),
        pd.Series([1]),
    ),
    *(decimal.Decimal("1e999"), decimal.Decimal("sNaN"), fractions.Fraction(1, 3), uuid.UUID(int=1), dt.time(1, 2)),
    *(
        dt.date(1, 1, 1),
        dt.datetime.max,
        dt.datetime.max.replace(tzinfo=dt.timezone(-dt.timedelta(hours=5))),
        dt.timedelta(1),
    ),
    *(
        np.datetime64("NaT"),
        np.datetime64("2020"),
        np.timedelta64(1, "s"),
        np.float16(3),
        np.str_("cook"),
        pd.Interval(0, 1),
    ),
]
"""Cells of a data frame: each stands once in every column."""

LINES = [
    *(
        "",
        " ",
        ",",
        ",,,,,,,",
        "," * 7 + "no",
        "," * 40,
        LINE + ",",
        LINE + ",extra",
        LINE[:20],
        LINE.replace(",", ";"),
        '"',
        '""',
    ),
    *(
        '"' * 7,
        LINE.replace("cook", '"cook'),
        LINE.replace("cook", 'co"ok'),
        LINE.replace("cook", '"cook" x'),
        LINE + '"',
        "'" + LINE,
    ),
    *(
        LINE.replace("cook", '"a, b"'),
        LINE.replace("cook", '"a\nb"'),
        LINE.replace("cook", 'a""b'),
        LINE + "\r",
        "\r" + LINE,
        "\\",
    ),
    *(LINE.replace("40", value) for value in ("4O", "--4", "4,0", "1e400", "NaN", "四十", "0.1.2", "+", "1" * 5000)),
    *(
        LINE.replace("2020-01-31", value)
        for value in ("31.01.2020", "2020", "0000-00-00", "2020-01-31Z", "today", "1e9")
    ),
    *(
        "age,pay,job,code,grade,ok,seen,ill",
        "\ufeff" + LINE,
        "\x00" * 5,
        LINE.replace(",", "\t"),
        "#" + LINE,
        "NULL",
        "\x1a",
    ),
]
BYTES = [
    b"\xff\xfe\xfd",
    LINE.encode("utf-16"),
    LINE.replace("cook", "café").encode("latin-1"),
    b"\xc3\x28," * 8,
    b"\x80" * 300,
]


@cache
def base(count: int = 12) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, count),
            "pay": rng.lognormal(7, 1, count).clip(1, 10000),
            "job": rng.choice(["cook", "clerk"], count),
            "code": rng.choice(["1", "007"], count),
            "grade": rng.integers(1, 4, count),
            "ok": rng.random(count) < 0.5,
            "seen": pd.date_range("2010-01-01", periods=count).strftime("%Y-%m-%d"),
            "ill": np.where(np.arange(count) % 3 == 0, "yes", "no"),
        }
    )


def _frame(column: str, cell: Any) -> Odd:
    def write(folder: Path, with_: bool) -> tuple[Any, None]:
        rows = [tuple(row) for row in base().astype(object).to_numpy()]
        rows += [tuple(cell if name == column else GOOD[name] for name in COLUMNS)] if with_ else []
        cells = {
            name: np.fromiter((row[i] for row in rows), dtype=object, count=len(rows)) for i, name in enumerate(COLUMNS)
        }
        return pd.DataFrame(cells, dtype=object), None

    return Odd("frame", f"frame {column} {type(cell).__name__}", TABLE, write)


def _line(line: bytes, last: bool) -> Odd:
    """Before others, a quote that the line leaves open is closed after many more lines, as a csv writer would."""
    if not last and _leaves_open(line.decode(errors="replace")):
        line += b"\n7,x" * 120 + b'"'

    def write(folder: Path, with_: bool) -> tuple[Any, None]:
        head, *lines = base().to_csv(index=False).encode().splitlines()
        place = len(lines) if last else len(lines) // 2
        lines[place:place] = [line] if with_ else []
        (folder / "a.csv").write_bytes(b"\n".join([head, *lines]))
        return folder / "a.csv", None

    return Odd("csv", f"csv {line[:20]!r}", TABLE, write)


def _leaves_open(line: str) -> bool:
    try:
        next(csv.reader([line], strict=True), None)
    except csv.Error as problem:
        return "end of data" in str(problem)
    return False


def _parquet(column: str, name: str, cells: pa.Array) -> Odd:
    """Twelve records and an odd one, in a column of that type; without it the same records."""

    def write(folder: Path, with_: bool) -> tuple[Any, None]:
        frame = pd.concat([base(), pd.DataFrame([GOOD])], ignore_index=True)
        table = pa.Table.from_pandas(frame, preserve_index=False)
        table = table.set_column(table.column_names.index(column), column, cells)
        pq.write_table(table if with_ else table.slice(0, 12), folder / "a.parquet", row_group_size=5)
        return folder / "a.parquet", None

    return Odd(f"parquet {column} {name}", f"parquet {column} {name}", TABLE, write)


def _arrays() -> dict[str, pa.Array]:
    none = [None] * 12
    return {
        "invalid text": pa.array([b"cook"] * 12 + [b"\xff\xfe"]).view(pa.string()),
        "nested": pa.array([*none, [1, 2]]),
        "struct": pa.array([*none, {"a": 1}]),
        "day": pa.array([*none, 2**31 - 1], pa.int32()).view(pa.date32()),
        "second": pa.array([*none, 2**52], pa.int64()).view(pa.timestamp("s")),
        "zone": pa.array([*none, 2**62], pa.int64()).view(pa.timestamp("ns", "Asia/Tokyo")),
        "decimal": pa.array([*none, decimal.Decimal("9" * 38)], pa.decimal128(38, 0)),
        "binary": pa.array([*none, b"\x00\xff"]),
        "large": pa.array([*none, 2**64 - 1], pa.uint64()),
        "infinite": pa.array([*none, math.inf]),
        "null": pa.nulls(13),
        "duration": pa.array([*none, 5], pa.duration("ns")),
        "time": pa.array([*none, 5], pa.time64("ns")),
        "map": pa.array([*none, [("a", 1)]], pa.map_(pa.string(), pa.int64())),
        "dictionary": pa.array(["zebra"] * 13).dictionary_encode(),
        "half": pa.array([*none, np.float16(1)], pa.float16()),
    }


def _picture(image: Image.Image, form: str) -> bytes:
    out = io.BytesIO()
    image.save(out, form)
    return out.getvalue()


def _pictures() -> Iterator[tuple[str, bytes]]:
    good = _picture(Image.new("L", (8, 8), 90), "PNG")
    yield from (("bar/odd.png", good[:cut]) for cut in range(0, len(good), 4))
    yield from (("bar/odd.png", good[:i] + bytes([good[i] ^ 255]) + good[i + 1 :]) for i in range(0, len(good), 4))
    yield from ((f"{name}/odd.png", good) for name in ("zebra", ".", "bar/deep", "BAR", " bar", "é"))
    for size, mode in (
        ((9, 8), "L"),
        ((1, 1), "L"),
        ((8, 8), "I;16"),
        ((8, 8), "F"),
        ((8, 8), "LA"),
        ((300, 300), "RGB"),
    ):
        yield "dot/odd.tiff", _picture(Image.new(mode, size), "TIFF")
    yield from (("dot/odd.jpg", junk) for junk in (b"GIF89a", b"\x00" * 5000, b"<svg/>", b"%PDF", b"\xff\xd8\xff"))


def _folder(name: str, content: bytes) -> Odd:
    def write(folder: Path, with_: bool) -> tuple[Any, None]:
        for label, shade in (("bar", 10), ("dot", 200)):
            (folder / "p" / label).mkdir(parents=True, exist_ok=True)
            for i in range(3):
                (folder / "p" / label / f"{i}.png").write_bytes(_picture(Image.new("L", (8, 8), shade + i), "PNG"))
        path = folder / "p" / name
        if with_:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        else:
            path.unlink(missing_ok=True)
        return folder / "p", None

    return Odd("folder", f"image {name} {content[:6]!r}", PICTURES, write)


ODD_LABELS = (None, 0, 7, "zebra", "", math.nan, 0.5, [1], object(), b"bar", True, 10**30, 10**5000)


def _label(label: Any, others: list[Any]) -> Odd:
    def write(folder: Path, with_: bool) -> tuple[Any, Any]:
        pictures = np.full((7 if with_ else 6, 8, 8), 50, dtype=np.uint8)
        return pictures, [*others * 3, *([label] if with_ else [])]

    kind = type(others[0]).__name__
    return Odd(f"array, {kind}", f"label {type(label).__name__} beside {kind}", PICTURES, write)


def odd_records() -> list[Odd]:
    """All of them, in a fixed order."""
    cells = [_frame(column, cell) for cell in CELLS for column in ("age", "job", "grade", "seen", "ill")]
    lines = [
        _line(line if isinstance(line, bytes) else line.encode(), last)
        for line in LINES + BYTES
        for last in (False, True)
    ]
    arrays = [
        _parquet(column, name, cells) for name, cells in _arrays().items() for column in ("age", "code", "seen", "ill")
    ]
    labels = [_label(label, others) for label in ODD_LABELS for others in (["bar", "dot"], [0, 1], [0.0, 1.0])]
    return [*cells, *lines, *arrays, *(_folder(*case) for case in _pictures()), *labels]
