"""Private input: tables and images as `gpate fit` reads them, from the file to tensors and to what the partition hashes.

Canaries stand among their values, and no message may hold one. Every number that a message may hold is listed here.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from gpate.datasets import dataset
from gpate.errors import GpateError, SchemaError
from gpate.records import read_columns
from gpate.records.content_hash import hash_rows
from gpate.records.raw import RawRecords
from gpate.records.source import open_source
from gpate.safe_parsing import Limits
from gpate.schema import ImageSchema, Schema, TableSchema
from gpate.schema.codec import ImageCodec, TableCodec
from gpate.schema.draft import draft
from gpate.schema.file_types import column_types
from tests.fuzz.harness import Make, Target
from tests.fuzz.mutate import mutated, mutated_tree
from tests.records.reading import read

LIMITS = Limits(image_pixels=2**14, total_bytes=2**22)
CANARIES = ("Zebedee", "918273", "55443322", "771100", "Quixote")
TABLE = Schema.from_dict(
    {
        "kind": "table",
        "target": "group",
        "columns": {
            "age": {"type": "integer", "bounds": [0, 120]},
            "wage": {"type": "numeric", "bounds": [0, 1000000], "scale": "arcsinh", "missing": True},
            "name": {"type": "categorical", "categories": ["a", "b", "other"], "other": "other", "missing": True},
            "code": {"type": "categorical", "categories": [1, 2, 3]},
            "member": {"type": "boolean", "missing": True},
            "seen": {"type": "datetime", "bounds": ["2001-01-01", "2030-12-31"], "unit": "day", "missing": True},
            "group": {"type": "categorical", "categories": ["x", "y"]},
        },
    }
)
WITH_ID = Schema.from_dict({**TABLE.to_dict(), "row_id": "id"})
NO_TARGET = Schema.from_dict({key: value for key, value in TABLE.to_dict().items() if key != "target"})
IMAGES = ImageSchema(height=8, width=8, classes=("cat", "dog"))
GREY = ImageSchema(height=8, width=8)
COLOUR = ImageSchema(height=8, width=8, channels=3)
WITH_NAMES = ImageSchema(height=8, width=8, classes=("cat", "dog"), row_id="person")

# UTF-8, eight bits; a time as messages show it; sizes and channels of the schema; the limits; the classes' first number
PUBLIC = frozenset(re.findall(r"\d+", "8 2001-01-31 12:30:00 1 3 0 255 8 x 8 uint8 0..255 16384 4194304"))


def _rows(count: int = 37) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "id": [f"Quixote-{i}" for i in range(count)],
            "age": rng.integers(20, 90, count),
            "wage": [918273.5 if i % 5 else np.nan for i in range(count)],
            "name": [("a", "b", "Zebedee", None)[i % 4] for i in range(count)],
            "code": rng.integers(1, 4, count),
            "member": [(True, False)[i % 2] for i in range(count)],
            "seen": pd.date_range("2001-03-04", periods=count, freq="17D"),
            "group": [("x", "y")[i % 2] for i in range(count)],
        }
    )


def _both_ways(path: Path, schema: TableSchema | ImageSchema) -> RawRecords:
    """The records, read whole; read in batches they are the same."""
    key, batched = bytes(32), None
    try:
        batches = open_source(path, schema=schema, limits=LIMITS).batches(size=10)
        hashes = [hash_rows(batch.content(), key=key) for batch in batches]
        batched = np.concatenate(hashes) if hashes else np.zeros(0)  # a folder without images
    except GpateError:  # what only a whole file shows is not seen in batches, and the other way round
        if path.is_file() and path.stat().st_size % 2:  # so that the messages of both ways are looked at
            raise
    records = read(path, schema, limits=LIMITS)
    whole = hash_rows(records.content(), key=key)
    assert batched is None or np.array_equal(batched, whole), "records in batches are not those read whole"
    return records


def _table_case(path: Path, schema: TableSchema) -> None:
    TableCodec(schema).encode(_both_ways(path, schema).records)


def _draft_case(path: Path) -> None:
    """`gpate schema init`: what it writes is refused as unfinished, or is a schema."""
    types = column_types(path)
    text = draft(types)
    read_columns(path, list(types)[:3])
    try:
        Schema.from_text(text)
    except SchemaError as problem:
        assert "not valid YAML" not in str(problem)  # noqa: PT017 - which error it is is the claim


# --- csv -------------------------------------------------------------------------------------------------------------

_CSV_WORDS = (
    *(b",", b"\n", b"\r", b"\r\n", b'"', b'""', b"\0", b"\xff", b"\xef\xbb\xbf", b";", b"\t", b" ", b"#", b"'", b"\\"),
    *(b"Zebedee", b"918273", b"55443322", b"Quixote", b"nan", b"NA", b"None", b"inf", b"-inf", b"1e999", b"-0", b"1_0"),
    *(b"9" * 400, b"1e-400", b"true", b"False", b"0x10", b"\xd9\xa1", b"1;2", b"99999-99-99", b"2001-01-01T00:00:00Z"),
    *(b"2001-02-30", b"0000-00-00", b"9999999-01-01", b"age,", b"id,", b"group", b"=cmd()", b"a" * 70_000),
)


def _csv(folder: Path) -> Make:
    frame = _rows()
    plain = frame.drop(columns="id")
    seeds = [
        frame.to_csv(index=False).encode(),
        plain.to_csv(index=False).encode(),
        plain.head(5).to_csv(index=False, lineterminator="\r\n", quoting=1).encode(),
        b"age,wage,name,code,member,seen,group,\n55443322,918273,Zebedee,1,true,2001-01-01,x,Quixote\n",
    ]
    schemas = (WITH_ID, TABLE, NO_TARGET, TABLE)

    def make(rng: Random, folder: Path) -> Callable[[], None]:
        which = rng.randrange(len(seeds))
        data = mutated(seeds[which], rng, seeds, _CSV_WORDS)
        if rng.random() < 0.1:
            path = folder / ("table.csv.gz" if (packed := rng.random() < 0.5) else "table.csv")
            path.write_bytes(mutated(gzip.compress(data, 1), rng) if packed else data)
            return partial(_draft_case, path)
        path = folder / "table.csv"
        path.write_bytes(data)
        return partial(_table_case, path, schemas[which] if rng.random() < 0.7 else rng.choice(schemas))

    return make


# --- parquet ---------------------------------------------------------------------------------------------------------


def _parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def _odd_columns() -> list[Any]:
    """Columns of other types than the schema's, under the schema's names."""
    import datetime
    import decimal

    return [
        pa.array([[55443322], [1, 2], None, []]),
        pa.array([{"a": 55443322}, None, {"a": 1}, {"a": 2}]),
        pa.array([b"Zebedee", b"\xff", None, b""]),
        pa.array([decimal.Decimal("918273.50"), None, decimal.Decimal(1), decimal.Decimal(2)]),
        pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None, datetime.date(2001, 1, 1)]),
        pa.array([0, 2**62, -(2**62), None], pa.timestamp("us")),
        pa.array([0, 2**52, -(2**52), None], pa.timestamp("s")),
        pa.array([0, 1, 2, None], pa.timestamp("ns", tz="UTC")),
        pa.array([0, 1, 55443322, None], pa.time64("us")),
        pa.array([0, 1, 55443322, None], pa.duration("s")),
        pa.array([2**64 - 1, 0, 1, None], pa.uint64()),
        pa.array([1.5, 0, np.nan, None], pa.float16()),
        pa.array([None] * 4, pa.null()),
        pa.array(["Zebedee", "a", None, "b"]).dictionary_encode(),
        pa.array([55443322, 1, None, 1]).dictionary_encode(),
        pa.array(["Zebedee", "a", None, "b"], pa.large_string()),
        pa.array([[("Zebedee", 1)], None, [], [("a", 2)]], pa.map_(pa.string(), pa.int64())),
        pa.array([True, False, None, True]),
        pa.array(["x", "y", "x", "y"]),
        pa.array([1, 2, 3, 1]),
        pa.array([b"16 bytes of data"] * 4, pa.binary(16)),
    ]


def _parquet(folder: Path) -> Make:
    frame = _rows(19)
    plain = frame.drop(columns="id")
    table = pa.Table.from_pandas(plain)
    seeds = [
        _parquet_bytes(pa.Table.from_pandas(frame)),
        _parquet_bytes(table, compression="none"),
        _parquet_bytes(table.replace_schema_metadata(None), compression="gzip", use_dictionary=False),
        _parquet_bytes(table, row_group_size=4, compression="zstd", data_page_version="2.0"),
    ]
    schemas = (WITH_ID, TABLE, TABLE, NO_TARGET)
    odd, names = _odd_columns(), list(NO_TARGET.names)
    notes = json.loads(table.schema.metadata[b"pandas"])

    def odd_table(rng: Random) -> bytes:
        columns = [rng.choice(odd) for _ in names]
        called = [rng.choice(names) if rng.random() < 0.05 else name for name in names]
        made = pa.Table.from_arrays(columns, names=called)
        if rng.random() < 0.5:
            made = made.replace_schema_metadata({"pandas": json.dumps(mutated_tree(notes, rng), default=str)})
        return _parquet_bytes(made)

    def make(rng: Random, folder: Path) -> Callable[[], None]:
        which, path = rng.randrange(len(seeds)), folder / "table.parquet"
        kind = rng.random()
        if kind < 0.15:
            data = odd_table(rng)
        elif kind < 0.55:  # the footer, where the counts and offsets are
            at = len(seeds[which]) - int.from_bytes(seeds[which][-8:-4], "little") - 8
            footer = mutated(seeds[which][at:-8], rng)
            tail = footer + len(footer).to_bytes(4, "little") + b"PAR1"
            data = seeds[which][:at] + tail
        else:
            data = mutated(seeds[which], rng, seeds)
        path.write_bytes(data)
        if rng.random() < 0.1:
            return partial(_draft_case, path)
        return partial(_table_case, path, schemas[which] if rng.random() < 0.7 else rng.choice(schemas))

    return make


# --- images ----------------------------------------------------------------------------------------------------------

_IMAGE_FORMATS = {"png": {}, "jpeg": {}, "gif": {}, "bmp": {}, "tiff": {}, "ppm": {}, "webp": {"lossless": True}}
_IMAGE_WORDS = (b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tEXt", b"zTXt", b"iCCP", b"eXIf", b"acTL", b"fcTL", b"\xff\xda")


def _pictures() -> dict[str, list[bytes]]:
    rng = np.random.default_rng(0)
    made: dict[str, list[bytes]] = {}
    for kind, options in _IMAGE_FORMATS.items():
        for mode, shape in (("L", (8, 8)), ("RGB", (8, 8, 3))):
            out = io.BytesIO()
            Image.fromarray(rng.integers(0, 256, shape).astype(np.uint8), mode).save(out, kind, **options)
            made.setdefault(kind, []).append(out.getvalue())
    for compression in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"):
        out = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (8, 8)).astype(np.uint8)).save(out, "tiff", compression=compression)
        made["tiff"].append(out.getvalue())
    out = io.BytesIO()
    Image.fromarray(np.zeros((3000, 3000), dtype=np.uint8)).save(out, "png")
    made["png"].append(out.getvalue())  # a small file of many pixels
    return made


def _image_case(path: Path, schema: ImageSchema) -> None:
    ImageCodec(schema).encode(_both_ways(path, schema).records)


def _images(folder: Path) -> Make:
    pictures = _pictures()
    everything = [data for each in pictures.values() for data in each]
    good = pictures["png"][0]
    outside = folder / "outside"
    outside.mkdir()
    (outside / "Zebedee.png").write_bytes(good)
    (outside / "labels.csv").write_text("file,label,person\n771100.png,cat,Quixote\n")

    def make(rng: Random, folder: Path) -> Callable[[], None]:
        kind = rng.choice(list(pictures))
        data = mutated(rng.choice(pictures[kind]), rng, everything, _IMAGE_WORDS)
        suffix = kind if rng.random() < 0.9 else rng.choice(list(pictures))
        for name in ("cat", "dog"):
            (folder / name).mkdir()
        (folder / "dog" / "Zebedee-1.png").write_bytes(good)
        (folder / "cat" / f"771100.{suffix}").write_bytes(data)
        schema = rng.choice((IMAGES, COLOUR, IMAGES, WITH_NAMES))
        if schema is WITH_NAMES or rng.random() < 0.1:
            _listing(rng, folder, suffix)
        if rng.random() < 0.1:
            _link(rng, folder, outside)
        return partial(_image_case, folder, schema)

    return make


def _listing(rng: Random, folder: Path, suffix: str) -> None:
    rows = ["file,label,person", "dog/Zebedee-1.png,dog,Quixote-1", f"cat/771100.{suffix},cat,Quixote-2"]
    places = (
        "../outside/Zebedee.png",
        "/etc/passwd",
        "dog/../../outside/Zebedee.png",
        "dog",
        ".",
        "",
        "dog/\0.png",
        "~",
    )
    if rng.random() < 0.5:
        rows.append(f"{rng.choice(places)},cat,Quixote-3")
    text = "\n".join(rows).encode() + b"\n"
    (folder / "labels.csv").write_bytes(mutated(text, rng, (), _CSV_WORDS) if rng.random() < 0.7 else text)


def _link(rng: Random, folder: Path, outside: Path) -> None:
    kind = rng.randrange(5)
    if kind == 0:
        os.symlink(outside / "Zebedee.png", folder / "cat" / "link.png")
    elif kind == 1:
        os.symlink(outside, folder / "bird")
    elif kind == 2:
        os.symlink(folder / "cat", folder / "cat" / "loop")
    elif kind == 3 and not (folder / "labels.csv").exists():
        os.symlink(outside / "labels.csv", folder / "labels.csv")
    else:
        os.mkfifo(folder / "cat" / "pipe.png")


# --- npz -------------------------------------------------------------------------------------------------------------


class _Bait:
    """What a pickle would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("true",)


