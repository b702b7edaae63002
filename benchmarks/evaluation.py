"""How long an evaluation takes, and what real records score: `python -m benchmarks.evaluation [adult credit] [--paper]`.

The "synthetic" table is a bootstrap sample of the training records, so its scores are near the ceiling, and it is memorised.
Nothing is taken from the cache. `--paper` prints the train-on-real figures on Kaggle Credit beside the paper's. To time two
cores on a larger machine: `taskset -c 0,1 env OMP_NUM_THREADS=1 python -m benchmarks.evaluation`.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from benchmarks.tables import keep, show
from gpate.datasets import dataset, load
from gpate.evaluation import EvaluationPlan, RealRecords, evaluate_records
from gpate.schema import Schema

PAPER = {
    "LR-L1": (0.9330, 0.6184),
    "AdaBoost": (0.9802, 0.7103),
    "bagging": (0.9699, 0.6707),
    "MLP": (0.9754, 0.8223),
}
"""G-PATE, appendix B, trained and tested on real records: AUROC, AUPRC."""


def measure(name: str, *, quick: bool) -> tuple[dict[str, Any], Any]:
    train, test = (load(name, split).frame for split in ("train", "test"))
    assert train is not None
    start = time.perf_counter()
    found = evaluate_records(
        lambda seed: train.sample(len(train), replace=True, random_state=seed).reset_index(drop=True),
        RealRecords(train=train, test=test, schema=Schema.load(dataset(name).schema_path), name=name),
        EvaluationPlan(quick=quick),
        subject="bootstrap",
    )
    row = {"data": name, "mode": "quick" if quick else "full", "seconds": time.perf_counter() - start}
    for mean in ("paper mean", "modern mean"):
        for metric in ("auroc", "auprc"):
            score = found.find(metric, mean, "real")
            row[f"{mean} {metric}, real"] = score.mean if score is not None and score.values else None
    return row, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["adult", "credit"])
    parser.add_argument("--paper", action="store_true")
    arguments = parser.parse_args()
    rows, figures = [], []
    for name in arguments.names:
        for quick in (True, False):
            row, found = measure(name, quick=quick)
            rows.append(row)
        if name == "credit" and arguments.paper:
            for classifier, paper in PAPER.items():
                ours = [found.find(metric, classifier, "real") for metric in ("auroc", "auprc")]
                figures.append(
                    {
                        "classifier": classifier,
                        "AUROC": ours[0].mean,
                        "paper's AUROC": paper[0],
                        "AUPRC": ours[1].mean,
                        "paper's AUPRC": paper[1],
                    }
                )
    cores = len(os.sched_getaffinity(0))
    show(f"Evaluation of a table, {cores} cores, no cache", rows)
    if figures:
        show("Kaggle Credit, trained on real records", figures)
    keep("evaluation", {"cores": cores, "evaluations": rows, "credit": figures})


if __name__ == "__main__":
    main()
