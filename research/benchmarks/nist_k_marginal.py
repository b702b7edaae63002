"""Our k-marginal score beside NIST's, on NIST's own data with its own cells.

    python3.11 -m venv sdnist && sdnist/bin/pip install sdnist==2.4
    GPATE_DATA=.data GPATE_SDNIST_PYTHON=sdnist/bin/python python -m research.benchmarks.nist_k_marginal

The data are the excerpt national2019 of the American Community Survey, with its value lists and data dictionary (`sdnist-*` in the
folder `GPATE_DATA`). NIST cuts AGEP, PINCP, POVPIP, PWGTP and WGTP at twentieths of the ranks in the real records, and DENSITY on a
scale of powers; N is a cell of its own.

1. Beside the package `sdnist` 2.4, which takes the tables of PUMA and every two other columns but INDP: triples, all of which hold PUMA.
   Five sets are scored by both: the records themselves, as many drawn with replacement, 40% of them, and two tables that keep less.
2. Beside the sample reports that NIST publishes with `sdnist` 2.5 (sample-reports/acs_excerpt_reports: `r_arf_all` and
   `r_aim_e_1_demographic`), which have the scores of random parts of the records. With all columns the triples are those of PUMA and two
   others, INDP too. **Without PUMA, as in the ten columns on which AIM has 976 at epsilon 1, NIST's score is over pairs.**
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from benchmarks.tables import show

from gpate.evaluation import table_distances
from gpate.schema import Categorical, Column, Integer, Numeric, TableSchema

RANKED = ("AGEP", "PINCP", "POVPIP", "PWGTP", "WGTP")
TEN = ("AGEP", "SEX", "MSP", "RAC1P", "HOUSING_TYPE", "OWN_RENT", "EDU", "PINCP_DECILE", "DVET", "DEYE")
"""NIST's demographic columns."""

PUBLISHED = {0.01: (554, 902), 0.05: (753, 946), 0.1: (822, 969), 0.2: (880, 977), 0.4: (923, 987), 0.9: (981, 996)}
"""NIST's scores of random parts of the records: all columns, ten columns."""

_SDNIST = """
import json, sys
import pandas as pd
import sdnist.report  # before its metrics, which import it in a circle
from sdnist.metrics.kmarginal import KMarginal
from sdnist.report.dataset.binning import add_bin_for_NA, bin_density, percentile_rank_synthetic, percentile_rank_target
from sdnist.report.dataset.transform import transform
from sdnist.report.dataset.validate import validate
real, made, lists, dictionary = sys.argv[1:]
lists, dictionary = json.load(open(lists))["schema"], json.load(open(dictionary))
def read(path):
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    frame = frame.astype({name: facts["dtype"] for name, facts in lists.items() if facts["dtype"] != "object"})
    checked, _ = validate(frame[sorted(frame)], dictionary, sorted(frame))
    assert list(checked) == sorted(frame), "a column was left out"
    bin_density(checked, dictionary)
    return checked
real, made = read(real), read(made)
numbers = ["AGEP", "POVPIP", "PINCP", "PWGTP", "WGTP"]
cells = add_bin_for_NA(percentile_rank_target(real, numbers), real, numbers)
others = add_bin_for_NA(percentile_rank_synthetic(made, real, cells, numbers), made, numbers)
rest = [name for name in real if name not in numbers]
cells[rest], others[rest] = (transform(frame, lists)[rest] for frame in (real, made))
print(KMarginal(cells, others, ["PUMA"]).compute_score())
"""


def records(folder: Path) -> pd.DataFrame:
    """The excerpt, all columns as text."""
    return pd.read_parquet(folder / "sdnist-national2019.parquet").astype(object)


def schema(folder: Path) -> TableSchema:
    """By NIST's value lists: N, not applicable, is a missing number, and a category where there is no number."""
    columns: list[Column] = []
    for name, facts in json.loads((folder / "sdnist-national2019.json").read_text())["schema"].items():
        if "values" in facts:
            columns.append(Categorical(name=name, categories=tuple(str(value) for value in facts["values"])))
        elif facts["dtype"] == "float64":
            columns.append(Numeric(name=name, bounds=(0, facts["max"] + 500)))
        else:
            columns.append(Integer(name=name, bounds=(facts["min"], facts["max"]), missing="has_null" in facts))
    return TableSchema(columns=tuple(columns))


