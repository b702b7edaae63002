"""Schema files, as a person writes them and anyone may change them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import yaml

from gpate.schema import ImageSchema, Schema
from gpate.schema.codec import TableCodec
from tests.fuzz.harness import Make, Target
from tests.fuzz.mutate import mutated, mutated_tree

_IMAGES = ImageSchema(height=28, width=28, classes=("cat", "dog"), row_id="file")
_FEW = Schema.from_dict(
    {
        "kind": "table",
        "target": "job",
        "row_id": "id",
        "columns": {
            "age": {"type": "integer", "bounds": [17, 90]},
            "fare": {"type": "numeric", "bounds": [0.5, 512], "scale": "log", "missing": True},
            "job": {"type": "categorical", "categories": ["Clerk", "Cook"], "other": "Cook"},
        },
    }
)
_OTHERS = Schema.from_dict(
    {
        "kind": "table",
        "description": "one line",
        "columns": {
            "grade": {"type": "categorical", "categories": [1, 2.5]},
            "married": {"type": "boolean", "missing": True},
            "joined": {"type": "datetime", "bounds": ["2001-01-01", "2024-12-31"], "unit": "day"},
        },
    }
)
_RULED = Schema.from_dict(
    {
        "kind": "table",
        "columns": {
            "visit": {"type": "id", "format": "V-{number:04d}"},
            "low": {"type": "integer", "bounds": [0, 9]},
            "high": {"type": "integer", "bounds": [0, 9], "missing": True},
            "sum": {"type": "integer", "bounds": [0, 18], "missing": True},
            "job": {"type": "categorical", "categories": ["Clerk", "Cook"]},
        },
        "constraints": [
            "low <= high",
            "sum = low + high",
            "if job = Cook and low in [1, 2] then high not missing",
            {"combinations": {"columns": ["job", "low"], "rows": [["Clerk", 1], ["Cook", 2]]}},
            {"unique": ["visit"]},
        ],
    }
)
_WORDS = (
    *(
        b"!!python/object/apply:os.system ['true']",
        b"!!python/name:os.system",
        b"!!int ",
        b"!!timestamp x",
        b"!!bool x",
    ),
    *(b"&a [*a]", b"*a", b"&a ", b"<<: *a", b"!!binary x", b"!!set {a}", b"!!float x", b"? ", b"- ", b": ", b"[", b"{"),
    *(
        b"]",
        b"}",
        b"'",
        b'"',
        b"|\n",
        b">\n",
        b"\t",
        b"---\n",
        b"...\n",
        b"%YAML 9.9\n",
        b"#",
        b"2001-99-99",
        b"1_0:99",
    ),
    *(
        b"0x",
        b"0b2",
        b"9" * 5000,
        b".inf",
        b".nan",
        b"~",
        b"null",
        b"=",
        b"\\ud800",
        b"\xff",
        b"\0",
        b"\xe2\x80\xa8",
        b"@",
    ),
)
_NAMES = (
    "type",
    "bounds",
    "categories",
    "other",
    "missing",
    "scale",
    "unit",
    "kind",
    "target",
    "row_id",
    "columns",
    "age",
    "constraints",
    "combinations",
    "rows",
    "unique",
    "format",
)


def _laughs(rng: Random) -> bytes:
    """Lists of lists of the same lists: a few lines that stand for 9^n entries."""
    depth = rng.randrange(3, 40)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, depth)]
    where = rng.choice(("columns", "kind", "target", "columns: {age: {type: integer, bounds", "classes"))
    close = "}" * where.count("{")
    head = "kind: table" if rng.random() < 0.5 else "kind: image\nheight: 8\nwidth: 8"
    return "\n".join([head, *lines, f"{where}: *a{depth - 1}{close}"]).encode()


def _schema(folder: Path) -> Make:
    schemas = (_FEW, _OTHERS, _IMAGES, _RULED)  # small ones: YAML is read at 100 kB a second
    trees = [schema.to_dict() for schema in schemas]
    seeds = [schema.to_text().encode() for schema in schemas]

    def make(rng: Random, folder: Path) -> Callable[[], None]:
        kind = rng.random()
        if kind < 0.3:
            tree = mutated_tree(rng.choice(trees), rng, _NAMES)
            data = yaml.dump(tree, Dumper=_Dumper, allow_unicode=True).encode("utf-8", "surrogatepass")
        elif kind < 0.32:
            data = _laughs(rng)
        else:
            data = mutated(rng.choice(seeds), rng, seeds, _WORDS, most=4000 if rng.random() < 0.99 else 100_000)
        path = folder / "schema.yaml"
        path.write_bytes(data)
        return partial(_schema_case, path)

    return make


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def _schema_case(path: Path) -> None:
    schema = Schema.load(path)
    assert Schema.from_text(schema.to_text().encode().decode()) == schema
    if not isinstance(schema, ImageSchema):
        TableCodec(schema)


TARGETS = (Target(name="schema", setup=_schema),)