def _npy(descr: str, shape: str, body: bytes, version: bytes = b"\x01\x00") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header + body


def _npz(folder: Path) -> Make:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (9, 8, 8)).astype(np.uint8)
    labels, names = np.arange(9) % 2, np.array(["cat", "dog"])[np.arange(9) % 2]
    ids = np.array([f"Quixote-{i}" for i in range(9)])
    seeds = [
        _packed(np.savez, images=images, labels=labels),
        _packed(np.savez_compressed, x_train=images, y_train=names, ids=ids),
        _packed(np.savez, images=images[..., None], labels=labels, ids=np.arange(9) + 55443322),
        _packed(np.savez_compressed, x=np.repeat(images[..., None], 3, 3)),
        _packed(np.savez, images=np.array([_Bait()] * 9, dtype=object), labels=labels),
    ]
    bait = _pickle_bytes()
    descrs = (
        "'|u1'",
        "'|O'",
        "'<i8'",
        "'|V0'",
        "'|S0'",
        "'<U1000000'",
        "[('a', '|O')]",
        "'<M8[ns]'",
        "'|u1' * 9",
        "b''",
    )
    shapes = ("(9, 8, 8)", "(9,)", "()", "(-1, 8, 8)", "(99999999999, 8, 8)", "(9, 8)", "(0, 8, 8)", f"({'9' * 30},)")
    members = ("images.npy", "labels.npy", "ids.npy", "images", "../images.npy", "/etc/x.npy", "x.npy", "y", "row_ids")
    schemas = (IMAGES, COLOUR, WITH_NAMES, GREY)

    def archive(rng: Random) -> bytes:
        out = io.BytesIO()
        with warnings.catch_warnings(), zipfile.ZipFile(out, "w", rng.choice((0, 8, 12, 14))) as file:
            warnings.simplefilter("ignore")  # a name given twice
            for name in [members[0], *(rng.choice(members) for _ in range(rng.randrange(4)))]:
                body = rng.choice((images.tobytes(), bait, b"", bytes(2**16), b"[" * 3000))
                data = rng.choice((_npy(rng.choice(descrs), rng.choice(shapes), body), body, _array_bytes(images)))
                file.writestr(name, mutated(data, rng) if rng.random() < 0.3 else data)
        return out.getvalue()

    def make(rng: Random, folder: Path) -> Callable[[], None]:
        data = archive(rng) if rng.random() < 0.4 else rng.choice(seeds)
        path = folder / "images.npz"
        path.write_bytes(data if rng.random() < 0.2 else mutated(data, rng, seeds, (b"PK\1\2", b"PK\3\4", b"PK\5\6")))
        schema = rng.choice(schemas)
        return partial(_image_case, path, schema)

    return make


