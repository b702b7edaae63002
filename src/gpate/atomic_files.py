"""Atomic writes: files and folders that appear complete or not at all, also after a crash."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

PARTIAL = ".partial"
"""Suffix of files and folders that are being written."""

_LOCK = "lock"


def sync(folder: Path) -> None:
    """Flush a folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(target: Path, content: bytes) -> None:
    """Write a file, on disk whole or not at all; a temporary one beside it has the suffix .tmp."""
    temporary = target.with_suffix(".tmp")
    with temporary.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, target)
    sync(target.parent)


@contextlib.contextmanager
def workplace(path: Path) -> Iterator[Path]:
    """A hidden temporary folder beside `path`, for files that will be moved there; it is removed afterwards.

    The process that uses it holds its lock, which ends with the process. So an unlocked folder for the same path was
    left behind by a killed process, and is removed first.
    """
    begin = f".{path.name[:40]}."
    ours = re.compile(re.escape(begin) + "[a-z0-9_]{8}" + re.escape(PARTIAL))
    for entry in os.scandir(path.parent):
        if ours.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            with contextlib.suppress(OSError), _lock(Path(entry.path)):
                shutil.rmtree(entry.path, ignore_errors=True)
    place, lock = _begun(path.parent, begin)
    with lock:
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, and move the file to `target` if the block succeeds."""
    with workplace(target) as place:
        part = place / f"part{target.suffix}"
        yield part
        os.replace(part, target)


def _begun(folder: Path, begin: str) -> tuple[Path, contextlib.AbstractContextManager[object]]:
    """A new folder, and its lock."""
    while True:
        place = Path(tempfile.mkdtemp(dir=folder, prefix=begin, suffix=PARTIAL))
        try:
            return place, _lock(place)
        except (FileNotFoundError, BlockingIOError):  # taken for a leftover before it was locked
            continue
        except OSError:  # a disk without locks: nobody can lock it, so nobody removes it
            return place, contextlib.nullcontext()


def _lock(place: Path) -> IO[bytes]:
    """A folder's lock, until it is closed.

    Raises:
        BlockingIOError: another process has it.
        FileNotFoundError: the folder is gone.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.fdopen(os.open(place / _LOCK, flags, 0o600), "wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock.fileno()).st_nlink == 0:
            raise FileNotFoundError(place)
    except OSError:
        lock.close()
        raise
    return lock
