"""The transcription is the paper's: every figure is found in its source, in the same order and under the same columns."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from gpate_research.reproduce.cells import SYSTEMS
from gpate_research.reproduce.paper_tables import TABLES

ROOT = Path(__file__).resolve().parents[2]
NAME = "shared/paper/g-pate.tex.txt"
NUMBER = re.compile(r"(?<![\w.])\d+\.\d+")
WRITTEN = {"dcgan": "DC-GAN", "dpgan": "DP-GAN", "pategan": "PATE-GAN", "gswgan": "GS-WGAN", "g-pate": "G-PATE"}


def source() -> str:
    """The paper's source without its spacing and column rules: `GPATE_PAPER`, or the shared folder near the checkout."""
    named = [Path(os.environ["GPATE_PAPER"])] if "GPATE_PAPER" in os.environ else []
    found = next((p for p in (*named, *(folder / NAME for folder in (ROOT, *ROOT.parents))) if p.is_file()), None)
    if found is None:
        pytest.skip("the paper's source is not here: name it in GPATE_PAPER")
    text = found.read_text()
    text = re.sub(r"\\(cmidrule|resizebox|vspace)\{[^}]*\}", "", text)
    return text.replace(r"\name{}", "G-PATE")


def tabulars(label: str) -> str:
    """The tabular that a label stands before, in or after; for a table of two, both."""
    text = source()
    at = text.index(f"\\label{{{label}}}")
    if label == "tab:full_image":
        start = text.rindex(r"\begin{table*}", 0, at)
        return text[start:at]
    table = text.rindex(r"\begin{table}", 0, at)
    end = text.index(r"\end{table}", at)
    blocks = [
        m for m in re.finditer(r"\\begin\{tabular\}.*?\\end\{tabular\}", text, re.DOTALL) if table < m.start() < end
    ]
    after = [m for m in blocks if m.start() > at]
    caption_above = text.rfind(r"\caption", table, at) > max((m.end() for m in blocks if m.end() < at), default=table)
    chosen = after[0] if after and caption_above else blocks[-1]
    return chosen.group()


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.label])
def test_every_figure_is_in_the_paper_in_this_order(name: str) -> None:
    table = TABLES[name]
    body = re.sub(r"\\begin\{tabular\}\{[^}]*\}", "", tabulars(table.label))
    header, rows = table.grid.strip().split("\n", 1)
    assert NUMBER.findall(rows) == NUMBER.findall(body)
    assert len(NUMBER.findall(rows)) > 5, header


@pytest.mark.parametrize("name", ["table1a", "table1b", "table1c", "table2", "table5", "table8"])
def test_the_columns_are_the_papers(name: str) -> None:
    table = TABLES[name]
    body = re.sub(r"\\shortstack|\\scriptsize|\\\\|\\textbf|[{}\s;]|\\;", "", tabulars(table.label))
    words = re.findall(r"DC-GAN|DP-GAN|PATE-GAN|GS-WGAN|G-PATE|(?<![\w-])GAN", body.replace("&", " & "))
    columns = [word.rpartition("/")[2] for word in table.grid.split("\n")[1].split()]
    wanted = [WRITTEN[column] for column in columns if column in SYSTEMS and column != "real"]
    assert ["DC-GAN" if word == "GAN" else word for word in words[: len(wanted)]] == wanted


@pytest.mark.parametrize(
    ("table", "phrase"),
    [
        (
            "agreement",
            r"achieves $60.35\%$ agreement rate for teacher votes on the most agreed direction, and $39.11\%$",
        ),
        ("data-independent", r"classification accuracy) of G-PATE on MNIST is 0.5483"),
        ("dpgan-projected", r"0.2026 ($\varepsilon=1$) and 0.5602 ($\varepsilon=10$)"),
        ("running-time", "213.56 seconds for generating fake samples"),
        ("running-time", "43.18 seconds to perform gradient quantization"),
        ("running-time", "256.74 seconds to run for one epoch"),
        ("running-time", "at epoch 232, in total 16.5 hours"),
    ],
)
def test_figures_of_the_text_are_in_the_paper(table: str, phrase: str) -> None:
    assert phrase in source()
    figures = {float(word) for word in re.findall(r"\d+(?:\.\d+)?", TABLES[table].grid)}
    for number in re.findall(r"(?<![=\d.])\d+(?:\.\d+)?", re.sub(r"\\varepsilon=\d+", "", phrase)):
        value = float(number)
        assert value in figures or round(value / 100, 6) in figures, number


def test_tables_without_a_label_are_checked_by_phrases() -> None:
    unlabelled = {name for name, table in TABLES.items() if not table.label}
    assert unlabelled == {
        "agreement",
        "data-independent",
        "dpgan-projected",
        "running-time",
        "beyond",
        "cifar10",
        "peers",
    }
    for own in ("beyond", "peers"):
        assert not re.findall(r"\d\.\d{3}", TABLES[own].grid), "what is not in the paper has no figure of it"