def _packed(save: Callable[..., None], **arrays: Any) -> bytes:
    out = io.BytesIO()
    save(out, **arrays)
    return out.getvalue()


def _array_bytes(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def _pickle_bytes() -> bytes:
    import pickle

    return pickle.dumps(_Bait())


# --- packed pictures of a benchmark set ------------------------------------------------------------------------------


def _celeba(folder: Path) -> Make:
    from gpate_research.datasets.celeba import HAIR

    pictures = [_square(i) for i in range(2)]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", 8) as file:
        for i, picture in enumerate(pictures):
            file.writestr(f"{i:06d}.png", picture)
    frame = pd.DataFrame({"image_id": [f"{i:06d}.png" for i in range(2)], "Male": [0, 1], "partition": [0, 0]})
    for i, name in enumerate(HAIR.values()):
        frame[name] = [int(row % 3 == i) for row in range(2)]
    archive, attributes = out.getvalue(), _parquet_bytes(pa.Table.from_pandas(frame))

    def make(rng: Random, folder: Path) -> Callable[[], None]:
        broken = rng.random()
        (folder / "celeba64-0.zip").write_bytes(mutated(archive, rng) if broken < 0.8 else archive)
        (folder / "celeba-attributes.parquet").write_bytes(mutated(attributes, rng) if broken > 0.7 else attributes)
        os.environ |= {"GPATE_DATA": str(folder), "GPATE_CACHE": str(folder / "cache")}
        return _celeba_case

    return make


def _celeba_case() -> None:
    schema = Schema.load(dataset("celeba-gender-s").schema_path)
    hash_rows(read("celeba-gender-s", schema).content(), key=bytes(32))


def _square(i: int) -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(i).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    Image.fromarray(pixels // 64 * 64).save(out, "png")
    return out.getvalue()


TARGETS = (
    Target(name="csv", setup=_csv, canaries=CANARIES, numbers=PUBLIC),
    Target(name="parquet", setup=_parquet, canaries=CANARIES, numbers=PUBLIC),
    Target(name="images", setup=_images, canaries=CANARIES, numbers=PUBLIC),
    Target(name="npz", setup=_npz, canaries=CANARIES, numbers=PUBLIC),
    Target(name="celeba", setup=_celeba),
)
