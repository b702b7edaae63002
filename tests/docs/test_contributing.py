"""CONTRIBUTING.md's example of a method: at most 60 lines, registered, and put through every check that all methods pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpate.boundary import FastNoise
from gpate.methods.base import unregister
from tests.methods.checks import CHECKS, Check, System, check_a_stopped_run_ends_like_one_that_was_not
from tests.processes import ROOT

INDEPENDENT = System(
    recipe="independent",
    settings={},
    events={"DiscreteGaussian"},
    kinds=("table",),
    iterates=False,
    bad=[{"resolution": 1}],
)


def example() -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (block,) = (part.split("```")[0] for part in text.split("```python\n")[1:])
    return block


@pytest.fixture
def registered() -> Iterator[None]:
    exec(compile(example(), "CONTRIBUTING.md", "exec", dont_inherit=True), {"__name__": "example"})
    yield
    unregister("independent")


def test_the_example_is_short() -> None:
    code = [line for line in example().splitlines() if line.strip() and not line.startswith(("from ", "import "))]
    assert len(code) <= 60


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_check(check: Check, tmp_path: Path) -> None:
    check(INDEPENDENT, "table", tmp_path)


@pytest.mark.usefixtures("registered")
def test_a_stopped_run_ends_like_one_that_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FastNoise, "gaussian", lambda self, size, sigma, **_: np.zeros(size))
    check_a_stopped_run_ends_like_one_that_was_not(INDEPENDENT, "table", tmp_path)
