"""Ours and others' synthesizers of tables in one run: same records, same split, same public domain, same judges.

    python -m benchmarks.peers adult --dpmm-python dpmm/bin/python --smartnoise-python smartnoise/bin/python

Each method is fitted to the training records at the same epsilon and delta, one after the other, on one thread, and draws
as many records as there are. `gpate.evaluation` scores them: `modern mean` is the mean AUROC of logistic regression, random
forest and histogram gradient boosting, and the distances are total variation of one- and two-way tables against the test
records. Seconds are of the method's own fit; CPU seconds of its whole process, start and sampling included, which a busy
machine does not change. A method that is not installed, fails, or does not end within `--limit` seconds has
that as its result. Each run is added to the results as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.tables import RESULTS, show
from gpate import GPATE
from gpate.datasets import DATASETS
from gpate.errors import PeerError
from gpate.evaluation.evaluate import commit, evaluate_records
from gpate.peers import PEERS, run_peer
from gpate.schema import Schema, TableSchema
from gpate.version import __version__

DELTA = 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=("adult", "credit"))
    parser.add_argument("--methods", nargs="+", default=["gpate", *PEERS], choices=["gpate", "real", *PEERS])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--limit", type=float, default=1200.0, help="seconds of a method")
    parser.add_argument("--logs", type=Path, help="a folder for what the peers print; it may quote records")
    for package in sorted({peer.package for peer in PEERS.values()}):
        parser.add_argument(f"--{package}-python", help="of its own environment")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    RESULTS.mkdir(exist_ok=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as cache:
        for seed in asked.seeds:
            for method in asked.methods:
                found = measured(method, seed, asked, Path(cache))
                rows.append({"method": method, "seed": seed, **found})
                machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
                line = {"data": asked.data, "epsilon": asked.epsilon, "delta": DELTA, **rows[-1]}
                line |= {"threads": 1, "commit": commit(), **machine}
                with (RESULTS / "peers.jsonl").open("a") as out:
                    out.write(json.dumps(line) + "\n")
    keys = ("method", "seed", "AUROC", "LR", "RF", "HistGB", "two-way distance", "fit seconds", "CPU seconds", "ended")
    show(f"{asked.data}, epsilon {asked.epsilon:g}", [{key: row.get(key) for key in keys} for row in rows])


def cpu_seconds() -> float:
    """Of this process and those it has waited for."""
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def measured(method: str, seed: int, asked: argparse.Namespace, cache: Path) -> dict[str, Any]:
    """Figures of one method, or how it ended without any."""
    train, test = (DATASETS[asked.data].load(split).frame for split in ("train", "test"))
    schema = Schema.load(DATASETS[asked.data].schema_path)
    assert isinstance(schema, TableSchema)
    assert train is not None
    began, used = time.perf_counter(), cpu_seconds()
    facts: dict[str, Any]
    if method == "real":
        made, facts = train.sample(len(train), replace=True, random_state=seed).reset_index(drop=True), {}
    elif method == "gpate":
        model = GPATE(epsilon=asked.epsilon, delta=DELTA, seed=seed).fit(train, schema=schema)
        fitted = time.perf_counter()
        made = model.sample(len(train), seed=seed)
        facts = {"fit seconds": fitted - began, "sample seconds": time.perf_counter() - fitted, "version": __version__}
    else:
        peer = PEERS[method]
        log = None if asked.logs is None else asked.logs / f"{method}-{seed}.log"
        try:
            run = run_peer(
                peer,
                train,
                schema=schema,
                epsilon=asked.epsilon,
                delta=DELTA,
                seed=seed,
                python=getattr(asked, f"{peer.package}_python"),
                seconds=asked.limit,
                log=log,
            )
        except PeerError as problem:
            return {"ended": type(problem).__name__, "limit": asked.limit, "CPU seconds": cpu_seconds() - used}
        made = run.records
        facts = {"fit seconds": run.fit_seconds, "sample seconds": run.sample_seconds, "version": run.version}
        facts["settings"] = run.settings
    facts |= {"seconds": time.perf_counter() - began, "CPU seconds": cpu_seconds() - used}
    judged = evaluate_records(
        lambda _: made,
        train=train,
        test=test,
        schema=schema,
        dataset=asked.data,
        subject=method,
        generator_seeds=(0,),
        classifier_seeds=(0,),
        cache=cache,
    )

    def score(metric: str, subject: str = "", source: str = "synthetic") -> float | None:
        one = judged.find(metric, subject, source)
        return float(np.mean(one.values)) if one is not None and one.values else None

    figures = {
        "AUROC": score("auroc", "modern mean"),
        "AUPRC": score("auprc", "modern mean"),
        "LR": score("auroc", "LR"),
        "RF": score("auroc", "random forest"),
        "HistGB": score("auroc", "HistGB"),
        "paper's four, AUROC": score("auroc", "paper mean"),
        "paper's four, AUPRC": score("auprc", "paper mean"),
        "one-way distance": score("one-way distance"),
        "two-way distance": score("two-way distance"),
        "AUROC of real records": score("auroc", "modern mean", "real"),
    }
    return {**figures, **facts, "ended": "well"}


if __name__ == "__main__":
    main()
