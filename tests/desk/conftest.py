from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk.client import STAND_IN, Client, filled, serving


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A desk whose commands are stand-ins: they go on until the file `go` is in the workspace."""
    folder = filled(tmp_path / "work")
    with serving(folder, program=STAND_IN) as found:
        yield found
        (folder / "go").touch()
        for name in found.app.jobs.runs():
            found.until("fit", name)
