"""Safe parsing of untrusted files: size limits, links, and calls of libraries' parsers.

A file of a few kilobytes can unpack to gigabytes. The sizes stated in a file are compared with the limits first; reading
stops at the stated size.

Parsers may raise almost anything on malformed input: Pillow raises TypeError, pyarrow KeyError, zipfile zlib.error, numpy
TokenError. Every such call goes through `attempt`, and its caller raises an error of `gpate.errors` without chaining the
library's error, which may quote a private value.

    >>> import json
    >>> attempt(lambda: json.loads("[1, 2]")), attempt(lambda: json.loads("[1, 2"))
    ([1, 2], None)
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from gpate.errors import DataTooLarge, DataUnreadable, GpateError, require_count

T = TypeVar("T")

_SMALL = 2**28
_CHUNK = 2**20
_MOST_REPEATED = 100

SEPARATORS = ",;\t|"
"""Signs that may stand between the columns of a text file."""

LONGEST_INTEGER = 20
"""Digits and sign of a whole number in a file from elsewhere: 64 bits, and a little more."""


def attempt(read: Callable[[], T]) -> T | None:
    """The result of `read`, or None if a library failed on its input. Errors of gpate propagate."""
    try:
        return read()
    except GpateError:
        raise
    except Exception:  # noqa: BLE001 - no list is complete: some libraries raise direct subclasses of Exception
        return None


def load_json(text: str | bytes) -> Any:
    """JSON whose whole numbers have at most `LONGEST_INTEGER` digits: the time for longer ones grows with their square.

    Raises:
        ValueError: it is not such JSON.
    """
    return json.loads(text, parse_int=_bounded_integer)


def _bounded_integer(digits: str) -> int:
    if len(digits) > LONGEST_INTEGER:
        raise ValueError(f"a whole number of more than {LONGEST_INTEGER} characters")
    return int(digits)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on the unpacked size of a source.

    Attributes:
        image_pixels: of one image.
        total_bytes: of all images, arrays or cells together, unpacked.
        line_bytes: of one line of a table in a text file; a longer one is a broken record.
        columns: of a table in a text file.
        ratio: of an archive's content to its own size, once the content is more than 256 MiB.
    """

    image_pixels: int = 2**24
    total_bytes: int = 2**35
    line_bytes: int = 2**24
    columns: int = 10_000
    ratio: int = 256

    def __post_init__(self) -> None:
        require_count("image_pixels", self.image_pixels, 1)
        require_count("total_bytes", self.total_bytes, 1)
        require_count("line_bytes", self.line_bytes, 1)
        require_count("columns", self.columns, 1)
        require_count("ratio", self.ratio, 1)

    @property
    def image_bytes(self) -> int:
        """Of one image file: more than any format needs for its pixels."""
        return 8 * self.image_pixels + 2**20

    def check_total(self, count: int) -> None:
        """Raise DataTooLarge if `count` bytes are too many."""
        if count > self.total_bytes:
            raise DataTooLarge(
                f"The source would unpack to more than {self.total_bytes} bytes. Fix: raise Limits(total_bytes=...) if "
                "that size is expected and fits into memory."
            )

    def check_archive(self, path: Path) -> list[str] | None:
        """The names in a zip file; None if it is not one.

        Raises:
            DataTooLarge: its directory states more bytes than the limits allow, in total or for its size.
        """

        def sizes() -> list[tuple[str, int]]:
            with zipfile.ZipFile(path) as archive:
                return [(item.filename, item.file_size) for item in archive.infolist()]

        if (stated := attempt(sizes)) is None:
            return None
        total = sum(size for _, size in stated)
        self.check_total(total)
        if total > _SMALL and total > self.ratio * path.stat().st_size:
            raise DataTooLarge(
                f"{path} would unpack to more than {self.ratio} times its size. Fix: store it without compression, or "
                "raise Limits(ratio=...)."
            )
        return [name for name, _ in stated]

    def check_names(self, path: Path) -> None:
        """Refuse headers that take seconds: kilobytes of commas, or of one repeated name."""
        names = attempt(lambda: first_line(path)) or []  # an invalid file is refused by its reader
        if len(names) > self.columns:
            raise DataTooLarge(
                f"The first line of {path} has more or longer names than Limits(columns=...) allows. Fix: check that it "
                "ends, and contains the column names."
            )
        named = [name for name in names if name]
        if len(named) - len(set(named)) > _MOST_REPEATED:
            raise DataUnreadable(f"Many columns of {path} have the same name. Fix: give each column its own name.")

    def open_parquet(self, path: Path, *, walked: bool = False, texts: Sequence[str] = ()) -> Any:
        """Open a `pyarrow.parquet.ParquetFile`; None if it is not one.

        Args:
            path: the file.
            walked: it is read in shards with small buffers, so its size is not limited.
            texts: columns that are read as codes of their distinct texts.

        Raises:
            DataTooLarge: it states more rows, or more bytes, than the limits allow.
        """
        import pyarrow.parquet as pq

        beside: dict[str, Any] = {"buffer_size": _CHUNK, "pre_buffer": False} if walked else {}
        file = attempt(lambda: pq.ParquetFile(path, read_dictionary=list(texts), **beside))
        stated = None if file is None else attempt(lambda: _parquet_bytes(file.metadata))
        if stated is None:
            return None
        if not walked:
            self.check_total(stated)
        return file


