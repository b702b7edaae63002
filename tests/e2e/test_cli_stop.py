"""Commands that are stopped: by kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from gpate.release import Release
from gpate.release.output import write_records
from tests.command import gpate
from tests.releases import IMAGES, make_release

MANY = 10**9
"""Records that nobody waits for."""


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("releases")
    make_release(folder / "table")
    make_release(folder / "images", IMAGES)
    return folder


# --- kill -9 ----------------------------------------------------------------------------------------------------------


def begun(*arguments: object, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gpate", *map(str, arguments)]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition: Callable[[], object], child: subprocess.Popen[str]) -> None:
    for _ in range(6000):
        if condition():
            return
        assert child.poll() is None
        time.sleep(0.01)
    raise AssertionError("it did not come")


def hidden(folder: Path) -> set[str]:
    return {name for name in os.listdir(folder) if name.startswith(".")}


def test_what_a_killed_sample_left_is_removed_and_what_a_living_one_writes_is_not(
    releases: Path, tmp_path: Path
) -> None:
    mine = tmp_path / ".a.csv.mine"
    mine.mkdir()
    sample = ("sample", releases / "table", "-n", MANY, "-o", "a.csv")
    with begun(*sample, folder=tmp_path) as killed:
        wait_for(lambda: list(tmp_path.glob(".*/content")), killed)
        killed.kill()
    left = hidden(tmp_path) - {mine.name}
    assert len(left) == 1
    with begun(*sample, folder=tmp_path) as living:
        wait_for(lambda: len(list(tmp_path.glob(".*/content"))) == 1 and not left & hidden(tmp_path), living)
        used = hidden(tmp_path)
        assert gpate("sample", releases / "table", "-n", 5, "-o", tmp_path / "a.csv", "--quiet") == 0
        assert gpate("sample", releases / "table", "-n", 5, "-o", tmp_path / "b.csv", "--quiet") == 0
        assert hidden(tmp_path) == used
        assert living.poll() is None
        living.send_signal(signal.SIGINT)
        living.communicate(timeout=60)
    assert sorted(os.listdir(tmp_path)) == [mine.name, "a.csv", "b.csv"]
    assert len(pd.read_csv(tmp_path / "a.csv")) == 5


def test_many_at_the_same_place_do_not_disturb_each_other(releases: Path, tmp_path: Path) -> None:
    """Each begins while others begin, write and end: none takes a folder that is just begun for one left behind."""
    script = (
        "import sys; from gpate.release import Release; from gpate.release.output import write_records\n"
        "table = Release.load(sys.argv[1])\n"
        "for seed in range(40):\n"
        "    chunks = table.sample_chunks(20, seed=seed)\n"
        "    write_records(sys.argv[2], chunks, n=20, schema=table.schema, force=True)\n"
    )
    path = tmp_path / "a.csv"
    command = [sys.executable, "-c", script, str(releases / "table"), str(path)]
    children = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for child in children:
        _, err = child.communicate(timeout=120)
        assert child.returncode == 0, err
    assert os.listdir(tmp_path) == ["a.csv"]
    assert len(pd.read_csv(path)) == 20


def test_a_folder_that_cannot_be_written_to_is_named(
    releases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkdtemp", refused)  # root, who may run the tests, is let in everywhere
    assert gpate("sample", releases / "table", "-n", 5, "-o", tmp_path / "a.csv") == 2
    assert "could not be written (Permission denied)" in capsys.readouterr().err


def test_a_folder_comes_back_if_the_new_one_does_not(
    releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between the two moves that replace one folder by another."""
    images = Release.load(releases / "images")
    path = write_records(tmp_path / "each", images.sample_chunks(3), n=3, schema=IMAGES)
    move = os.replace

    def stopped(source: Path, target: Path) -> None:
        if Path(source).name == "content":
            raise KeyboardInterrupt
        move(source, target)

    monkeypatch.setattr("os.replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_records(path, images.sample_chunks(9), n=9, schema=IMAGES, force=True)
    assert os.listdir(tmp_path) == ["each"]
    assert len(list(path.rglob("*.png"))) == 3
