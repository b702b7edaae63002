"""The notebooks run from top to bottom in an empty folder, and are kept with the outputs of such a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes import ROOT

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["digits", "hospital"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_kept_small_and_without_errors(path: Path) -> None:
    text = path.read_text()
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), "run once, in order"
    assert not any(output["output_type"] == "error" or output.get("name") == "stderr" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert "/home/" not in text
    assert len(text) < 300_000


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_from_top_to_bottom(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for needed in ("nbclient", "ipykernel"):
        pytest.importorskip(needed, reason="the extra `docs` is not installed: make docs")
    from tools.notebooks import executed

    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"), prepend=":")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GPATE_CACHE", str(tmp_path / "cache"))
    notebook = executed(path, tmp_path)
    plots = [
        output for cell in notebook.cells for output in cell.get("outputs", []) if "image/png" in output.get("data", {})
    ]
    assert plots
    assert (tmp_path / "run" / "release" / "certificate.json").exists()
