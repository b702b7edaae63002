"""Synthetic tables from marginals: how well classifiers trained on them do on real records, and what a fit costs.

    python -m research.benchmarks.marginals_quality adult credit --epsilon 0.2 1 10 --seeds 3
    python -m research.benchmarks.marginals_quality credit-wide --delta 1e-6 --epsilon 1 --first 0 --seeds 1

Adult: mean AUROC of logistic regression, random forest and histogram gradient boosting, on numbers as they are and on
numbers in coarse bins (`AUROC, binned`). Credit: mean AUROC and AUPRC of the paper's four classifiers (appendix E) on
the features as the schema declares them, standardised, trained on 40,000 genuine and 400 fraudulent synthetic records; and
(`as released`) of the same four as `gpate.evaluation` has them, trained on a synthetic table of the size of the training
records whose classes have the released shares, which is what `gpate evaluate` does. `adult-wide` has bounds ten times as wide,
`credit-wide` V1 to V28 from -1000 to 1000; `mean off by` is the largest error of a number's mean, in its standard deviations.
With `--validation` a part of the training records is tested on and left out of the fit: for choosing settings. Without,
the test records: for reporting, once. Each run is added to the results as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from benchmarks.tables import show
from research.benchmarks.table_fidelity import Table, moments, ten_times, thousand
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from gpate.boundary import Gate, noise_named
from gpate.datasets import DATASETS
from gpate.evaluation.table_classifiers import Rows, Setting, score
from gpate.generators.mixture import Mixture
from gpate.methods import method_named
from gpate.methods.marginals import Marginals
from gpate.methods.recipes import recipes
from gpate.refit import temporary_run
from gpate.schema import Schema, TableSchema
from gpate.schema.codec import Encoded, TableCodec
from gpate_research.paper_classifiers import PAPER_CLASSIFIERS

RESULTS = Path(__file__).parents[1] / "results" / "marginals.jsonl"
VALIDATION = {"adult": 8_000, "credit": 60_000}
EDGES = {
    "age": np.linspace(17, 91, 21),
    "fnlwgt": np.linspace(0, 1.5e6, 17),
    "capital-gain": np.array([0, 1, 1000, 2500, 4000, 6000, 8000, 12000, 20000, 50000, 100001]),
    "capital-loss": np.array([0, 1, 500, 1000, 1500, 1700, 1900, 2100, 2500, 4500]),
    "hours-per-week": np.linspace(1, 100, 21),
}
"""Coarse bins of Adult's numbers, for the second AUROC."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", choices=("adult", "adult-wide", "credit", "credit-wide"))
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.2, 1.0, 10.0])
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--noise", default="exact", choices=("exact", "fast"))
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="changes to the settings")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    warnings.filterwarnings("ignore", category=FutureWarning)
    settings = changed(Marginals(), asked.set)
    for name in asked.data:
        rows = []
        for epsilon in asked.epsilon:
            runs = []
            for seed in range(asked.first, asked.first + asked.seeds):
                budget = epsilon, asked.delta
                figures = one_run(name, budget, seed, asked.noise, settings, validation=asked.validation)
                runs.append(figures)
                line = {
                    "data": name,
                    "epsilon": epsilon,
                    "delta": asked.delta,
                    "seed": seed,
                    "noise": asked.noise,
                    **figures,
                }
                line |= {"tested on": "validation" if asked.validation else "test", "settings": settings.to_json()}
                with RESULTS.open("a") as out:
                    out.write(json.dumps(line) + "\n")
            rows.append({"epsilon": epsilon, **summary(runs)})
        show(f"{name}: mean and standard deviation over {asked.seeds} seeds", rows)


def changed(settings: Marginals, changes: list[str]) -> Marginals:
    """With some settings changed, as `gpate fit --set` does."""
    recipe = recipes()["default-tables"].with_group("marginals", settings)
    return recipe.changed(dict(change.split("=", 1) for change in changes)).of(Marginals)


def summary(runs: list[dict[str, float]]) -> dict[str, str]:
    """Without the figures of single classifiers, which the records hold."""
    shown = [key for key in runs[0] if not key.endswith((" ROC", " PR", " sd"))]
    return {key: f"{np.mean(v):.4f} ± {np.std(v):.4f}" for key in shown if (v := [run[key] for run in runs])}


def one_run(
    name: str, budget: tuple[float, float], seed: int, noise: str, settings: Marginals, *, validation: bool
) -> dict[str, float]:
    name, wide = name.removesuffix("-wide"), name.endswith("-wide")
    train = DATASETS[name].load("train").frame
    test = None if validation else DATASETS[name].load("test").frame
    if test is None:
        order = np.random.default_rng(0).permutation(len(train))
        cut = VALIDATION[name]
        train, test = train.iloc[order[cut:]].reset_index(drop=True), train.iloc[order[:cut]].reset_index(drop=True)
    schema = Schema.load(DATASETS[name].schema_path)
    assert isinstance(schema, TableSchema)
    if wide:
        schema = replace(schema, columns=tuple(map(ten_times if name == "adult" else thousand, schema.columns)))
    codec = TableCodec(schema)
    whole = recipes()["default-tables"].with_group("marginals", settings)
    method = method_named(whole.method)
    plan = method.plan(whole, schema, budget[0])
    gate = Gate.in_memory(plan.budget(*budget), noise_named(noise, seed=seed if noise == "fast" else None))
    with temporary_run(train, None, schema, whole, plan, gate=gate, seed=seed) as run:
        run.records.fingerprint()  # which encodes them
        began, used = time.perf_counter(), time.process_time()
        fitted = method.fit(run)
        cost = {"seconds": time.perf_counter() - began, "CPU seconds": time.process_time() - used}
    student, shares = fitted.generator, fitted.proportions
    assert isinstance(student, Mixture)
    judge = score_adult if name == "adult" else score_credit
    made = released(student, shares, codec, len(train), seed)
    off = moments(made, Table(schema=schema, train=train, real=test, floor=train))
    return {**judge(student, shares, codec, len(train), test, seed), **off, **cost}


