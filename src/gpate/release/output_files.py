"""Write synthetic records to files, a chunk at a time: memory does not grow with their number.

| output | for | layout |
|---|---|---|
| `.parquet` | tables | one row group per chunk; column types from the schema alone |
| folder | tables | one `part-00000.parquet` per chunk, which `gpate fit` and engines read as one table |
| `.csv` | tables | a header and one line per record, missing values empty, UTF-8 |
| `.npz` | images | `images` (uint8), with classes `labels`, and with soft labels `probabilities` [n, classes] |
| `.png` | images | one picture with all of them in a grid, one column per class if balanced |
| folder | images | one PNG per image, in a folder per class |

**Guarantee.** The output is written atomically: to a temporary name beside its path, moved there at the end, and removed on
failure (by the next write to the same path, if the process was killed). Existing files are kept unless `force` is set.
Folders are named after classes only if the name is a plain word; any other class is `class-<number>`, so that no class
name can point outside the output.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpate.atomic_files import workplace
from gpate.errors import GpateError, InvalidValue, OutputExists, OutputFailed
from gpate.release.release_files import CERTIFICATE
from gpate.schema import Boolean, Categorical, Column, Datetime, Duration, Id, ImageSchema, Integer, TableSchema
from gpate.schema.constraint_values import array_of, own_values

FOLDER = "folder"
FORMATS = {"table": (".parquet", ".csv", FOLDER), "image": (".npz", ".png", FOLDER)}

MAX_GRID = 10_000
"""Images in one picture."""

Chunks = Iterator[Any]

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_OWN_FILE = re.compile(r"[0-9]{8,}\.png|part-[0-9]{5,}\.parquet")


def format_of(path: Path, schema: TableSchema | ImageSchema) -> str:
    """The format of a path: its suffix, or a folder if it has none.

    Raises:
        InvalidValue: records of this kind have no such format; the message lists the formats.
    """
    suffix = path.suffix.lower() or FOLDER
    if suffix not in (allowed := FORMATS[schema.kind]):
        names = ", ".join("a folder (no suffix)" if name == FOLDER else name for name in allowed)
        raise InvalidValue("output", str(path), f"one of these for {schema.kind} records: {names}")
    return suffix


def check_output(path: Path, *, force: bool) -> None:
    """Raise `OutputExists` if the path exists, before any record is sampled."""
    if not path.parent.is_dir():
        raise InvalidValue("output", str(path), "in a folder that exists", f"Fix: mkdir -p {path.parent}")
    if (path.parent / CERTIFICATE).exists():
        raise InvalidValue(
            "output",
            str(path),
            "outside of a release",
            "Fix: choose another folder: nothing else belongs into what was certified.",
        )
    if not (path.exists() or path.is_symlink()):
        return
    if not force:
        raise OutputExists(f"{path} exists already. Fix: choose another name, or add --force to replace it.")
    replaceable = _own_folder(path) if path.is_dir() and not path.is_symlink() else path.is_file() or path.is_symlink()
    if not replaceable:
        raise OutputExists(f"{path} was not written by gpate, so it is not replaced. Fix: choose another name.")


def write_records(
    path: str | os.PathLike[str],
    chunks: Chunks,
    *,
    n: int,
    schema: TableSchema | ImageSchema,
    force: bool = False,
    columns: int | None = None,
    probabilities: Callable[[NDArray[np.uint8]], NDArray[np.float64]] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Path:
    """Write the chunks of `Release.sample_chunks`.

    Args:
        path: the file or folder; its suffix determines the format.
        chunks: the records.
        n: number of records.
        schema: of a record.
        force: replace existing output.
        columns: of a grid of images; a square by default.
        probabilities: soft labels of images, `Release.probabilities`, written beside them; .npz only.
        on_progress: called with the number of records of each chunk, once it is written.

    Returns:
        The path.

    Raises:
        OutputExists: the path exists.
        OutputFailed: the disk is full or failed. Nothing is left behind.
    """
    path = Path(path)
    kind = format_of(path, schema)
    check_output(path, force=force)
    if probabilities is not None and kind != ".npz":
        raise InvalidValue("output", str(path), "an .npz file for soft labels")
    if kind == ".png" and n > MAX_GRID:
        raise InvalidValue("n", n, f"at most {MAX_GRID:,} for one picture", "Write .npz, or a folder.")
    try:
        with workplace(path) as partial:
            content, counted = partial / "content", _counted(chunks, on_progress)
            if kind == ".parquet":
                _write_parquet(content, counted, schema)
            elif kind == ".csv":
                _write_csv(content, counted, schema)
            elif kind == ".npz":
                _write_npz(content, counted, n, schema, probabilities)
            elif kind == ".png":
                _write_grid(content, counted, n, schema, columns or math.ceil(math.sqrt(max(n, 1))))
            elif isinstance(schema, TableSchema):
                _write_parts(content, counted, schema)
            else:
                _write_folder(content, counted, schema)
            check_output(path, force=force)
            _move(content, path, aside=partial / "replaced")
    except GpateError:
        raise
    except OSError as problem:
        raise OutputFailed(
            f"{path} could not be written ({problem.strerror or problem}); the partial output is removed. "
            "Fix: free disk space, or write elsewhere."
        ) from problem
    return path


def _move(content: Path, path: Path, *, aside: Path) -> None:
    """Move the output to its path; an existing folder is set aside, and restored on failure."""
    try:
        if path.is_dir() and not path.is_symlink():
            os.replace(path, aside)
        os.replace(content, path)
    finally:
        if aside.exists() and not path.exists():
            os.replace(aside, path)


def class_folders(classes: Sequence[Any]) -> list[str]:
    """Folder name of each class: its own if that is a plain word, `class-<number>` otherwise."""
    names = [str(name) for name in classes]
    folded = [name.lower() for name in names]  # some file systems are case-insensitive
    plain = [bool(_PLAIN_NAME.fullmatch(name)) and folded.count(name.lower()) == 1 for name in names]
    taken = {name.lower() for name, fine in zip(names, plain, strict=True) if fine}
    width = len(str(len(names)))
    prefix = "class"
    while any(name.startswith(prefix + "-") for name in taken):
        prefix += "-x"
    return [
        name if fine else f"{prefix}-{i:0{width}d}" for i, (name, fine) in enumerate(zip(names, plain, strict=True))
    ]


def _counted(chunks: Chunks, on_progress: Callable[[int], None] | None) -> Chunks:
    for chunk in chunks:
        yield chunk
        if on_progress is not None:
            on_progress(len(chunk[0]) if isinstance(chunk, tuple) else len(chunk))


def _own_folder(path: Path) -> bool:
    """Whether a folder contains only numbered PNG files and folders of them, or numbered parts of a table."""
    for entry in os.scandir(path):
        if entry.is_symlink():
            return False
        inside = [entry] if entry.is_file() else list(os.scandir(entry.path))
        if not all(each.is_file(follow_symlinks=False) and _OWN_FILE.fullmatch(each.name) for each in inside):
            return False
    return True


# --- tables ---------------------------------------------------------------------------------------------------------


def _arrow_type(column: Column, *, text: bool) -> Any:
    """Type of a column in a file, independent of the values in a chunk."""
    import pyarrow as pa

    if isinstance(column, Id):
        return pa.string()
    if isinstance(column, Boolean):
        return pa.bool_()
    if isinstance(column, Integer):
        return pa.int64()
    if text and _has_own_text(column):
        return pa.string()
    if isinstance(column, Datetime):
        return (pa.date32() if column.unit == "day" else pa.timestamp("s")) if text else pa.timestamp("us")
    if isinstance(column, Duration) and column.format != "number":
        return pa.duration("us") if column.format == "timedelta" and not text else pa.string()
    if isinstance(column, Duration) and not column.decimals:
        return pa.int64()
    if isinstance(column, Categorical) and not isinstance(column.categories[0], float):
        return pa.string() if isinstance(column.categories[0], str) else pa.int64()
    return pa.float64()


def arrow_tables(chunks: Chunks, schema: TableSchema | ImageSchema, *, text: bool) -> tuple[Any, Iterator[Any]]:
    """The layout of all chunks, a `pyarrow.Schema`, and the chunks as Arrow tables; `text` for dates and times as texts have them."""
    import pyarrow as pa

    assert isinstance(schema, TableSchema)
    layout = pa.schema([(column.name, _arrow_type(column, text=text)) for column in schema.sampled])
    frames = (_with_texts(frame, schema) for frame in chunks) if text else chunks
    return layout, (pa.Table.from_pandas(frame, schema=layout, preserve_index=False) for frame in frames)


def _with_texts(frame: Any, schema: TableSchema) -> Any:
    """Time differences as texts with a clock, as there are none in a text file; times in their format, and decimals after a comma."""
    made = frame.copy(deep=False)
    for column in schema.columns:
        values = frame[column.name]
        if isinstance(column, Duration) and column.format == "timedelta":
            made[column.name] = array_of(replace(column, format="clock"), own_values(column, values))
        elif isinstance(column, Datetime) and column.format is not None:
            made[column.name] = values.dt.strftime(column.format)
        elif _has_own_text(column):
            made[column.name] = [None if value != value else repr(float(value)).replace(".", ",") for value in values]
    return made


def _has_own_text(column: Column) -> bool:
    """Whether its values are texts of a declared form in a text file."""
    if isinstance(column, Datetime):
        return column.format is not None
    if isinstance(column, Duration) and (column.format != "number" or not column.decimals):
        return False
    return column.decimal_comma and not isinstance(column, Integer)


def _write_parquet(path: Path, chunks: Chunks, schema: TableSchema | ImageSchema) -> None:
    import pyarrow.parquet as pq

    _, tables = arrow_tables(chunks, schema, text=False)
    first = next(tables)  # the same metadata for every chunk: pandas restores its own types
    with open(path, "wb") as file:
        with pq.ParquetWriter(file, first.schema) as writer:
            for table in itertools.chain([first], tables):
                writer.write_table(table)
        _to_disk(file)


def _write_parts(path: Path, chunks: Chunks, schema: TableSchema) -> None:
    import pyarrow.parquet as pq

    path.mkdir()
    _, tables = arrow_tables(chunks, schema, text=False)
    for number, table in enumerate(tables):
        with open(path / f"part-{number:05d}.parquet", "wb") as file:
            pq.write_table(table, file)
            _to_disk(file)


def _write_csv(path: Path, chunks: Chunks, schema: TableSchema | ImageSchema) -> None:
    from pyarrow import csv

    layout, tables = arrow_tables(chunks, schema, text=True)
    with open(path, "wb") as file:
        with csv.CSVWriter(file, layout) as writer:
            for table in tables:
                writer.write_table(table)
        _to_disk(file)


def _to_disk(file: Any) -> None:
    """Flush to disk, so that a full disk is detected before the file is moved to its path."""
    file.flush()
    os.fsync(file.fileno())


# --- images ---------------------------------------------------------------------------------------------------------


def _write_npz(
    path: Path,
    chunks: Chunks,
    n: int,
    schema: TableSchema | ImageSchema,
    probabilities: Callable[[NDArray[np.uint8]], NDArray[np.float64]] | None,
) -> None:
    """Like numpy's savez, but streamed; the same records give the same bytes."""
    assert isinstance(schema, ImageSchema)
    shape = (n, schema.height, schema.width, *([schema.channels] if schema.channels > 1 else []))
    labels, soft = list[NDArray[Any]](), list[NDArray[Any]]()
    with open(path, "wb") as file:
        with zipfile.ZipFile(file, "w") as archive:
            with archive.open(zipfile.ZipInfo("images.npy"), "w", force_zip64=True) as entry:
                header = {"descr": "|u1", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(entry, header)
                for images, classes in chunks:
                    entry.write(np.ascontiguousarray(images).data)
                    labels += [] if classes is None else [classes]
                    soft += [] if probabilities is None else [probabilities(images).astype(np.float32)]
            for name, parts in (("labels", labels), ("probabilities", soft)):
                if parts:
                    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                        np.lib.format.write_array(entry, np.concatenate(parts), allow_pickle=False)
        _to_disk(file)


def _write_grid(path: Path, chunks: Chunks, n: int, schema: TableSchema | ImageSchema, columns: int) -> None:
    from PIL import Image

    assert isinstance(schema, ImageSchema)
    height, width = schema.height + 1, schema.width + 1  # one pixel between neighbours
    rows = max(1, math.ceil(n / columns))
    colour = (schema.channels,) if schema.channels > 1 else ()
    canvas = np.full((rows * height - 1, columns * width - 1, *colour), 255, dtype=np.uint8)
    at = 0
    for images, _ in chunks:
        for image in images:
            top, left = at // columns * height, at % columns * width
            canvas[top : top + schema.height, left : left + schema.width] = image
            at += 1
    with open(path, "wb") as file:
        Image.fromarray(canvas).save(file, format="PNG")
        _to_disk(file)


def _write_folder(path: Path, chunks: Chunks, schema: TableSchema | ImageSchema) -> None:
    from PIL import Image

    path.mkdir()
    folders = dict(zip(schema.classes, class_folders(schema.classes), strict=True))
    at = 0
    for images, labels in chunks:
        for i, image in enumerate(images):
            place = path if labels is None else path / folders[labels[i].item()]
            place.mkdir(exist_ok=True)
            with open(place / f"{at:08d}.png", "wb") as file:
                Image.fromarray(image).save(file, format="PNG")
            at += 1
