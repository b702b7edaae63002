"""The research package must be installed for its tests: gpate finds it by its entry points."""

from __future__ import annotations

import pytest

from gpate.datasets import DATASETS


def pytest_configure(config: pytest.Config) -> None:
    if "mnist" not in DATASETS:
        raise pytest.UsageError("gpate-research is not installed. Fix: make setup, or pip install -e research")
