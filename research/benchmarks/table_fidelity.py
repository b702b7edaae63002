"""How close synthetic tables are to real records: low-order tables, NIST's k-marginal score, prediction, and the time of a fit.

    GPATE_DATA=.data python -m research.benchmarks.table_fidelity adult sdnist10 --epsilon 0.2 1 10 --seeds 3
    GPATE_DATA=.data python -m research.benchmarks.table_fidelity adult-wide --epsilon 1 --peers dpmm-aim dpmm-mst dpmm-privbayes

Printed for each table and epsilon: mean total variation of all 1-way, 2-way and (at most 500, drawn once) 3-way tables between a
synthetic table of the size of the fitted records and real ones, numbers in deciles of the fitted records; the mean AUROC of
logistic regression, random forest and histogram gradient boosting where there is a target; seconds and CPU seconds of a fit; `mean off
by`, the largest error of a number's mean in its standard deviations. `real` is the fitted records themselves, the floor. Real records
are a fifth of the training records, held out of the fit (a patient's records stay together); test records are read with GPATE_TEST=1
alone. `--set NAME=VALUE` changes settings of the method. Each run is added to the results. `adult-wide` has bounds ten times as wide,
`credit-wide` V1 to V28 from -1000 to 1000, both on linear scales.

`--peers` fits others' synthesizers (`gpate_research.peers`) to the same records with the same schema, on one core, each for at most
`--peer-seconds` of its process and five times as long in all; one that does not finish is reported so.

`sdnist10` and `sdnist24` (NIST's excerpt of the American Community Survey 2019; its ten demographic columns, and all) have no target
and no test part: as in NIST's own reports, all records are fitted and compared with, and `real` is a sample of a fifth. `nist` is the
score of its package `sdnist` 2.4: 1000 (1 - mean total variation) of all pairs of columns, or, where PUMA is a column, of PUMA with
all pairs of the others (without INDP); numbers in 20 bins of equal rank.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from benchmarks.tables import show
from numpy.typing import NDArray
from research.benchmarks import privacy_unit_quality as diabetes
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score

from gpate.datasets import DATASETS
from gpate.schema import Boolean, Categorical, Column, Integer, Numeric, Schema, TableSchema
from gpate.synthesizer import Synthesizer
from gpate_research.errors import PeerFailed, PeerTooSlow
from gpate_research.peers import PEERS, Launch, run_peer

DELTA = 1e-6
RESULTS = Path(__file__).parents[1] / "results" / "table_fidelity.jsonl"
TRIPLES = 500
TEN = "AGEP SEX MSP RAC1P HOUSING_TYPE OWN_RENT EDU PINCP_DECILE DVET DEYE".split()
"""The columns of NIST's sample reports of AIM and MST ("demographic-focused")."""