def released(student: Mixture, shares: np.ndarray, codec: TableCodec, rows: int, seed: int) -> pd.DataFrame:
    """A synthetic table with the released shares of classes."""
    stream = torch.Generator().manual_seed(seed)
    labels = torch.multinomial(torch.from_numpy(shares), rows, replacement=True, generator=stream)
    return codec.decode_values(student.draw(labels, stream), labels)


def score_adult(
    student: Mixture, shares: np.ndarray, codec: TableCodec, rows: int, test: pd.DataFrame, seed: int
) -> dict[str, float]:
    made = released(student, shares, codec, rows, seed)
    categories = {c.name: list(c.categories) for c in codec.schema.features if c.type == "categorical"}
    numbers = [c.name for c in codec.schema.features if c.type != "categorical"]

    def auroc(made: pd.DataFrame, test: pd.DataFrame) -> dict[str, float]:
        models = {
            "LR": LogisticRegression(max_iter=500),
            "RF": RandomForestClassifier(100, random_state=0),
            "GB": HistGradientBoostingClassifier(random_state=0),
        }
        encoder = OneHotEncoder(categories=list(categories.values()), sparse_output=False)
        found = {}
        for key, model in models.items():
            columns = ColumnTransformer([("c", encoder, list(categories)), ("n", StandardScaler(), numbers)])
            whole = make_pipeline(columns, model).fit(made, made["income"] == ">50K")
            found[key] = float(roc_auc_score(test["income"] == ">50K", whole.predict_proba(test)[:, 1]))
        return found

    plain = auroc(made, test)
    coarse = auroc(binned(made), binned(test))
    return {"AUROC": mean(plain), "AUROC, binned": mean(coarse), **plain}


def binned(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.copy()
    for name, edges in EDGES.items():
        place = np.clip(np.digitize(frame[name], edges) - 1, 0, len(edges) - 2)
        frame[name] = ((edges[:-1] + edges[1:]) / 2)[place]
    return frame


def score_credit(
    student: Mixture, shares: np.ndarray, codec: TableCodec, rows: int, test: pd.DataFrame, seed: int
) -> dict[str, float]:
    labels = torch.cat([torch.zeros(40_000, dtype=torch.int64), torch.ones(400, dtype=torch.int64)])
    made = drawn(student, labels, codec, torch.Generator().manual_seed(seed))
    truth = codec.encode(test)
    scaler = StandardScaler().fit(made)
    models: dict[str, Any] = {
        "LR": LogisticRegression(penalty="l1", solver="liblinear", class_weight={0: 1, 1: 350}),
        "Ada": AdaBoostClassifier(LogisticRegression(), n_estimators=200, random_state=seed),
        "Bag": BaggingClassifier(LogisticRegression(), n_estimators=100, random_state=seed),
        "MLP": MLPClassifier((18, 18, 18), activation="tanh", random_state=seed),
    }
    roc, pr = {}, {}
    for key, model in models.items():
        model.fit(scaler.transform(made), labels.numpy())
        found = model.predict_proba(scaler.transform(truth.features.numpy()))[:, 1]
        roc[key] = float(roc_auc_score(truth.labels, found))
        pr[key] = float(average_precision_score(truth.labels, found))
    each = {f"{key} {what}": values[key] for what, values in (("ROC", roc), ("PR", pr)) for key in models}
    return {"AUROC": mean(roc), "AUPRC": mean(pr), **as_released(student, shares, codec, rows, truth, seed), **each}


def drawn(student: Mixture, labels: torch.Tensor, codec: TableCodec, stream: torch.Generator) -> np.ndarray:
    """Synthetic records as rows for a classifier."""
    return codec.encode(codec.decode_values(student.draw(labels, stream), labels)).features.numpy()


def as_released(
    student: Mixture, shares: np.ndarray, codec: TableCodec, rows: int, truth: Encoded, seed: int
) -> dict[str, float]:
    numbers = tuple(range(codec.width))
    table = codec.encode(released(student, shares, codec, rows, seed))
    assert table.labels is not None
    made = Rows(features=table.features.numpy(), labels=table.labels.numpy(), numbers=numbers)
    test = Rows(features=truth.features.numpy(), labels=truth.labels.numpy(), numbers=numbers)
    setting = Setting(classes=2, benchmark="credit", seed=seed)
    found = [score(one, made, test, setting) for one in PAPER_CLASSIFIERS]
    return {f"{what.upper()}, as released": float(np.mean([one[what] for one in found])) for what in ("auroc", "auprc")}


def mean(figures: dict[str, float]) -> float:
    return float(np.mean(list(figures.values())))


if __name__ == "__main__":
    main()
