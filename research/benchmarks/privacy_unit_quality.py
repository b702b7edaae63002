"""What person-level privacy costs: hospital stays (UCI Diabetes 130), several of one patient, at unit = row and unit = patient.

    GPATE_DATA=.data python -m research.benchmarks.privacy_unit_quality --epsilon 1 10 --max-records 0 1 2 3 5 --seeds 3

Patients are divided 80 to 20. Printed for each k (0: the unit is a row): mean total variation of all 1-way and 2-way tables
between a synthetic table of the size of the training records and the test records (numbers in deciles of the training
records), mean AUROC of `readmitted` = `<30` of logistic regression, random forest and histogram gradient boosting trained on
the synthetic table, and the seconds of a fit. `real` is the training records themselves. With `--validation` a fifth of the
training patients is tested on and left out: for choosing settings.

The schema is written down from the published description (Strack et al. 2014, and the code lists that come with the data).
Diagnoses are mapped to its nine groups of ICD-9 codes, record by record.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from benchmarks.tables import show
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from gpate import Synthesizer
from gpate.schema import Boolean, Categorical, Column, Integer, PrivacyUnit, TableSchema

DELTA = 1e-6
RESULTS = Path(__file__).parents[1] / "results" / "privacy_unit.jsonl"

_DRUGS = """metformin repaglinide nateglinide chlorpropamide glimepiride acetohexamide glipizide glyburide tolbutamide pioglitazone
rosiglitazone acarbose miglitol troglitazone tolazamide examide citoglipton insulin glyburide-metformin glipizide-metformin
glimepiride-pioglitazone metformin-rosiglitazone metformin-pioglitazone""".split()
_NUMBERS = {
    "time_in_hospital": (1, 14),
    "num_lab_procedures": (1, 132),
    "num_procedures": (0, 6),
    "num_medications": (1, 81),
    "number_outpatient": (0, 42),
    "number_emergency": (0, 76),
    "number_inpatient": (0, 21),
    "number_diagnoses": (1, 16),
}
_SPECIALTIES = """InternalMedicine Emergency/Trauma Family/GeneralPractice Cardiology Surgery-General Nephrology Orthopedics Radiologist
Pulmonology Psychiatry Urology ObstetricsandGynecology Gastroenterology Neurology Oncology""".split()
_PAYERS = "BC CH CM CP DM FR HM MC MD MP OG OT PO SI SP UN WC".split()
_GROUPS = "Circulatory Respiratory Digestive Diabetes Injury Musculoskeletal Genitourinary Neoplasms other".split()
_CHAPTERS = {
    "Circulatory": [(390, 459), (785, 785)],
    "Respiratory": [(460, 519), (786, 786)],
    "Digestive": [(520, 579), (787, 787)],
    "Diabetes": [(250, 250)],
    "Injury": [(800, 999)],
    "Musculoskeletal": [(710, 739)],
    "Genitourinary": [(580, 629), (788, 788)],
    "Neoplasms": [(140, 239)],
}


def schema() -> TableSchema:
    def listed(name: str, values: list[str], **more: Any) -> Categorical:
        return Categorical(name=name, categories=tuple(values), **more)

    columns: list[Column] = [
        listed("race", ["Caucasian", "AfricanAmerican", "Hispanic", "Asian", "Other"], missing=True, other="Other"),
        listed("gender", ["Female", "Male", "other"], other="other"),
        listed("age", [f"[{low}-{low + 10})" for low in range(0, 100, 10)]),
        listed("admission_type_id", [*map(str, range(1, 9))]),
        listed("discharge_disposition_id", [*map(str, range(1, 31))]),
        listed("admission_source_id", [*map(str, range(1, 27))]),
        listed("payer_code", [*_PAYERS, "other"], missing=True, other="other"),
        listed("medical_specialty", [*_SPECIALTIES, "other"], missing=True, other="other"),
        *(listed(f"diag_{i}", _GROUPS, missing=True) for i in (1, 2, 3)),
        *(Integer(name=name, bounds=bounds) for name, bounds in _NUMBERS.items()),
        listed("max_glu_serum", ["None", "Norm", ">200", ">300"]),
        listed("A1Cresult", ["None", "Norm", ">7", ">8"]),
        *(listed(name, ["No", "Steady", "Up", "Down"]) for name in _DRUGS),
        listed("change", ["No", "Ch"]),
        Boolean(name="diabetesMed"),
        listed("readmitted", ["NO", ">30", "<30"]),
    ]
    return TableSchema(columns=tuple(columns), target="readmitted")


def stays(path: Path) -> pd.DataFrame:
    """All hospital stays as the schema has them, and the patient of each."""
    frame = pd.read_parquet(path).astype(str)
    wanted = schema()
    for name in ("diag_1", "diag_2", "diag_3"):
        frame[name] = frame[name].map({code: _group(code) for code in frame[name].unique()})
    frame["diabetesMed"] = frame["diabetesMed"] == "Yes"
    for name in _NUMBERS:
        frame[name] = frame[name].astype(int)
    return frame[[*wanted.names, "patient_nbr"]].replace("?", None)


def _group(code: str) -> str | None:
    if code == "?":
        return None
    number = int(float(code)) if code[0].isdigit() else -1
    return next((name for name, spans in _CHAPTERS.items() if any(a <= number <= b for a, b in spans)), "other")


def by_patient(frame: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """80 and 20 percent of the patients."""
    patients = np.sort(frame["patient_nbr"].unique())
    test = np.random.default_rng(seed).permutation(patients)[: len(patients) // 5]
    held = frame["patient_nbr"].isin(set(test))
    return frame[~held].reset_index(drop=True), frame[held].reset_index(drop=True)


def codes(frame: pd.DataFrame, train: pd.DataFrame) -> dict[str, np.ndarray]:
    """Whole numbers of every column: categories, and deciles of the training records."""
    found = {}
    for column in schema().columns:
        values = frame[column.name]
        if column.name in _NUMBERS:
            edges = np.unique(np.quantile(train[column.name], np.linspace(0, 1, 11)[1:-1]))
            found[column.name] = np.searchsorted(edges, values.to_numpy(dtype=float), side="right")
        else:
            listed = [False, True] if column.type == "boolean" else list(column.categories)  # type: ignore[union-attr]
            found[column.name] = np.array([listed.index(v) if v in listed else len(listed) for v in values.tolist()])
    return found


def variations(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> tuple[float, float]:
    """Mean total variation of all 1-way and of all 2-way tables."""
    sizes = {name: 1 + max(int(one[name].max()), int(two[name].max())) for name in one}

    def apart(names: tuple[str, ...]) -> float:
        tables = []
        for side in (one, two):
            cell = np.zeros(len(side[names[0]]), dtype=np.int64)
            for name in names:
                cell = cell * sizes[name] + side[name]
            tables.append(np.bincount(cell, minlength=int(np.prod([sizes[name] for name in names]))) / len(cell))
        return float(np.abs(tables[0] - tables[1]).sum() / 2)

    singles = [apart((name,)) for name in one]
    pairs = [apart(pair) for pair in combinations(one, 2)]
    return float(np.mean(singles)), float(np.mean(pairs))


def auroc(made: pd.DataFrame, test: pd.DataFrame) -> float:
    """Mean of three classifiers trained on the one and tested on the other."""
    both = pd.concat([made, test], ignore_index=True)[[*schema().names]]
    features = pd.get_dummies(both.drop(columns="readmitted").astype({"diabetesMed": int}), dummy_na=True).to_numpy(
        float
    )
    spread = features.std(0)
    features = (features - features.mean(0)) / np.where(spread > 0, spread, 1.0)
    target = (both["readmitted"] == "<30").to_numpy()
    x, y, u, v = features[: len(made)], target[: len(made)], features[len(made) :], target[len(made) :]
    models = (
        LogisticRegression(max_iter=300),
        RandomForestClassifier(100, min_samples_leaf=5, random_state=0, n_jobs=2),
        HistGradientBoostingClassifier(random_state=0),
    )
    return float(np.mean([roc_auc_score(v, model.fit(x, y).predict_proba(u)[:, 1]) for model in models]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 10.0])
    parser.add_argument("--max-records", nargs="+", type=int, default=[0, 1, 2, 3, 5], metavar="K")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--noise", default="exact", choices=("exact", "fast"))
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--no-auroc", action="store_true")
    asked = parser.parse_args()
    train, test = by_patient(stays(Path(os.environ.get("GPATE_DATA", ".data")) / "diabetes130.parquet"), 0)
    if asked.validation:
        train, test = by_patient(train, 1)
    truth = codes(test, train)

    def scores(made: pd.DataFrame) -> dict[str, float]:
        one, two = variations(codes(made, train), truth)
        return {"1-way": one, "2-way": two} | ({} if asked.no_auroc else {"AUROC": auroc(made, test)})

    rows: list[dict[str, Any]] = [{"epsilon": "real", "unit": "", **_printed([scores(train)])}]
    for epsilon in asked.epsilon:
        for most in asked.max_records:
            runs = []
            for seed in range(asked.seeds):
                unit = PrivacyUnit(column="patient_nbr", max_records=most) if most else None
                data = train if most else train.drop(columns="patient_nbr")
                noise = {"noise": asked.noise, "noise_seed": seed if asked.noise == "fast" else None}
                began = time.perf_counter()
                model = Synthesizer(epsilon=epsilon, delta=DELTA, seed=seed, **noise)
                model.fit(data, schema=replace(schema(), unit=unit))
                seconds = time.perf_counter() - began
                figures = {**scores(model.sample(len(train), seed=seed)), "seconds": seconds}
                runs.append(figures)
                line = {"epsilon": epsilon, "delta": DELTA, "max_records": most, "seed": seed, "noise": asked.noise}
                line |= {"tested on": "validation" if asked.validation else "test", **figures}
                with RESULTS.open("a") as out:
                    out.write(json.dumps(line) + "\n")
            name = f"patient, k = {most}" if most else "row"
            rows.append({"epsilon": epsilon, "unit": name, **_printed(runs)})
    show(f"UCI Diabetes 130, delta {DELTA:g}, {asked.noise} noise, {asked.seeds} seeds", rows)


def _printed(runs: list[dict[str, float]]) -> dict[str, str]:
    return {key: f"{np.mean([run[key] for run in runs]):.4f}" for key in runs[0]}


if __name__ == "__main__":
    main()
