"""Releases from strangers: loaded, verified and sampled.

A certificate is not a signature, so half of the cases are signed anew after the injury: hashes, fingerprint and the
ledger's chain are those of what the files now say, and the readers behind them are reached.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import yaml

from gpate.accounting import ledger as ledgers
from gpate.accounting.events import EVENT_TYPES
from gpate.accounting.hash_chain import GENESIS, linked
from gpate.errors import GpateError
from gpate.generators.mixture import ColumnSpec, Mixture, MixtureSpec
from gpate.release import Release, verify
from gpate.release import release_files as files
from gpate.release.certificate import Certificate, FileRecord
from gpate.release.output_files import write_records
from gpate.release.verify import _check_epsilon, _Checklist
from gpate.schema import ImageSchema, Schema
from gpate.schema.codec import TableCodec
from tests.fuzz.harness import Make, Target
from tests.fuzz.mutate import mutated, mutated_tree
from tests.releases import make_release

_TABLE = Schema.from_dict(
    {
        "kind": "table",
        "target": "job",
        "columns": {
            "age": {"type": "integer", "bounds": [17, 90], "missing": True},
            "job": {"type": "categorical", "categories": ["Clerk", "../Cook"]},
        },
    }
)
_IMAGES = ImageSchema(height=8, width=8, classes=("cat", "../../dog"))
_NAMES = ("kind", "classes", "width", "height", "channels", "latent", "softmax", "network", "maps", "columns", "count")
_WORDS = (
    b"[",
    b"{",
    b"null",
    b"NaN",
    b"1e999",
    b'"',
    b"-",
    b"9" * 400,
    b"\\ud800",
    b"\xff",
    b"\0",
    b'"a":',
    b"F64",
    b"\n",
)
"""And the words of safetensors: F64 and its kin."""


def _release(folder: Path) -> Make:
    originals = []
    for name, make in (
        ("table", partial(make_release, schema=_TABLE)),
        ("images", partial(make_release, schema=_IMAGES)),
        ("mixture", _mixture_release),
    ):
        make(folder / name)
        originals.append({file: (folder / name / file).read_bytes() for file in files.NAMES})
    (folder / "outside.json").write_bytes(originals[0][files.CERTIFICATE])

    def make_case(rng: Random, folder: Path) -> Callable[[], None]:
        content = dict(rng.choices(originals, (5, 4, 1))[0])  # building a mixture is slow
        name = rng.choice(files.NAMES)
        content[name] = _injured(name, content[name], rng, originals)
        if rng.random() < 0.6:
            content[files.CERTIFICATE] = _signed(content)
        for file, data in content.items():
            (folder / file).write_bytes(data)
        if rng.random() < 0.02:
            _disturb(rng, folder)
        return partial(_case, folder, rng)

    return make_case


def _mixture_release(folder: Path) -> None:
    columns = (ColumnSpec(kind="number", start=0, cells=5, missing=True),)
    spec = MixtureSpec(width=TableCodec(_TABLE).width, columns=columns, components=(2, 3), groups=((2,), (5,)))
    make_release(folder, _TABLE, spec=spec, weights=Mixture(spec).state_dict(), shares=[0.5, 0.5])


def _case(folder: Path, rng: Random) -> None:
    if rng.random() < 0.5:
        assert verify(folder).checks  # it never raises for a folder that is there
        return
    release = Release.load(folder, check=rng.random() < 0.3)
    if rng.random() < 0.1:
        place = folder / "out"
        place.mkdir()
        name = rng.choice(("a.csv", "a.parquet") if release.schema.kind == "table" else ("a.npz", "a.png", "a"))
        write_records(place / name, release.sample_chunks(3, seed=0), n=3, schema=release.schema)
        assert os.listdir(place) == [name]


def _injured(name: str, data: bytes, rng: Random, originals: list[dict[str, bytes]]) -> bytes:
    others = [each[name] for each in originals]
    if rng.random() < 0.35:
        return mutated(data, rng, others, _WORDS, most=20_000)
    if name == files.WEIGHTS:
        return _injured_weights(data, rng)
    if name == files.LEDGER:
        return _injured_ledger(data, rng)
    if name == files.SCHEMA:
        tree = mutated_tree(yaml.safe_load(data), rng, _NAMES)
        return yaml.safe_dump(tree, allow_unicode=True, sort_keys=False).encode("utf-8", "surrogatepass")
    return _json(mutated_tree(json.loads(data), rng, _NAMES))


def _json(tree: Any) -> bytes:
    return (json.dumps(files.plain(tree), indent=2, ensure_ascii=False, default=str) + "\n").encode(
        "utf-8", "surrogatepass"
    )


def _injured_weights(data: bytes, rng: Random) -> bytes:
    """The header as a tree, its length, or the numbers themselves."""
    size = int.from_bytes(data[:8], "little")
    header, body = data[8 : 8 + size], data[8 + size :]
    kind = rng.random()
    if kind < 0.5:
        header = json.dumps(
            mutated_tree(json.loads(header), rng, ("dtype", "shape", "data_offsets")), default=str
        ).encode()
    elif kind < 0.7:
        numbers = bytearray(body)
        for _ in range(rng.randrange(1, 20)):
            at = rng.randrange(len(numbers) // 4) * 4
            numbers[at : at + 4] = struct.pack("<f", rng.choice((0.0, -1.0, 1e38, float("inf"), float("nan"), 5.0)))
        body = bytes(numbers)
    length = len(header) if kind < 0.9 else rng.choice((0, 1, 2**31, 2**63, 2**64 - 1, len(data), len(header) + 1))
    return length.to_bytes(8, "little") + header + body


def _injured_ledger(data: bytes, rng: Random) -> bytes:
    """Lines whose chain holds, saying what no gate wrote."""
    lines = []
    for line in data.splitlines():
        content = json.loads(line)
        content.pop("chain")
        lines.append(content)
    at = rng.randrange(len(lines))
    if "event" in lines[at] and rng.random() < 0.5:
        kind = rng.choice(list(EVENT_TYPES))
        values = (1, 2, 0.5, 1e-9, 1e9, 40.0, 2.0**-20, 10**18, 1e-300, 1e300, None, "a", -1, 10**400)
        fields = ("count", "sigma", "grid", "sensitivity", "dimension", "bins", "threshold", "columns", "scale")
        fields += ("noise_multiplier", "sampling_probability", "beta", "reason")
        known = [name for name in fields if name in getattr(EVENT_TYPES[kind], "__dataclass_fields__", {})]
        lines[at]["event"] = {"kind": kind, **{name: rng.choice(values) for name in known if rng.random() < 0.9}}
    else:
        lines[at] = mutated_tree(lines[at], rng, _NAMES)
    chain, out = GENESIS, b""
    for content in lines:
        body = json.dumps(content, separators=(",", ":"), default=str).encode()
        chain, line = linked(chain, body)
        out += line
    return out


def _signed(content: dict[str, bytes]) -> bytes:
    """The certificate of what the files now say, where it can be read at all."""
    try:
        certificate = Certificate.from_bytes(content[files.CERTIFICATE])
    except GpateError:
        return content[files.CERTIFICATE]
    return replace(certificate, files={name: FileRecord.of(content[name]) for name in files.CERTIFIED}).to_bytes()


def _disturb(rng: Random, folder: Path) -> None:
    """Links, folders and pipes where files belong."""
    path = folder / rng.choice(files.NAMES)
    path.unlink()
    kind = rng.randrange(5)
    if kind == 0:
        os.symlink(folder.parent / "outside.json", path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        os.mkfifo(path)
    elif kind == 3:
        os.symlink(path, path)


def _ledger(folder: Path) -> Make:
    make_release(folder / "table", _TABLE)
    original = (folder / "table" / files.LEDGER).read_bytes()

    def make(rng: Random, folder: Path) -> Callable[[], None]:
        raw = mutated(original, rng, (), _WORDS, most=20_000) if rng.random() < 0.2 else _injured_ledger(original, rng)
        return partial(_ledger_case, raw)

    return make


def _ledger_case(raw: bytes) -> None:
    contents = ledgers.parse_ledger(raw, source=files.LEDGER)
    rows = _Checklist()
    _check_epsilon(rows, contents, None, None)
    assert rows.rows


TARGETS = (Target(name="ledger", setup=_ledger), Target(name="release", setup=_release))
