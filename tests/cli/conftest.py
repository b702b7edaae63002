"""Commands fit small students, here and in processes of their own: few latents behind their statistics in both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.processes import FEW_LATENTS


@pytest.fixture(autouse=True, scope="package")
def few_latents() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpate.generators.student._REFRESH", FEW_LATENTS)
        yield
