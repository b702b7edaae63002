"""The benchmark sets by name, each with its split and its public schema.

Digits is built in; other packages add theirs as plug-ins (`gpate.plugins`), as gpate-research does with the sets of the
paper. A training split is treated as private records are: nothing here prints or logs any of it.

    >>> loaded = load("digits")
    >>> loaded.images.shape, len(load("digits", "test").labels)
    ((1437, 8, 8), 360)
"""

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from gpate.datasets.digits import DIGITS
from gpate.datasets.loaded import Dataset, Loaded, Split
from gpate.errors import DataNotFound, InvalidValue, PluginError, SchemaError, shown
from gpate.plugins import DATASET_PLUGINS, plugins
from gpate.schema import Boolean, Categorical, ImageSchema, Schema, TableSchema


class _Registry(Mapping[str, Dataset]):
    """All sets by name. Plug-ins are read at the first look and not before: they import this package themselves."""

    @cached_property
    def _known(self) -> dict[str, Dataset]:
        known = {DIGITS.name: DIGITS}
        for plugin, sets in plugins(DATASET_PLUGINS).items():
            if not isinstance(sets, Mapping) or not all(isinstance(found, Dataset) for found in sets.values()):
                raise PluginError(DATASET_PLUGINS, plugin, "must be a mapping from names to gpate.datasets.Dataset")
            for name, found in sets.items():
                if name in known:
                    raise PluginError(DATASET_PLUGINS, plugin, f"has a set {name!r}, and that name is taken")
                known[name] = found
        return known

    def __getitem__(self, name: str) -> Dataset:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


DATASETS: Mapping[str, Dataset] = _Registry()


def dataset(name: str) -> Dataset:
    """The set of this name."""
    if name not in DATASETS:
        raise InvalidValue("data set", name, f"one of {', '.join(DATASETS)}", _how_to_get_more())
    return DATASETS[name]


def benchmark_named(data: object) -> str | None:
    """The name of a set, if a text is one; a `Path` never is.

    Raises:
        InvalidValue: there is a file or folder of that name too.
    """
    if not isinstance(data, str) or data not in DATASETS:
        return None
    if Path(data).exists():
        fix = f"Fix: ./{data} for the file or folder; for the benchmark, work in a folder without one."
        raise InvalidValue("data", data, "not both a benchmark's name and a file or folder here", fix)
    return data


def no_such_source(given: object) -> DataNotFound:
    """The error for what is neither a benchmark's name nor a file or folder."""
    fix = f"Fix: give a file, a folder, or one of {', '.join(DATASETS)}."
    return DataNotFound(f"There is no {given}. {fix} {_how_to_get_more()}".rstrip())


def _how_to_get_more() -> str:
    """How to make more names known; empty if a plug-in has brought some."""
    if plugins(DATASET_PLUGINS):
        return ""
    return "mnist, adult and the paper's other sets come with gpate-research. Fix: pip install -e research"


def load(name: str, split: Split = "train") -> Loaded:
    """One split of a set: `Dataset.load` says what can go wrong."""
    return dataset(name).load(split)


def benchmark_of(schema: Schema) -> str | None:
    """The set that has this very schema, if there is one."""
    return next((name for name, known in DATASETS.items() if known.schema == schema), None)


def schema_for(schema: Any, name: str | None = None, target: str | None = None) -> TableSchema | ImageSchema:
    """The public schema: the one that was given, or a benchmark's own."""
    if schema is None and name is not None:
        schema = DATASETS[name].schema
    if schema is None:
        raise SchemaError(
            "A schema is needed: bounds and categories read off the data would leak. "
            "Fix: for a table `gpate schema init DATA -o schema.yaml`, fill it in, and give it as schema; for images write "
            "{kind: image, height: 28, width: 28, channels: 1, classes: [a, b]} with your own numbers and names."
        )
    public = Schema.load(schema) if isinstance(schema, str | os.PathLike) else schema
    if target is not None:
        if not isinstance(public, TableSchema):
            raise InvalidValue("target", target, "given for tables only")
        public = Schema.from_dict({**public.to_dict(), "target": target})
        assert isinstance(public, TableSchema)
        if public.label is None:
            classed = [column.name for column in public.columns if isinstance(column, Categorical | Boolean)]
            which = (
                f"one of the columns with classes, {shown(classed)}" if classed else "left out: no column has classes"
            )
            fix = "Fix: name another, declare this one categorical in the schema, or leave the target out."
            raise InvalidValue("target", target, which, fix)
    return public


__all__ = [
    "DATASETS",
    "Dataset",
    "Loaded",
    "Split",
    "benchmark_named",
    "benchmark_of",
    "dataset",
    "load",
    "no_such_source",
    "schema_for",
]
