"""Safe parsing: what a source may unpack to, where it may lie, and how libraries' parsers are called.

A file of a few kilobytes can state, or become, gigabytes. Sizes are therefore taken from what a file says about itself
and held against the limits; what it then really holds cannot be more, because reading stops at what was stated.

A parser that meets bytes it was not made for may raise almost anything: Pillow raises TypeError, pyarrow KeyError, zipfile
zlib.error, numpy TokenError. Every such call goes through `attempt`, and its caller raises an error of `gpate.errors`, to
which the library's own is not chained: that one may quote a private value.

    >>> import json
    >>> attempt(lambda: json.loads("[1, 2]")), attempt(lambda: json.loads("[1, 2"))
    ([1, 2], None)
"""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gpate.errors import DataNotFound, DataTooLarge, DataUnreadable, GpateError, require_count

T = TypeVar("T")

_SMALL = 2**28
_CHUNK = 2**20
_MOST_REPEATED = 100


def attempt(read: Callable[[], T]) -> T | None:
    """What `read` gives, or None if a library could not make sense of its input. Errors of gpate pass."""
    try:
        return read()
    except GpateError:
        raise
    except Exception:  # noqa: BLE001 - no list is complete: some libraries' errors are children of Exception itself
        return None


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a source may unpack to.

    Attributes:
        image_pixels: of one picture.
        total_bytes: of all pictures, arrays or cells together, unpacked.
        line_bytes: of one line of a text file.
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
        """Of one picture's file: more than any format needs for its pixels."""
        return 8 * self.image_pixels + 2**20

    def check_total(self, count: int) -> None:
        """Raises DataTooLarge if this many bytes are too many."""
        if count > self.total_bytes:
            raise DataTooLarge(
                f"The source would unpack to more than {self.total_bytes} bytes. Fix: raise Limits(total_bytes=...) if "
                "it is meant to be that large and there is memory for it."
            )

    def check_archive(self, path: Path) -> list[str] | None:
        """The names in a zip file; None if it is none.

        Raises:
            DataTooLarge: what its directory states is more than the limits, in all or for its size.
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

    def check_text(self, path: Path, *, walked: bool = False) -> None:
        """Raises DataTooLarge for a text file, packed with gzip or not, that is too large, or has a line that is.

        Args:
            path: the file.
            walked: it is read piece by piece, so it may be as large as it likes; its lines may not.
        """
        packed, total = path.suffix == ".gz", 0
        self._check_names(path)
        if not packed:
            if not walked:
                self.check_total(path.stat().st_size)
            if path.stat().st_size <= self.line_bytes:
                return
        since = 0  # the last end of a line; those within a chunk are nearer to each other than any limit
        with gzip.open(path) if packed else path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                total += len(chunk)
                if not walked:
                    self.check_total(total)
                since = len(chunk) - chunk.rfind(b"\n") if b"\n" in chunk else since + len(chunk)
                if since > self.line_bytes:
                    raise DataTooLarge(
                        f"{path} has a line of more than {self.line_bytes} bytes. Fix: check that its lines end, or raise "
                        "Limits(line_bytes=...)."
                    )

    def _check_names(self, path: Path) -> None:
        """What pandas takes seconds for: a few kilobytes of commas, or of the same name again and again."""
        names = attempt(lambda: _first_line(path)) or []  # a file that is none will be refused by its reader
        if len(names) > self.columns:
            raise DataTooLarge(
                f"The first line of {path} has more names, or longer ones, than Limits(columns=...) allows. Fix: see that it "
                "ends, and holds the names of the columns."
            )
        named = [name for name in names if name]
        if len(named) - len(set(named)) > _MOST_REPEATED:
            raise DataUnreadable(f"Many columns of {path} have the same name. Fix: give each column its own.")

    def open_parquet(self, path: Path, *, walked: bool = False) -> Any:
        """A `pyarrow.parquet.ParquetFile`; None if it is none.

        Args:
            path: the file.
            walked: it is read piece by piece, with little held beside, so it may be as large as it likes.

        Raises:
            DataTooLarge: it states more rows, or more bytes, than the limits allow.
        """
        import pyarrow.parquet as pq

        beside = {"buffer_size": _CHUNK, "pre_buffer": False} if walked else {}
        file = attempt(lambda: pq.ParquetFile(path, **beside))
        stated = None if file is None else attempt(lambda: _parquet_bytes(file.metadata))
        if stated is None:
            return None
        if not walked:
            self.check_total(stated)
        return file


def _first_line(path: Path) -> list[str]:
    """The names of a table's columns; of a line that is too long for names, the empty text a million times."""
    with (
        gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file,
        io.TextIOWrapper(file, "utf-8", errors="replace", newline="") as text,  # type: ignore[arg-type]
    ):
        try:
            return next(csv.reader(text), [])
        except csv.Error:
            return [""] * 2**20


def _parquet_bytes(facts: Any) -> int:
    """What the footer states, unpacked: at least eight bytes a value, because that is what it becomes in memory."""
    groups = [facts.row_group(i) for i in range(facts.num_row_groups)]
    rows = sum(group.num_rows for group in groups)
    if facts.num_rows < 0 or rows != facts.num_rows or any(group.num_rows < 0 for group in groups):
        raise ValueError
    return max(8 * rows * facts.num_columns, sum(group.total_byte_size for group in groups))


def plain_files(files: Iterable[Path], root: Path) -> list[Path]:
    """The files, if all of them lie in a folder: links that lead out of it are refused, whatever they lead to.

    Raises:
        DataNotFound: one of them is not a file, or not in the folder.
    """
    kept, real = list(files), root.resolve()

    def inside() -> bool:
        return all(file.is_file() and file.resolve().is_relative_to(real) for file in kept)

    if not attempt(inside):
        raise DataNotFound(
            f"A file of {root} is not there, or not in that folder but behind a link. Fix: copy the files into the folder, "
            "and name them relative to it."
        )
    return kept


def read_image_file(path: Path, limits: Limits) -> bytes:
    """The bytes of one picture's file."""

    def read() -> bytes:
        with path.open("rb") as file:
            return file.read(limits.image_bytes + 1)

    if (data := attempt(read)) is None:
        raise DataUnreadable("An image's file cannot be read. Fix: see that whoever runs this may read all of them.")
    if len(data) > limits.image_bytes:
        raise DataTooLarge(
            "A file of an image is far larger than its pixels can be. Fix: save it anew, or raise Limits(image_pixels=...)."
        )
    return data
