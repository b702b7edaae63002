"""The benchmark sets by name: where they come from, how they are split, and their public schemas.

They are looked up in the folder that `GPATE_DATA` names, then in the cache (`GPATE_CACHE`), and then fetched from
OpenML where it has them. A training split is treated as private records are: nothing here prints or logs any of it.

    >>> loaded = load("digits")
    >>> loaded.images.shape, len(load("digits", "test").labels)
    ((1437, 8, 8), 360)
"""

from gpate.datasets import celeba, grey, tables
from gpate.datasets.loaded import Dataset, Loaded, Split
from gpate.errors import InvalidValue
from gpate.schema import Schema

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset for dataset in (*grey.DATASETS, *celeba.DATASETS, *tables.DATASETS)
}


def dataset(name: str) -> Dataset:
    """The set of this name."""
    if name not in DATASETS:
        raise InvalidValue("data set", name, f"one of {', '.join(DATASETS)}")
    return DATASETS[name]


def load(name: str, split: Split = "train") -> Loaded:
    """One split of a set: `Dataset.load` says what can go wrong."""
    return dataset(name).load(split)


def benchmark_of(schema: Schema) -> str | None:
    """The set that has this very schema, if there is one."""
    return next((name for name, known in DATASETS.items() if Schema.load(known.schema_path) == schema), None)


__all__ = ["DATASETS", "Dataset", "Loaded", "Split", "benchmark_of", "dataset", "load"]
