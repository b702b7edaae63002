"""What all tests share: quick gates, and a profile for hypothesis that does not depend on the machine's speed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from gpate.accounting import Budget
from gpate.boundary import ExactNoise, FastNoise, Gate

settings.register_profile(
    "gpate", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("gpate")

BUDGET = Budget(epsilon=10.0, delta=1e-5, pure=0.1)


@pytest.fixture
def budget() -> Budget:
    return BUDGET


@pytest.fixture
def gate() -> Gate:
    """Floating-point noise, ledger in memory."""
    return Gate.in_memory(BUDGET, FastNoise(seed=0))


@pytest.fixture
def exact_gate(tmp_path: Path) -> Gate:
    """Exact noise, ledger on disk."""
    return Gate.create(tmp_path / "ledger.jsonl", BUDGET, ExactNoise())
