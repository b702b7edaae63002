"""`tools/check_words.py` finds words that must not come back in user-facing text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "check_words.py"


def check(root: Path) -> tuple[int, list[str]]:
    done = subprocess.run([sys.executable, TOOL, root], capture_output=True, text=True)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def plant(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.mark.parametrize(
    ("name", "text", "line", "replacement"),
    [
        ("src/gpate/a.py", 'x = 1\nERROR = "Wrong. Mend: use 2."\n', 2, "Fix:"),
        ("src/gpate/a.py", '"""Scores.\n\nThey are NOT\nprivate.\n"""\n', 3, "confidential"),
        ("src/gpate/b/a.py", 'def f(n):\n    return f"{n} records are judged"\n', 2, "evaluate"),
        ("README.md", "# gpate\n\nThe page may leave.\n", 3, "safe to publish"),
        ("docs/how-to/a.md", "A promise to whoever reads.\n", 1, "guarantee"),
        ("CHANGELOG.md", "- It is told.\n", 1, "is reported"),
        ("research/log.md", "As reckoned.\n", 1, "compute"),
        ("research/benchmarks/a.py", '"""On a card."""\n', 1, "GPU"),
        ("benchmarks/a.py", '"""For a try-out."""\n', 1, "fast"),
    ],
)
def test_a_planted_word_is_found(tmp_path: Path, name: str, text: str, line: int, replacement: str) -> None:
    plant(tmp_path, name, text)
    code, found = check(tmp_path)
    assert code == 1
    assert found[0].startswith(f"{name}:{line}: ")
    assert replacement in found[0]


def test_standard_words_names_and_allowed_phrases_pass(tmp_path: Path) -> None:
    plant(tmp_path, "src/gpate/a.py", '"""Fraud of the credit card. Fix: amend it."""\npromise = 1  # a promise\n')
    plant(tmp_path, "docs/a.md", "The guarantee holds. The page is safe to publish.\n")
    assert check(tmp_path) == (0, [])