Codes = dict[str, NDArray[np.int64]]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Records to fit, real records to compare with, and what is known of them in public.

    Attributes:
        schema: of both.
        train: fitted.
        real: compared with.
        floor: as good as it can be.
        positive: the class of the target that is predicted; None without a target.
        nist: NIST's columns in 20 bins.
    """

    schema: TableSchema
    train: pd.DataFrame
    real: pd.DataFrame
    floor: pd.DataFrame
    positive: Any = None
    nist: bool = False


# --- tables -----------------------------------------------------------------------------------------------------------


def _split(frame: pd.DataFrame, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    order = np.random.default_rng(seed).permutation(len(frame))
    cut = len(frame) // 5
    return frame.iloc[order[cut:]].reset_index(drop=True), frame.iloc[order[:cut]].reset_index(drop=True)


def _benchmark(name: str, positive: Any, widen: Callable[[Column], Column] = lambda column: column) -> Table:
    """With `GPATE_TEST=1` the whole training part is fitted, and compared with the test part: for reporting, once."""
    train = DATASETS[name].load("train").frame
    train, real = (train, DATASETS[name].load("test").frame) if os.environ.get("GPATE_TEST") else _split(train)
    schema = Schema.load(DATASETS[name].schema_path)
    assert isinstance(schema, TableSchema)
    schema = replace(schema, columns=tuple(map(widen, schema.columns)))
    return Table(schema=schema, train=train, real=real, floor=train, positive=positive)


def ten_times(column: Column) -> Column:
    """Bounds ten times as wide, on a linear scale."""
    if not isinstance(column, Numeric):
        return column
    lower, upper = column.bounds
    lower, upper = (lower / 10 if lower > 0 else 10 * lower), 10 * upper
    return replace(column, bounds=(math.floor(lower), math.ceil(upper)), scale="linear")


def thousand(column: Column) -> Column:
    """V1 to V28 from -1000 to 1000, on linear scales."""
    if not isinstance(column, Numeric):
        return column
    return replace(column, bounds=(-1000, 1000) if column.name.startswith("V") else column.bounds, scale="linear")


def _log_normal(rows: int = 20_000) -> Table:
    """Made up: log-normal numbers (sigma 3) and a flag that depends on them, declared from 0 to 10^9."""
    rng = np.random.default_rng(0)
    score = rng.normal(size=rows)
    frame = pd.DataFrame({"pay": np.exp(3 * score), "debt": np.exp(3 * rng.normal(size=rows)), "rich": score > 1})
    columns = (*(Numeric(name=name, bounds=(0, 1e9)) for name in ("pay", "debt")), Boolean(name="rich"))
    return Table(schema=TableSchema(columns=columns, target="rich"), train=frame, real=frame, floor=_split(frame)[1])


def _diabetes() -> Table:
    parts = diabetes.by_patient(diabetes.stays(_data() / "diabetes130.parquet"), 0)
    if not os.environ.get("GPATE_TEST"):
        parts = diabetes.by_patient(parts[0], 1)
    train, real = (part.drop(columns="patient_nbr") for part in parts)
    return Table(schema=diabetes.schema(), train=train, real=real, floor=train, positive="<30")


def _sdnist(names: Sequence[str] | None = None) -> Table:
    """Columns by NIST's data dictionary: its value lists, and its bounds for numbers."""
    frame = pd.read_parquet(_data() / "sdnist-national2019.parquet")
    dictionary = json.loads((_data() / "sdnist-data-dictionary.json").read_text())
    listed = json.loads((_data() / "sdnist-national2019.json").read_text())["schema"]
    columns: list[Column] = []
    for name in names or list(frame.columns):
        bounds = dictionary[name].get("values") or {}
        missing = bool(listed[name].get("has_null"))
        if "values" in listed[name]:
            values = [str(value) for value in listed[name]["values"] if value != "N"]
            columns.append(Categorical(name=name, categories=tuple(values), missing=missing))
        elif name == "DENSITY":
            columns.append(Numeric(name=name, bounds=(bounds["min"], bounds["max"]), scale="log"))
            frame[name] = frame[name].astype(float)
        else:
            top = 501 if name == "POVPIP" else bounds["max"]
            low = 0 if name == "WGTP" else bounds["min"]
            scale = "arcsinh" if name in ("PINCP", "WGTP", "PWGTP") else "linear"
            columns.append(Integer(name=name, bounds=(low, top), scale=scale, missing=missing))
            frame[name] = pd.to_numeric(frame[name], errors="coerce")
        frame[name] = frame[name].replace("N", None)
    schema = TableSchema(columns=tuple(columns))
    frame = frame[[*schema.names]]
    return Table(schema=schema, train=frame, real=frame, floor=_split(frame)[1], nist=True)


