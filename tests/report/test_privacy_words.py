"""What the page says about the guarantee is true: brute force over tests, and the ledger's own sums."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest

from gpate import boundary
from gpate.accounting import read_ledger
from gpate.boundary import NoisyProducts, NoisySum, NoisyTally, SampledSum
from gpate.methods.marginals.private_bins import ROUNDS, round_name
from gpate.report.formatting import counted, listed, name, number, percent
from gpate.report.privacy_section import (
    PURPOSES,
    answered,
    chance_to_guess,
    grade,
    groups,
    paid,
    purpose_in_words,
    spend_points,
)
from tests.releases import make_release


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.0), (1.0, 1e-5), (1.0, 0.1), (3.0, 0.01)])
def test_no_guess_is_right_more_often_and_one_is_as_often(epsilon: float, delta: float) -> None:
    """Over a fine grid of all (p, q) that (epsilon, delta) allows."""
    p, q = np.meshgrid(np.linspace(0, 1, 2001), np.linspace(0, 1, 2001))
    growth = math.exp(epsilon)
    allowed = (p <= growth * q + delta) & (1 - q <= growth * (1 - p) + delta)
    best = float(((p + 1 - q) / 2)[allowed].max())
    bound = chance_to_guess(epsilon, delta)
    assert best <= bound + 1e-12
    assert best >= bound - 2e-3  # the bound is not idle


def test_groups_grow_and_say_when_nothing_is_left() -> None:
    one, two, five = groups(1.0, 1e-5)
    assert one.right == pytest.approx(chance_to_guess(1.0, 1e-5))
    assert two.epsilon == 2.0
    assert two.right is not None
    assert one.right < two.right
    # Two steps of one record each: P0 <= e P1 + d and P1 <= e P2 + d give P0 <= e^2 P2 + d (1 + e).
    assert two.right == pytest.approx(chance_to_guess(2.0, 1e-5 * (1 + math.e)))
    assert groups(10.0, 1e-5)[1].right is None
    assert five.right is not None


def test_the_curve_ends_at_the_spend_and_never_falls(tmp_path: Path) -> None:
    certificate = make_release(tmp_path / "release")
    ledger = read_ledger(tmp_path / "release" / "ledger.jsonl")
    points = spend_points(ledger)
    assert points[0] == (0, 0.0)
    assert points[-1] == (3, pytest.approx(certificate.spend))
    assert all(a[1] < b[1] for a, b in itertools.pairwise(points))
    rows = paid(ledger)
    assert [(row.times, row.share) for row in rows] == [(6, 1.0)]
    assert rows[0].alone == pytest.approx(certificate.spend)
    assert answered(ledger) == 0.0


def test_words() -> None:
    assert [grade(e) for e in (0.2, 1, 3, 10, 11, math.inf)] == ["strong"] * 2 + ["moderate", "weak"] + [
        "very weak"
    ] * 2
    assert [grade(1.0, delta) for delta in (1e-5, 1e-4, 1e-3)] == ["strong", "strong", "very weak"]
    assert number(1e-5) == "0.00001"
    assert number(-1234.5) == "\N{MINUS SIGN}1,234"
    assert number(3e-12) == "3 \N{MULTIPLICATION SIGN} 10⁻¹²"
    assert number(0.28612) == "0.286"
    assert [number(x) for x in (-0.0, -0.2, -1.0)] == ["0", "\N{MINUS SIGN}0.2", "\N{MINUS SIGN}1"]
    assert [number(x, places=2) for x in (-0.004, -0.006, 0.126)] == ["0", "\N{MINUS SIGN}0.01", "0.13"]
    assert percent(-0.0) == "0%"
    assert percent(0.9999999) == "nearly 100%"  # never certainty by rounding
    assert percent(1.0) == "100%"
    assert percent(0.0) == "0%"
    assert name("a\u202eb\x00", most=9) == "a\ufffdb\ufffd"
    assert name("x" * 50, most=10) == "x" * 9 + "…"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert counted(1, "record") == "1 record"


def test_whatever_the_gate_is_paid_for_is_said_in_words() -> None:
    """All purposes in the code of the gate. Tables name their blocks themselves, and research counts agreement without noise."""
    code = "".join(path.read_text() for path in Path(boundary.__file__).parent.glob("*.py"))
    found = set(re.findall(r'purpose(?:: (?:ClassVar\[)?str\]?)? ?= ?"([^"]+)"', code)) - {
        "agreement without noise",
        "blocks",
    }
    assert {"vote", "majority", "one of many", "class counts"} <= found
    assert {mechanism.purpose for mechanism in (NoisyProducts, NoisySum, NoisyTally)} <= found
    assert found | {round_name(number) for number in range(1, ROUNDS + 1)} <= set(PURPOSES)


def test_sums_over_a_sample_are_of_gradients() -> None:
    words = [purpose_in_words(SampledSum.purpose, kind) for kind in ("DiscreteGaussian", "PoissonSampledGaussian")]
    assert words == [
        "Sums of features over the records of each class",
        "Sums of gradients over a sample of the records",
    ]
    assert purpose_in_words("something new", "PoissonSampledGaussian") == "something new"
