"""The files of a release: their names, how they are written, and how they are read without trusting them.

**Writing.** Files are written atomically: to a temporary name, flushed to disk, and moved.

**Reading.** A release is untrusted input. Only the five names, and that of a signature, are opened, only as regular files (no
links, pipes or devices), each once, so that the bytes hashed are the bytes parsed. None of them is code: JSON, YAML without
tags or aliases, and safetensors, which contains numbers only.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpate.atomic_files import PARTIAL, sync
from gpate.errors import ReleaseCorrupt, ReleaseNotFound, ReleaseWriteFailed, SchemaError
from gpate.safe_parsing import attempt, load_json
from gpate.schema import ImageSchema, Schema, TableSchema

LEDGER = "ledger.jsonl"
WEIGHTS = "generator.safetensors"
SCHEMA = "schema.yaml"
CONFIG = "config.json"
CERTIFICATE = "certificate.json"
SIGNATURE = "certificate.json.sig"

CERTIFIED = (LEDGER, WEIGHTS, SCHEMA, CONFIG)
"""Files whose hashes are in the certificate."""

NAMES = (*CERTIFIED, CERTIFICATE)
"""All files of a release, beside its signature, which it may have."""

MOST_BYTES = {LEDGER: 2**27, WEIGHTS: 400 << 20, SCHEMA: 2**22, CONFIG: 2**22, CERTIFICATE: 2**22, SIGNATURE: 2**16}
"""Maximal size of a file in bytes: all of them can be verified within a gigabyte of memory."""


def names_in(folder: Path) -> list[str]:
    """The names in a release folder, sorted."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError) as problem:
        raise ReleaseNotFound(
            f"{folder} is not a folder. Fix: give the folder release/ of a finished run."
        ) from problem


def folder_problems(folder: Path) -> list[str]:
    """Missing, extra or irregular files; empty if the folder contains the five files, maybe a signature, and nothing else."""
    found = names_in(folder)
    problems = [f"{name} is missing" for name in NAMES if name not in found]
    for name in found:
        if name not in (*NAMES, SIGNATURE):
            problems.append(f"{name!r} does not belong here")
        elif not stat.S_ISREG(mode := os.lstat(folder / name).st_mode):
            problems.append(f"{name} is a {'link' if stat.S_ISLNK(mode) else 'folder or a device'}, not a plain file")
    return problems


def read(folder: Path, name: str) -> bytes:
    """The bytes of one of the five files, or of the signature."""
    if name not in (*NAMES, SIGNATURE):
        raise ReleaseCorrupt(f"A release has no file {name!r}.")
    path = folder / name
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as problem:
        names_in(folder)
        raise ReleaseNotFound(
            f"{folder} has no {name}: it is not a release, or its run is not finished. Fix: finish the run, or download it again."
        ) from problem
    except OSError as problem:
        raise ReleaseCorrupt(f"{path} is not a plain file that can be read: {problem.strerror}.") from problem
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise ReleaseCorrupt(f"{path} is not a plain file.")
        if facts.st_size > MOST_BYTES[name]:
            raise ReleaseCorrupt(f"{path} has {facts.st_size:,} bytes; gpate writes at most {MOST_BYTES[name]:,}.")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def write(folder: Path, name: str, content: bytes) -> None:
    """Write one of the files atomically."""
    assert name in (*NAMES, SIGNATURE)
    partial = folder / (name + PARTIAL)
    try:
        partial.unlink(missing_ok=True)  # of an earlier attempt that was killed
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(partial, folder / name)
        sync(folder)
    except OSError as problem:
        partial.unlink(missing_ok=True)
        raise ReleaseWriteFailed(
            f"{folder / name} could not be written ({problem.strerror}). Fix: free disk space, then resume the run."
        ) from problem


def plain(value: Any) -> Any:
    """The value as JSON data: mappings with string keys, lists, and infinity as "inf"; NaN stays and is refused."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return ("inf" if value > 0 else "-inf") if isinstance(value, float) and math.isinf(value) else value


def to_json(data: Mapping[str, Any]) -> bytes:
    """Canonical JSON: equal data give equal bytes."""
    return (json.dumps(plain(data), indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()


def from_json(content: bytes, name: str) -> dict[str, Any]:
    """The inverse of `to_json`; JSON that is not canonical is refused."""
    data = attempt(lambda: load_json(content))
    if data is None:
        raise ReleaseCorrupt(f"{name} is not JSON written by gpate.")
    if isinstance(data, dict) and attempt(lambda: to_json(data)) == content:
        return data
    raise ReleaseCorrupt(f"{name} is not in gpate's format: it was edited. Fix: download the release again.")


def schema_from(content: bytes) -> TableSchema | ImageSchema:
    """Parse the bytes of a schema file."""
    try:
        text = content.decode("utf-8")
        return Schema.from_text(text, source=SCHEMA)
    except (UnicodeDecodeError, SchemaError) as problem:
        raise ReleaseCorrupt(f"{SCHEMA} is not a schema: {problem}") from problem
