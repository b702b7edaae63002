"""Arrays inside an .npz file, read some rows at a time.

An .npz file is a zip of .npy files. A member that is stored as it is has its rows at known places in the file, and any of
them can be read by offset. A compressed one has not: it is unpacked from its beginning, a little at a time, and what is
not wanted is thrown away. Either way no more than the rows asked for is in memory. The checksum of a member is checked by
zip readers at its end only, so rows read by offset are not checked against it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.npz"
    ...     np.savez(path, x=np.arange(10))
    ...     [rows.tolist() for rows in members(path)["x"].rows(3, 8, 2)]
    [[3, 4], [5, 6], [7]]
"""

from __future__ import annotations

import math
import struct
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gpate.errors import DataUnreadable
from gpate.safe_parsing import attempt

_BITE = 1 << 20
_LOCAL_HEADER = 30


@dataclass(frozen=True, kw_only=True)
class Member:
    """One array of the file: its shape and type, and where it is.

    Attributes:
        path: of the .npz file.
        info: its entry in the zip's directory.
        header: bytes before the first row.
        shape: of the array.
        dtype: of its numbers.
        by_rows: whether a row's numbers lie side by side; not so in Fortran's order.
    """

    path: Path
    info: zipfile.ZipInfo
    header: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_rows: bool

    @property
    def by_offset(self) -> bool:
        """Whether any row can be read without those before it."""
        return self.info.compress_type == zipfile.ZIP_STORED

    def rows(self, start: int, stop: int, size: int) -> Iterator[NDArray[Any]]:
        """Rows start <= i < stop, at most `size` at a time."""
        stride = self.dtype.itemsize * math.prod(self.shape[1:])
        if (file := attempt(lambda: self._at(self.header + start * stride))) is None:
            raise unreadable(self.path)
        with file:
            for first in range(start, stop, size):
                shape = (min(size, stop - first), *self.shape[1:])
                if (rows := attempt(lambda: _filled(file, shape, self.dtype))) is None:  # noqa: B023 - called at once
                    raise unreadable(self.path)
                yield rows

    def _at(self, place: int) -> IO[bytes]:
        """The member, open at that byte."""
        if self.by_offset:
            file = self.path.open("rb")
            file.seek(self.info.header_offset)
            names = struct.unpack("<26x2H", file.read(_LOCAL_HEADER))
            file.seek(self.info.header_offset + _LOCAL_HEADER + sum(names) + place)
            return file
        with zipfile.ZipFile(self.path) as archive:  # the open member keeps the file open
            unpacked = archive.open(self.info)
        while place:
            place -= len(unpacked.read(min(place, _BITE))) or _ended()
        return unpacked


def members(path: Path) -> dict[str, Member]:
    """The arrays of an .npz file, by name. Only their headers are read."""

    def found() -> dict[str, Member]:
        with warnings.catch_warnings(), zipfile.ZipFile(path) as archive:
            warnings.simplefilter("ignore")  # Python's own about an array's header, which it quotes
            entries = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            return {info.filename.removesuffix(".npy"): _member(path, archive, info) for info in entries}

    if (arrays := attempt(found)) is None:
        raise unreadable(path)
    return arrays


def unreadable(path: Path) -> DataUnreadable:
    """The error for a file that is none, or is cut short."""
    return DataUnreadable(f"{path} is not an .npz file of plain arrays. Fix: write it with numpy.savez.")


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
    with archive.open(info) as file:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
        header = file.tell()
    if dtype.hasobject or not dtype.itemsize or not shape or shape[0] < 0 or min(shape[1:], default=1) < 1:
        raise ValueError  # rows of no bytes could be as many as the header likes
    if header + dtype.itemsize * math.prod(shape) != info.file_size:
        raise ValueError
    return Member(path=path, info=info, header=header, shape=shape, dtype=dtype, by_rows=not fortran or len(shape) == 1)


def _filled(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    rows = np.empty(shape, dtype=dtype)
    target = rows.reshape(-1).view(np.uint8).data
    while len(target):
        got = file.readinto(target[:_BITE])  # type: ignore[attr-defined]
        target = target[got or _ended() :]
    return rows


def _ended() -> int:
    raise EOFError
