"""The sets of tables: Kaggle Credit (card fraud) and UCI Adult (census income).

Credit is read from `creditcard.parquet`; the column Time is dropped, and the split is 70/30, stratified by Class, with
random_state=0. Adult is read from `adult.parquet`, whose column `split` gives the official split; `?` stays a value.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]

from gpate.cache_files import array_checksum
from gpate.datasets import Dataset, Loaded, Split
from gpate.errors import DataUnreadable
from gpate_research.datasets.lookup import SCHEMAS, frame_checksum, locate

CREDIT_COLUMNS = (*(f"V{i}" for i in range(1, 29)), "Amount", "Class")
ADULT_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
ADULT_COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)
_ADULT_TEST_ROWS = 16_281
_CREDIT_CHECKSUM = "74836cc515ac89cda7168272b02b98f412f8ebd3e4e33da32495cfe8b8cb3397"
_ADULT_CHECKSUM = "be7f1f2fe02c339ab51438b58e8bbe4967000ab8444feb9f6eaa0cf11e10c97d"


def load_credit(split: Split) -> Loaded:
    """284,807 card transactions, 492 of them frauds, 70/30."""
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped,unused-ignore]

    path = locate(
        "credit",
        "creditcard.parquet",
        openml_id=1597,
        build=_build_credit,
        checksum=_CREDIT_CHECKSUM,
        as_frame=True,
    )
    frame = _read(path, CREDIT_COLUMNS)
    halves = train_test_split(frame, test_size=0.3, stratify=frame["Class"], random_state=0)
    chosen = halves[0] if split == "train" else halves[1]
    return Loaded(name="credit", split=split, frame=chosen.reset_index(drop=True))


def load_adult(split: Split) -> Loaded:
    """32,561 records of the 1994 census to train on, 16,281 to test."""
    path = locate("adult", "adult.parquet", openml_id=1590, build=_build_adult, checksum=_ADULT_CHECKSUM, as_frame=True)
    frame = _read(path, (*ADULT_COLUMNS, "split"))
    chosen = frame.loc[frame["split"] == split, list(ADULT_COLUMNS)]
    return Loaded(name="adult", split=split, frame=chosen.reset_index(drop=True))


def _read(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    frame = None
    with contextlib.suppress(OSError, ValueError, KeyError):  # pyarrow's errors are among these
        frame = pd.read_parquet(path, columns=list(columns))
    if frame is None or len(frame) == 0:
        raise DataUnreadable(f"{path} is not a parquet file with {', '.join(columns)}. Fix: fetch it anew.")
    return frame


def _build_credit(bunch: Any, target: Path) -> str:
    frame = bunch.frame[list(CREDIT_COLUMNS)].astype({"Class": np.int64})
    frame.to_parquet(target)
    return credit_checksum(frame)


def credit_checksum(frame: pd.DataFrame) -> str:
    """Of the values in millionths: how a file writes a number does not matter."""
    rounded = np.rint(frame[list(CREDIT_COLUMNS)].to_numpy(np.float64) * 1e6).astype(np.int64)
    return array_checksum(rounded)


def _build_adult(bunch: Any, target: Path) -> str:
    """OpenML has the test set first, then the training set, and missing values where UCI has `?`."""
    frame = bunch.frame.rename(columns={"class": "income"})[list(ADULT_COLUMNS)]
    for name in ADULT_COLUMNS:
        frame[name] = frame[name].astype(np.int64) if name in ADULT_NUMBERS else frame[name].astype(object).fillna("?")
    frame["split"] = np.where(np.arange(len(frame)) < _ADULT_TEST_ROWS, "test", "train")
    frame.to_parquet(target)
    return frame_checksum(frame)


DATASETS = (
    Dataset(
        name="credit",
        title="Kaggle Credit Card Fraud Detection",
        kind="table",
        licence="ODbL 1.0 (database), DbCL 1.0 (contents)",
        source="Dal Pozzolo et al. 2015, Universite Libre de Bruxelles; OpenML data set 1597",
        schema_path=SCHEMAS / "credit.yaml",
        splits=("train", "test"),
        loader=load_credit,
    ),
    Dataset(
        name="adult",
        title="UCI Adult (census income)",
        kind="table",
        licence="CC BY 4.0",
        source="Becker and Kohavi 1996, doi:10.24432/C5XW20; OpenML data set 1590",
        schema_path=SCHEMAS / "adult.yaml",
        splits=("train", "test"),
        loader=load_adult,
    ),
)
