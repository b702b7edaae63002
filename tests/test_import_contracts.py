"""The import contracts fail when a raw-record type is imported where it must not be: an import is planted, and seen to be caught."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PLANTED = {
    "a method imports encoded records": (
        "methods/marginals/table_view.py",
        "from gpate.records.encoding import EncodedRecords",
        "Raw records",
    ),
    "a generator imports private records": (
        "generators/mixture.py",
        "from gpate.records import PrivateRecords",
        "Features",
    ),
    "the gate imports a generator": ("boundary/sums.py", "from gpate.generators import Student", "The gate"),
    "accounting imports torch": ("accounting/rdp.py", "import torch", "Accounting"),
    "a method packs exact sums": ("methods/base.py", "from gpate.boundary.parts import packed", "Sums in transit"),
    "the desk reads records": ("desk/schema_pages.py", "from gpate.records import read_columns", "The desk"),
    "a release imports a method": ("release/load.py", "from gpate.methods import method_named", "A release"),
}


def contracts(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contracts")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_every_planted_import_is_caught(copy: Path) -> None:
    assert contracts(copy).returncode == 0, "as they are, all contracts hold"
    for name, (path, line, _) in PLANTED.items():
        file = copy / "src" / "gpate" / path
        text = file.read_text()
        assert "from __future__ import annotations\n" in text, name
        file.write_text(
            text.replace("from __future__ import annotations\n", f"from __future__ import annotations\n{line}\n", 1)
        )
    found = contracts(copy)
    assert found.returncode == 1
    broken = " ".join(found.stdout.split())
    for name, (_, _, contract) in PLANTED.items():
        assert any(part.rstrip().endswith("BROKEN") and contract in part for part in _verdicts(broken)), name


def _verdicts(text: str) -> list[str]:
    """One piece for each contract: its name and KEPT or BROKEN."""
    parts, start = [], 0
    for word in text.split(" "):
        start += len(word) + 1
        if word in ("KEPT", "BROKEN"):
            parts.append(text[: start - 1])
            text, start = text[start:], 0
    return parts
