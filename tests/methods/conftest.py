"""What tests of methods share."""

from __future__ import annotations

import pytest

from tests.methods.small import FEW_MAPS
from tests.processes import FEW_LATENTS


@pytest.fixture
def small_students(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few maps, and few latents behind normalisation statistics, for tests that do not ask how good a student is: most of the time
    that so short a run takes.
    """
    monkeypatch.setattr("gpate.generators.student._REFRESH", FEW_LATENTS)
    monkeypatch.setattr("gpate.generators.networks._LAST_MAPS", FEW_MAPS)