def _wide(columns: int = 200, rows: int = 25_000) -> Table:
    """Made up: a quarter of the columns are categories, the others skewed numbers, all driven by five hidden numbers."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(rows, 5))
    made: dict[str, Any] = {}
    declared: list[Column] = []
    for j in range(columns - 1):
        score = hidden @ rng.normal(size=5) / 2.5 + rng.normal(size=rows)
        if j % 4 == 0:
            levels = [f"v{i}" for i in range(2 + j % 9)]
            cuts = np.sort(rng.normal(size=len(levels) - 1))
            made[f"c{j}"] = np.array(levels)[np.searchsorted(cuts, score)]
            declared.append(Categorical(name=f"c{j}", categories=tuple(levels)))
        else:
            made[f"n{j}"] = np.exp(score)
            declared.append(Numeric(name=f"n{j}", bounds=(0, 1000), scale="arcsinh"))
    made["y"] = hidden[:, 0] + 0.5 * hidden[:, 1] + rng.normal(size=rows) > 1
    schema = TableSchema(columns=(*declared, Boolean(name="y")), target="y")
    train, real = _split(pd.DataFrame(made))
    return Table(schema=schema, train=train, real=real, floor=train, positive=True)


def _data() -> Path:
    return Path(os.environ.get("GPATE_DATA", ".data"))


TABLES: dict[str, Callable[[], Table]] = {
    "adult": lambda: _benchmark("adult", ">50K"),
    "adult-wide": lambda: _benchmark("adult", ">50K", ten_times),
    "credit": lambda: _benchmark("credit", "1"),
    "credit-wide": lambda: _benchmark("credit", "1", thousand),
    "log-normal": _log_normal,
    "diabetes130": _diabetes,
    "sdnist10": lambda: _sdnist(TEN),
    "sdnist24": _sdnist,
    "wide": _wide,
}


# --- measures ---------------------------------------------------------------------------------------------------------


def codes(frame: pd.DataFrame, table: Table, *, bins: int = 10) -> Codes:
    """Whole numbers of every column: categories, numbers in bins of equal rank among the fitted records, 0 where missing."""
    found = {}
    for column in table.schema.columns:
        values = frame[column.name]
        if isinstance(column, Categorical):
            found[column.name] = 1 + pd.Categorical(values.astype(str), column.categories).codes.astype(np.int64)
        elif isinstance(column, Boolean):
            found[column.name] = 1 + values.astype(bool).to_numpy().astype(np.int64)
        else:
            fitted = pd.to_numeric(table.train[column.name]).dropna().to_numpy(dtype=float)
            edges = np.unique(np.quantile(fitted, np.linspace(0, 1, bins + 1)[1:-1]))
            numbers = pd.to_numeric(values).to_numpy(dtype=float, na_value=np.nan)
            found[column.name] = np.where(np.isnan(numbers), 0, 1 + np.searchsorted(edges, numbers, side="left"))
    return found


def variation(one: Codes, two: Codes, names: Iterable[str]) -> float:
    """Total variation of the table of some columns."""
    cells, sides = 1, [np.zeros(1, dtype=np.int64)] * 2
    for name in names:
        size = 1 + max(int(one[name].max()), int(two[name].max()))
        sides = [side * size + codes[name] for side, codes in zip(sides, (one, two), strict=True)]
        cells *= size
    tables = [np.bincount(side, minlength=cells) / len(side) for side in sides]
    return float(np.abs(tables[0] - tables[1]).sum() / 2)


def distances(made: pd.DataFrame, table: Table) -> dict[str, float]:
    """Mean total variation of 1-, 2- and 3-way tables, and NIST's score for its table."""
    one, two = codes(made, table), codes(table.real, table)
    found = {}
    for order in (1, 2, 3):
        chosen = list(combinations(one, order))
        if order == 3 and len(chosen) > TRIPLES:
            picked = np.random.default_rng(0).choice(len(chosen), TRIPLES, replace=False)
            chosen = [chosen[i] for i in picked]
        found[f"{order}-way"] = float(np.mean([variation(one, two, names) for names in chosen]))
    if table.nist:
        one, two = codes(made, table, bins=20), codes(table.real, table, bins=20)
        scored = list(combinations([name for name in one if name not in ("PUMA", "INDP")], 2))
        by = ("PUMA",) if "PUMA" in one else ()
        found["nist"] = 1000 * (1 - float(np.mean([variation(one, two, (*by, *pair)) for pair in scored])))
    return found


def moments(made: pd.DataFrame, table: Table) -> dict[str, float]:
    """The largest difference of a number's mean from that of the fitted records, in its standard deviations, and the smallest and
    the largest ratio of standard deviations.
    """
    names = [column.name for column in table.schema.columns if isinstance(column, Numeric)]
    if not names:
        return {}
    one, two = (frame[names].apply(pd.to_numeric).astype(float) for frame in (made, table.train))
    ratio = one.std() / two.std()
    apart = ((one.mean() - two.mean()) / two.std()).abs()
    return {"mean off by": float(apart.max()), "least sd": float(ratio.min()), "largest sd": float(ratio.max())}


def prediction(made: pd.DataFrame, table: Table) -> dict[str, float]:
    """Mean AUROC (and AUPRC) of three classifiers trained on the one and tested on real records."""
    target = table.schema.target
    both = pd.concat([made, table.real], ignore_index=True)
    listed = [c.name for c in table.schema.columns if isinstance(c, Categorical) and c.name != target]
    numbers = both[[c for c in table.schema.names if c not in (*listed, target)]].apply(pd.to_numeric).astype(float)
    dummies = pd.get_dummies(both[listed].astype(str)).to_numpy(float) if listed else np.zeros((len(both), 0))
    x = np.hstack([dummies, numbers.fillna(numbers.mean()).to_numpy()])
    spread = x[: len(made)].std(0)
    x = (x - x[: len(made)].mean(0)) / np.where(spread > 0, spread, 1.0)
    y = (both[target].astype(str) == str(table.positive)).to_numpy()
    models = (
        LogisticRegression(max_iter=300),
        RandomForestClassifier(100, min_samples_leaf=5, random_state=0, n_jobs=2),
        HistGradientBoostingClassifier(random_state=0),
    )
    n = len(made)
    if y[:n].all() or not y[:n].any():
        return {"AUROC": 0.5, "AUPRC": float(y[n:].mean())}
    scores = [model.fit(x[:n], y[:n]).predict_proba(x[n:])[:, 1] for model in models]
    return {
        "AUROC": float(np.mean([roc_auc_score(y[n:], score) for score in scores])),
        "AUPRC": float(np.mean([average_precision_score(y[n:], score) for score in scores])),
    }


