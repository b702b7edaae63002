"""Every state that a killed process, or a power cut, can leave of a folder: recorded in one run, at each call that changes a file.

A kill leaves what was written, whether it was synced or not. So a copy of the folder before and after every system call that
changes it, and in the middle of every write, has all states that a kill can leave. A power cut leaves less: here, of each
file what was synced last, and of each folder the names that it had when it was synced.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

State = dict[str, bytes | None]
"""Files by their path in the folder; None for a folder."""

_CALLS = ("fsync", "replace", "rename", "unlink", "remove", "truncate", "ftruncate", "mkdir", "rmdir", "chmod")


class Crashes:
    """Records the states of a folder while a block runs.

    Attributes:
        kill: what a kill can leave, each state once, in their order.
        power_cut: likewise what a power cut can leave.
        calls: how many calls there were, by name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kill: list[State] = []
        self.power_cut: list[State] = []
        self.calls: dict[str, int] = {}
        self._seen: set[tuple[str, frozenset[tuple[str, bytes | None]]]] = set()
        self._contents: dict[bytes, bytes] = {}
        self._synced: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}

    @contextmanager
    def recorded(self) -> Iterator[Crashes]:
        """Watches `os` and `open`; of other languages' calls, safetensors' one."""
        real_open, real_write = io.open, os.write
        crashes = self

        class Watched(io.FileIO):
            def write(self, data: Any, /) -> int:
                write = super().write
                return crashes._in_pieces(bytes(data), lambda piece: write(piece))

        def opening(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **options: Any) -> Any:
            if not set(mode) & set("wax+"):
                return real_open(file, mode, buffering, *args, **options)
            raw = crashes._around("open", lambda: Watched(file, mode.replace("t", "").replace("b", "")))
            buffered = io.BufferedWriter(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, *args, **options)

        def write(descriptor: int, data: bytes) -> int:
            return crashes._in_pieces(bytes(data), lambda piece: real_write(descriptor, piece))

        def saved(real: Callable[..., None]) -> Callable[..., None]:
            def save_file(tensors: Any, path: Path, **options: Any) -> None:
                crashes._around("open", lambda: real(tensors, path, **options))
                whole = path.read_bytes()
                path.write_bytes(whole[: len(whole) // 2])  # through `opening`: recorded in its turn
                path.write_bytes(whole)

            return save_file

        patches = [mock.patch.object(os, name, self._watched(name)) for name in _CALLS]
        patches += [mock.patch.object(os, "write", write), mock.patch.object(io, "open", opening)]
        patches += [
            mock.patch("builtins.open", opening),
            mock.patch.object(os, "fdopen", self._fdopen(os.fdopen, Watched)),
        ]
        import gpate.boundary.private_files as private_files

        patches.append(mock.patch.object(private_files, "save_file", saved(private_files.save_file)))
        for patch in patches:
            patch.start()
        try:
            yield self
        finally:
            for patch in reversed(patches):
                patch.stop()
            self._record()

    def _watched(self, name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def called(*args: Any, **options: Any) -> Any:
            result = self._around(name, lambda: real(*args, **options))
            if name == "fsync":
                self._sync(args[0])
            return result

        return called

    @staticmethod
    def _fdopen(real: Callable[..., Any], watched: type[io.FileIO]) -> Callable[..., Any]:
        def fdopen(descriptor: int, mode: str = "r", *args: Any, **options: Any) -> Any:
            if mode == "wb":
                return io.BufferedWriter(watched(descriptor, "w"))
            return real(descriptor, mode, *args, **options)

        return fdopen

    def _around(self, name: str, call: Callable[[], Any]) -> Any:
        self.calls[name] = self.calls.get(name, 0) + 1
        self._record()
        result = call()
        self._record()
        return result

    def _in_pieces(self, data: bytes, write: Callable[[bytes], int]) -> int:
        """Writes as a process does that is killed: half, and up to the end of each line but the last."""
        self.calls["write"] = self.calls.get("write", 0) + 1
        self._record()
        ends = {len(data) // 2, *(place + 1 for place, byte in enumerate(data[:-1]) if byte == 10)} if data else set()
        if len(ends) > 4:
            ends = {len(data) // 2}
        for begin, end in zip([0, *sorted(ends)], [*sorted(ends), len(data)], strict=True):
            if begin < end:
                assert write(data[begin:end]) == end - begin
                self._record()
        return len(data)

    def _sync(self, descriptor: int) -> None:
        facts, path = os.fstat(descriptor), Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if stat.S_ISDIR(facts.st_mode):
            self._names[facts.st_ino] = {entry.name: entry.inode() for entry in os.scandir(path)}
        elif path.exists():
            self._synced[facts.st_ino] = path.read_bytes()
        self._record()

    def _record(self) -> None:
        if not self.folder.exists():
            return
        for kind, states, state in (
            ("kill", self.kill, self._as_it_is()),
            ("power cut", self.power_cut, self._as_synced()),
        ):
            key = kind, frozenset(state.items())
            if key not in self._seen:
                self._seen.add(key)
                states.append(state)

    def _as_it_is(self) -> State:
        found = {str(path.relative_to(self.folder)): path for path in sorted(self.folder.rglob("*"))}
        return {name: None if path.is_dir() else self._once(path.read_bytes()) for name, path in found.items()}

    def _as_synced(self) -> State:
        state: State = {}
        for folder in [self.folder, *(path for path in sorted(self.folder.rglob("*")) if path.is_dir())]:
            if folder != self.folder:
                state[str(folder.relative_to(self.folder))] = None
            for name, inode in self._names.get(folder.stat().st_ino, {}).items():
                if not (folder / name).is_dir():
                    state[str((folder / name).relative_to(self.folder))] = self._once(self._synced.get(inode, b""))
        return state

    def _once(self, content: bytes) -> bytes:
        return self._contents.setdefault(content, content)


def restore(state: State, folder: Path) -> Path:
    """Writes a state to a new folder."""
    folder.mkdir(parents=True)
    for name, content in state.items():
        if content is None:
            (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    return folder