def cuts(real: pd.DataFrame, dictionary: Mapping[str, Any]) -> dict[str, list[float]]:
    """NIST's: a value's cell is the twentieth in which the mean of its ranks lies; DENSITY is cut at 150 and on a scale of powers."""
    most = dictionary["DENSITY"]["values"]["max"] + 500
    found = {"DENSITY": [150.0, *np.geomspace(10, most, 21)[8:-1]]}
    for name in RANKED:
        values = pd.to_numeric(real[name], errors="coerce").dropna()
        twentieths = np.minimum(np.floor(20 * values.rank(pct=True)), 19)
        found[name] = values.groupby(twentieths).max().tolist()[:-1]
    return found


def numbered(frame: pd.DataFrame) -> pd.DataFrame:
    """With N as a missing value in columns of numbers."""
    return frame.assign(**{name: frame[name].where(frame[name] != "N", None) for name in RANKED})


def sets(real: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The sets that are scored."""
    rng = np.random.default_rng(0)
    return {
        "the records themselves": real,
        "as many, with replacement": real.sample(len(real), replace=True, random_state=0),
        "40% of them": real.sample(frac=0.4, random_state=0),
        "independent in each PUMA": real.groupby("PUMA", group_keys=False)[list(real)].apply(
            lambda part: part.apply(lambda column: rng.permutation(column.to_numpy()))
        ),
        "independent": real.apply(lambda column: rng.permutation(column.to_numpy())),
    }


def theirs(real: pd.DataFrame, made: pd.DataFrame, folder: Path) -> float:
    """The score by `sdnist`, in its own environment."""
    facts = [str(folder / name) for name in ("sdnist-national2019.json", "sdnist-data-dictionary.json")]
    with tempfile.TemporaryDirectory() as place:
        paths = [str(Path(place) / name) for name in ("real.csv", "made.csv")]
        for frame, path in zip((real, made), paths, strict=True):
            frame.to_csv(path, index=False)
        command = [os.environ["GPATE_SDNIST_PYTHON"], "-W", "ignore", "-c", _SDNIST, *paths, *facts]
        return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def beside_package(real: pd.DataFrame, facts: TableSchema, places: dict[str, list[float]], folder: Path) -> None:
    rows = []
    for name, made in sets(real).items():
        frames = numbered(made), numbered(real)
        ours = table_distances(*frames, facts, cuts=places, triples=with_puma(facts, without="INDP")).k_marginal
        whole, deciles = table_distances(*frames, facts, cuts=places), table_distances(*frames, facts)
        row = {"set": name, "sdnist 2.4": theirs(real, made, folder), "ours, its triples": ours}
        rows.append(row | {"all triples": whole.k_marginal, "all triples, deciles": deciles.k_marginal})
    show("k-marginal score, k = 3", [{key: _digits(value) for key, value in row.items()} for row in rows])
    print("largest difference from sdnist:", max(abs(row["sdnist 2.4"] - row["ours, its triples"]) for row in rows))


def beside_reports(real: pd.DataFrame, facts: TableSchema, places: dict[str, list[float]]) -> None:
    ten = TableSchema(columns=tuple(column for column in facts.columns if column.name in TEN))
    rows = []
    for part, (published, published_ten) in PUBLISHED.items():
        frames = numbered(real.sample(frac=part, random_state=1)), numbered(real)
        whole = table_distances(*frames, facts, cuts=places, triples=with_puma(facts))
        few = table_distances(*frames, ten, cuts={"AGEP": places["AGEP"]})
        row = {"part": f"{part:.0%}", "NIST": published, "ours, PUMA with two": f"{whole.k_marginal:.1f}"}
        row |= {"NIST, ten columns": published_ten, "ours, pairs": f"{1000 * (1 - few.two_way):.1f}"}
        rows.append(row | {"ours, triples": f"{few.k_marginal:.1f}"})
    show("Random parts of the records: NIST's sample reports", rows)


def with_puma(facts: TableSchema, without: str = "") -> list[tuple[str, str, str]]:
    """PUMA with every two other columns."""
    others = sorted(set(facts.names) - {"PUMA", without})
    return [("PUMA", a, b) for a, b in combinations(others, 2)]


def main() -> None:
    folder = Path(os.environ["GPATE_DATA"])
    real, facts = records(folder), schema(folder)
    places = cuts(real, json.loads((folder / "sdnist-data-dictionary.json").read_text()))
    beside_reports(real, facts, places)
    beside_package(real, facts, places, folder)


def _digits(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.3f}"


if __name__ == "__main__":
    main()
