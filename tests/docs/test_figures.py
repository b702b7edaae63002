"""Figures in the text of pages are those that the code computes."""

from __future__ import annotations

import math
import re

import pytest
from scipy.stats import norm

from gpate.accounting.gaussian import epsilon_for, mu_for
from tests.processes import ROOT

PAGE = (ROOT / "docs" / "how-to" / "choose-epsilon.md").read_text()
DELTA = 1e-6


def rows(heading: str) -> list[list[float]]:
    """The numbers of a section's last table, row by row; text between them is passed over, and `all` is everything."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.replace("all", "100%") for line in section.splitlines() if re.match(r"\| \d", line)]
    return [[float(re.search(r"[\d.]+", cell)[0]) for cell in line.strip("| ").split("|")] for line in lines]  # type: ignore[index]


@pytest.mark.parametrize("row", rows("What an attacker gains"), ids=lambda row: f"epsilon {row[0]:g}")
def test_what_an_attacker_gains(row: list[float]) -> None:
    epsilon, little, even, bound, gaussian = row
    odds = math.exp(epsilon)
    assert little == pytest.approx(100 * odds * 0.01 / (odds * 0.01 + 0.99), abs=0.05, rel=0.01)
    assert even == pytest.approx(100 * odds / (odds + 1), rel=0.005)
    assert bound == pytest.approx(100 * min(odds * 0.01 + DELTA, 1 - (1 - DELTA - 0.01) / odds), abs=0.05, rel=0.01)
    assert gaussian == pytest.approx(100 * norm.cdf(norm.ppf(0.01) + mu_for(epsilon, delta=DELTA)), abs=0.05, rel=0.015)


def test_rows_of_a_person_and_runs_of_a_data_set_add_up() -> None:
    persons, runs = rows("k: how many records of a person count"), rows("Several runs add up")
    assert len(persons) == len(runs) == 5
    for count, epsilon in persons:
        assert epsilon == pytest.approx(epsilon_for(count * mu_for(1.0, delta=DELTA), delta=DELTA), abs=0.06)
    for count, *epsilons in runs:
        for one, epsilon in zip((0.5, 1.0, 2.0), epsilons, strict=True):
            composed = epsilon_for(math.sqrt(count) * mu_for(one, delta=DELTA), delta=DELTA)
            assert epsilon == pytest.approx(composed, abs=0.06)


def test_delta_costs_little() -> None:
    mu = mu_for(1.0, delta=DELTA)
    for delta, epsilon in ((1e-7, 1.11), (1e-9, 1.32)):
        assert f"{epsilon} at {delta:.0e}".replace("e-0", "e-") in PAGE
        assert epsilon_for(mu, delta=delta) == pytest.approx(epsilon, abs=0.006)


def test_two_steps_of_a_guarantee_cost_more_than_twice_epsilon() -> None:
    page = (ROOT / "docs" / "how-to" / "persons.md").read_text()
    found = re.search(r"epsilon is then ([\d.]+) instead of 1, and ([\d.]+) instead of 10\.", page)
    assert found is not None
    for one, two in ((1.0, found[1]), (10.0, found[2])):
        assert float(two) == pytest.approx(epsilon_for(2 * mu_for(one, delta=1e-5), delta=1e-5), rel=0.005)


def test_the_figures_against_the_paper_are_those_of_the_results() -> None:
    results = (ROOT / "research" / "results" / "results.md").read_text()
    results = results.partition("## In short")[2].partition("\n## ")[0]
    page = (ROOT / "docs" / "explanation" / "paper.md").read_text()
    found = re.findall(r"^\| ([^|]*ε = \d+) \|(.*)\|$", page, re.MULTILINE)
    assert len(found) == 6
    for name, figures in found:
        line = re.search(rf"^\| {re.escape(name)} \|[^|]*\|(.*)\|$", results, re.MULTILINE)
        assert line is not None, name
        measured = [float(one[0]) for cell in line[1].split("|") if (one := re.search(r"\d\.\d+", cell))]
        # rounded once, from more digits than the results show
        assert [float(cell) for cell in figures.split("|")] == pytest.approx(measured, abs=0.00055)
