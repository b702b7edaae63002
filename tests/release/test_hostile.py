"""No release keeps `gpate.verify` busy for more than ten seconds of the processor, or takes a gigabyte: limits are rules, not clocks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpate.accounting import Budget, Laplace, PoissonSampledGaussian, tally
from gpate.errors import NotComputable
from gpate.safe_parsing import load_json
from tests.processes import run
from tests.release.hostile import CASES, SLOW, main
from tests.releases import make_release


def results(folder: Path, cases: list[str]) -> dict[str, list[str] | int]:
    make_release(folder / "release")
    ran = run(main, str(folder), cases)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(line) for line in ran.stdout.splitlines())


def test_hostile_releases_are_refused_within_limits(tmp_path: Path) -> None:
    found = results(tmp_path, list(CASES))
    assert set(found) == set(CASES)
    assert {case: failed for case, failed in found.items() if not isinstance(failed, list) or not failed} == {}


@pytest.mark.slow
def test_releases_at_the_limits_stay_within_them_too(tmp_path: Path) -> None:
    found = results(tmp_path, list(SLOW))
    assert {case: failed for case, failed in found.items() if not isinstance(failed, list)} == {}


@pytest.mark.parametrize(
    "event", [PoissonSampledGaussian(noise_multiplier=0.2, sampling_probability=1e-4), Laplace(scale=0.01)]
)
def test_the_limit_is_named(event: PoissonSampledGaussian | Laplace) -> None:
    budget = Budget(epsilon=9.0, delta=1e-5, accountant="pld", pure=1.0)
    with pytest.raises(NotComputable, match=r"exceed the limits .* Fix: a smaller epsilon"):
        budget.spend(tally([event]))


def test_no_long_number_is_read() -> None:
    assert load_json(b'{"a": [12345678901234567890, 1.5]}') == {"a": [12345678901234567890, 1.5]}
    with pytest.raises(ValueError, match="whole number"):
        load_json("9" * 21)
