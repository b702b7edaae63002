"""The examples in docstrings are run."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import gpate

ROOT = Path(gpate.__file__).parent
SLOW = {
    "gpate.audit.game",
    "gpate.audit.voting_game",
    "gpate.audit.canaries",
    "gpate.evaluation.image_classifiers",
}


def examples() -> list[str]:
    """Modules with examples in their text."""
    found = [path for path in sorted(ROOT.rglob("*.py")) if ">>> " in path.read_text()]
    names = [".".join(["gpate", *path.relative_to(ROOT).with_suffix("").parts]) for path in found]
    return [name.removesuffix(".__init__") for name in names]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in examples()]
)
def test_examples_print_what_they_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.REPORT_ONLY_FIRST_FAILURE)
    assert not found.failed


def test_there_are_examples() -> None:
    assert {"gpate.schema", "gpate.safe_parsing", *SLOW} <= set(examples())