def separator_of(line: str, declared: Iterable[str] = ()) -> str:
    """The sign between the columns of a table, from its first line: one of `SEPARATORS` that gives all declared columns, else the one
    that is there most often, outside quotes.

    >>> separator_of('id;"weight, height, age"'), separator_of("id"), separator_of("a;b;c,d", ["a;b;c", "d"])
    (';', ',', ',')
    """
    line, wanted = line.removeprefix("\ufeff").split("\r")[0].removesuffix("\n"), set(declared)
    for sign in SEPARATORS if wanted else "":
        if wanted.issubset(attempt(lambda sign=sign: next(csv.reader([line], delimiter=sign))) or ()):  # type: ignore[misc]
            return sign
    plain = "".join(line.split('"')[::2])
    return max(SEPARATORS, key=plain.count)


def first_line(path: Path) -> list[str]:
    """The column names of a table; for a line that is too long, a million empty strings."""
    with (
        gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file,
        io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline="") as text,  # type: ignore[arg-type]
    ):
        try:
            separator = separator_of(text.readline())
            text.seek(0)
            return next(csv.reader(text, delimiter=separator), [])
        except csv.Error:
            return [""] * 2**20


def _parquet_bytes(facts: Any) -> int:
    """Unpacked size stated by the footer: at least eight bytes per value, its size in memory."""
    groups = [facts.row_group(i) for i in range(facts.num_row_groups)]
    rows = sum(group.num_rows for group in groups)
    if facts.num_rows < 0 or rows != facts.num_rows or any(group.num_rows < 0 for group in groups):
        raise ValueError
    return max(8 * rows * facts.num_columns, sum(group.total_byte_size for group in groups))


def plain_files(files: Iterable[Path], root: Path) -> list[Path | None]:
    """Those that are files in a folder, None for each other one: links that lead out of it are not followed."""
    real = root.resolve()

    def inside(file: Path) -> bool:
        return file.is_file() and file.resolve().is_relative_to(real)

    return [file if attempt(partial(inside, file)) else None for file in files]


def read_image_file(path: Path, limits: Limits) -> bytes:
    """The bytes of one image file, one more than the limits allow if it has more: `decode` refuses such a file.

    Raises:
        DataUnreadable: the operating system does not let it be read.
    """

    def read() -> bytes:
        with path.open("rb") as file:
            return file.read(limits.image_bytes + 1)

    if (data := attempt(read)) is None:
        raise DataUnreadable("An image file cannot be read. Fix: check the read permissions of all image files.")
    return data
