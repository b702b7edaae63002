"""What the audit's tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def few_latents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind normalisation statistics, which are taken after all releases and most of the time of so small a student."""
    monkeypatch.setattr("gpate.generators.student._REFRESH", 64)
