"""What all tests share: quick gates, and a profile for hypothesis that does not depend on the machine's speed.

gpate is imported where it is used: the process that hands tests to workers loads this file too, and needs none of it.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.processes import FEW_TREES

if TYPE_CHECKING:
    from gpate.accounting import Budget
    from gpate.boundary import Gate

settings.register_profile(
    "gpate", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("gpate")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """What libraries and tests make when they are loaded stays: the garbage collector need not look at it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_unconfigure() -> None:
    """Libraries that count their objects at the end would call what is left a leak."""
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="package")
def few_trees() -> Iterator[None]:
    """In the classifiers of an evaluation, as in the processes that are started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpate.evaluation.table_classifiers._TREES", FEW_TREES)
        yield


@pytest.fixture
def budget() -> Budget:
    from gpate.accounting import Budget

    return Budget(epsilon=10.0, delta=1e-5, pure=0.1)


@pytest.fixture
def gate(budget: Budget) -> Gate:
    """Floating-point noise, ledger in memory."""
    from gpate.boundary import FastNoise, Gate

    return Gate.in_memory(budget, FastNoise(seed=0))


@pytest.fixture
def exact_gate(tmp_path: Path, budget: Budget) -> Gate:
    """Exact noise, ledger on disk."""
    from gpate.boundary import ExactNoise, Gate

    return Gate.create(tmp_path / "ledger.jsonl", budget, ExactNoise())
