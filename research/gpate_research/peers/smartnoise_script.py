"""SmartNoise's MST and PATEGAN on a table from `gpate_research.peers.peer_process`. Run by its own Python; imports nothing of gpate.

Its transformers are fitted on a public table that holds every category of the domain, not on the records, so no part of
epsilon goes to them. MST sees numbers in 20 equal steps, PATEGAN as they are; all other settings are SmartNoise's own.
"""

import json
import random
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

BINS = 20
MISSING = 66


def main(folder: Path) -> None:
    """Reads the job and the records, fits, draws, and writes."""
    try:
        import numpy as np
        import pandas as pd
        import torch
        from snsynth import Synthesizer
        from snsynth.transform.bin import BinTransformer
        from snsynth.transform.chain import ChainTransformer
        from snsynth.transform.label import LabelTransformer
        from snsynth.transform.minmax import MinMaxTransformer
        from snsynth.transform.onehot import OneHotEncoder
        from snsynth.transform.table import TableTransformer
    except ModuleNotFoundError:
        sys.exit(MISSING)

    job = json.loads((folder / "job.json").read_text())
    table = pd.read_parquet(folder / "records.parquet")
    gan = job["algorithm"] == "pategan"
    random.seed(job["seed"])
    np.random.seed(job["seed"])  # noqa: NPY002
    torch.manual_seed(job["seed"])

    def transformer(column: dict[str, Any]) -> Any:
        if column["kind"] == "number":
            own = {"lower": 0.0, "upper": 1.0, "nullable": column["missing"]}
            return MinMaxTransformer(**own) if gan else BinTransformer(bins=BINS, **own)
        label = LabelTransformer(nullable=False)
        return ChainTransformer([label, OneHotEncoder()]) if gan else label

    def public(column: dict[str, Any]) -> Any:
        return np.arange(most) % 2.0 if column["kind"] == "number" else np.arange(most) % column["size"]

    columns = job["domain"]
    most = max(2, *(column.get("size", 2) for column in columns.values()))
    transform = TableTransformer([transformer(column) for column in columns.values()])
    transform.fit(pd.DataFrame({name: public(column) for name, column in columns.items()}))
    settings = {"epsilon": float(job["epsilon"]), "delta": job["delta"]}
    model = Synthesizer.create(job["algorithm"], **settings)
    began, used = time.perf_counter(), time.process_time()
    model.fit(table[list(columns)], transformer=transform)
    fitted, cpu = time.perf_counter(), time.process_time() - used
    made = pd.DataFrame(model.sample(job["rows"]), columns=list(columns))
    drawn = time.perf_counter()
    for name, column in columns.items():
        made[name] = made[name].astype(float) if column["kind"] == "number" else made[name].astype(int)
    made.to_parquet(folder / "synthetic.parquet", index=False)
    result = {"fit_seconds": fitted - began, "sample_seconds": drawn - fitted, "version": version("smartnoise-synth")}
    result |= {"fit_cpu_seconds": cpu}
    (folder / "result.json").write_text(json.dumps({**result, "settings": settings | {"bins": BINS}}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
