"""dpmm's PrivBayes, MST and AIM on a table from `gpate_research.peers.peer_process`. Run by dpmm's own Python; imports nothing of gpate.

A tenth of epsilon goes to its bins (PrivTree, its default), the rest to the model: together no more than was asked for.
"""

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

PIPELINES = {"privbayes": "PrivBayesPipeline", "mst": "MSTPipeline", "aim": "AIMPipeline"}
BINS_SHARE = 0.1
MISSING = 66


def main(folder: Path) -> None:
    """Reads the job and the records, fits, draws, and writes."""
    try:
        import pandas as pd
        from dpmm import pipelines
    except ModuleNotFoundError:
        sys.exit(MISSING)

    job = json.loads((folder / "job.json").read_text())
    table = pd.read_parquet(folder / "records.parquet")
    domain: dict[str, Any] = {}
    for name, column in job["domain"].items():
        if column["kind"] == "number":
            domain[name] = {"lower": 0.0, "upper": 1.0}
        else:  # texts, or dpmm takes whole numbers for numbers
            table[name] = table[name].astype(str)
            domain[name] = {"categories": [str(code) for code in range(column["size"])]}
    numbers = any(column["kind"] == "number" for column in job["domain"].values())
    bins = BINS_SHARE * job["epsilon"] if numbers else None
    settings = {
        "epsilon": job["epsilon"] - (bins or 0.0),
        "delta": job["delta"],
        "proc_epsilon": bins,
        "n_jobs": 1,
    }
    model = getattr(pipelines, PIPELINES[job["algorithm"]])(**settings)
    began, used = time.perf_counter(), time.process_time()
    model.fit(table, domain=domain, random_state=job["seed"])
    fitted, cpu = time.perf_counter(), time.process_time() - used
    made = model.generate(n_records=job["rows"], random_state=job["seed"])
    drawn = time.perf_counter()
    for name, column in job["domain"].items():
        if column["kind"] == "category":
            made[name] = made[name].astype(str).astype(int)
        else:
            made[name] = made[name].astype(float)
    made[list(job["domain"])].to_parquet(folder / "synthetic.parquet", index=False)
    result = {"fit_seconds": fitted - began, "sample_seconds": drawn - fitted, "version": version("dpmm")}
    result |= {"fit_cpu_seconds": cpu}
    (folder / "result.json").write_text(json.dumps({**result, "settings": settings}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