# --- command ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Made:
    """A synthetic table, and what its fit cost."""

    records: pd.DataFrame
    seconds: float
    cpu_seconds: float


Fit = Callable[[Table, float, int], Made]
"""A method: table, epsilon, seed."""


def ours(noise: str, settings: dict[str, Any]) -> Fit:
    """This package's default recipe for tables."""

    def fit(table: Table, epsilon: float, seed: int) -> Made:
        own = {"noise": noise, "noise_seed": seed if noise == "fast" else None}
        began, used = time.perf_counter(), time.process_time()
        model = Synthesizer(epsilon=epsilon, delta=DELTA, seed=seed, settings=settings, **own)
        model.fit(table.train, schema=table.schema)
        seconds, cpu = time.perf_counter() - began, time.process_time() - used
        return Made(records=model.sample(len(table.train), seed=seed), seconds=seconds, cpu_seconds=cpu)

    return fit


def theirs(name: str, most: int) -> Fit:
    """A peer, for so many CPU seconds at most."""

    def fit(table: Table, epsilon: float, seed: int) -> Made:
        made = run_peer(
            PEERS[name],
            table.train,
            schema=table.schema,
            epsilon=epsilon,
            delta=DELTA,
            seed=seed,
            launch=Launch(seconds=5.0 * most, cpu_seconds=most),
        )
        return Made(records=made.records, seconds=made.fit_seconds, cpu_seconds=made.fit_cpu_seconds)

    return fit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", choices=sorted(TABLES))
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.2, 1.0, 10.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--noise", default="exact", choices=("exact", "fast"))
    parser.add_argument("--no-auroc", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="of the settings: fitting.steps=500")
    parser.add_argument("--peers", nargs="*", default=[], choices=sorted(PEERS), help="after ours, in this order")
    parser.add_argument("--peer-seeds", type=int, default=1)
    parser.add_argument("--peer-seconds", type=int, default=1200, help="of its process, after which a peer is stopped")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="for the synthetic tables")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    settings = {name: json.loads(value) for name, value in (change.split("=") for change in asked.set)}
    methods = {"gpate": (ours(asked.noise, settings), asked.seeds)}
    methods |= {name: (theirs(name, asked.peer_seconds), asked.peer_seeds) for name in asked.peers}
    for name in asked.data:
        table = TABLES[name]()

        def scores(made: pd.DataFrame, table: Table = table) -> dict[str, float]:
            more = prediction(made, table) if table.positive is not None and not asked.no_auroc else {}
            return {**distances(made, table), **moments(made, table), **more}

        rows: list[dict[str, Any]] = [{"method": "real", "epsilon": "", **_printed([scores(table.floor)])}]
        rows[0] |= {"seconds": "", "CPU": ""}
        for (method, (fit, seeds)), epsilon in product(methods.items(), asked.epsilon):
            runs = []
            for seed in range(seeds):
                line = {"data": name, "method": method, "epsilon": epsilon, "delta": DELTA, "seed": seed}
                line |= {"noise": asked.noise, "set": asked.set} if method == "gpate" else {}
                line |= {"tested on": "test" if os.environ.get("GPATE_TEST") else "held out"}
                try:
                    made = fit(table, epsilon, seed)
                except PeerTooSlow:
                    line |= {"ended": f"stopped after {asked.peer_seconds} CPU seconds"}
                except PeerFailed as problem:
                    line |= {"ended": str(problem)}
                else:
                    runs.append({**scores(made.records), "seconds": made.seconds, "CPU": made.cpu_seconds})
                    line |= runs[-1]
                    if asked.keep:
                        asked.keep.mkdir(parents=True, exist_ok=True)
                        made.records.to_parquet(asked.keep / f"{name}-{method}-{epsilon:g}-{seed}.parquet")
                with RESULTS.open("a") as out:
                    out.write(json.dumps(line) + "\n")
            found = _printed(runs) if runs else {"seconds": f"over {asked.peer_seconds}, or failed"}
            rows.append({**dict.fromkeys(rows[0], ""), "method": method, "epsilon": epsilon, **found})
        show(f"{name}: {len(table.train):,} records, delta {DELTA:g}, {asked.noise} noise, {asked.seeds} seeds", rows)


def _printed(runs: list[dict[str, float]]) -> dict[str, str]:
    return {key: f"{np.mean([run[key] for run in runs]):.4f}" for key in runs[0]}


if __name__ == "__main__":
    main()
