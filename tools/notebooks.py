"""Executes the notebooks of examples/notebooks and keeps their outputs.

    python tools/notebooks.py [NAME ...]        # needs the extra `docs`; a minute or two each

Outputs are kept, so that a reader sees plots without running anything. Each notebook runs in an empty folder, and makes its own data.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "notebooks"


def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a run from top to bottom; an error in a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
    return notebook


def main(names: list[str]) -> None:
    """Executes the named notebooks, or all, in place."""
    for path in [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(path, Path(folder))
        nbformat.write(notebook, path)
        sys.stdout.write(f"{path.name}: {path.stat().st_size // 1024} KiB\n")


if __name__ == "__main__":
    main(sys.argv[1:])
