"""Commands that are stopped: by Ctrl-C on a terminal, as a person does it, and by kill -9."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from rich.text import Text

from gpate.cli.interrupt import ask
from gpate.release import Release
from gpate.release.output_files import write_records
from tests.command import begun, gpate
from tests.processes import LIMIT, Child, start
from tests.releases import IMAGES, TABLE, make_release

MANY = 10**9
"""Records that nobody waits for."""


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("releases")
    make_release(folder / "table")
    make_release(folder / "images", IMAGES)
    Release.load(folder / "table").sample(300, seed=1).to_csv(folder / "people.csv", index=False)
    return folder


def at_a_terminal(*arguments: object, folder: Path, until: str, times: int = 1) -> tuple[int, str]:
    """The exit code of a command, and what stood on its screen; Ctrl-C is pressed each time the screen says `until`."""
    ours, theirs = pty.openpty()
    screen = {"TERM": "xterm", "COLUMNS": "200", "TMPDIR": str(folder)}
    with begun(*arguments, folder=folder, env=screen, terminal=theirs) as child:
        os.close(theirs)
        seen, pressed = "", 0
        while part := _read(ours):
            seen += part
            if pressed < times and len(re.findall(until, seen)) > pressed:
                os.write(ours, b"\x03")
                pressed += 1
        os.close(ours)
        assert pressed == times, seen
        code = child.wait()
    return code, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\^C|\r", "", seen)


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 65536).decode(errors="replace")
    except OSError:  # the last process that had it open has ended
        return ""


def last_line(screen: str) -> str:
    assert "Traceback" not in screen
    assert screen.count("Stopped") == 1
    return screen.rstrip().splitlines()[-1].strip()


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


def test_a_stopped_sample_says_that_nothing_was_written(releases: Path, tmp_path: Path) -> None:
    sample = ("sample", releases / "table", "-n", MANY, "-o")
    code, screen = at_a_terminal(*sample, "a.csv", folder=tmp_path, until=r"[1-9][\d,]+/1,000,000,000")
    assert code == 130
    assert last_line(screen) == "Stopped: a.csv was not written. Run the same command again."
    assert not os.listdir(tmp_path)


def test_what_a_stopped_sample_would_have_replaced_is_as_it_was(releases: Path, tmp_path: Path) -> None:
    assert gpate("sample", releases / "images", "-n", 4, "-o", tmp_path / "each", "--seed", 1) == 0
    before = sorted(path.read_bytes() for path in tmp_path.rglob("*.png"))
    sample = ("sample", releases / "images", "-n", MANY, "-o", "each", "--force")
    code, screen = at_a_terminal(*sample, folder=tmp_path, until=r"[1-9][\d,]+/1,000,000,000")
    assert code == 130
    assert last_line(screen) == "Stopped: each is unchanged. Run the same command again."
    assert os.listdir(tmp_path) == ["each"]
    assert sorted(path.read_bytes() for path in tmp_path.rglob("*.png")) == before


def test_a_stopped_evaluation_says_that_nothing_was_added(releases: Path, tmp_path: Path) -> None:
    real = ("--train", releases / "people.csv", "--test", releases / "people.csv", "--no-cache")
    evaluate = ("evaluate", releases / "table", "-n", 10_000, *real, "-o", "scores.jsonl")
    code, screen = at_a_terminal(*evaluate, folder=tmp_path, until=r" [1-9]/\d+")
    assert code == 130
    assert last_line(screen) == "Stopped: nothing was added to scores.jsonl. Run the same command again."
    assert not (tmp_path / "scores.jsonl").exists()


@pytest.mark.parametrize(
    ("until", "models"),
    [
        pytest.param("models", 60, id="its processes begin"),
        pytest.param(r"[1-9][\d,]*/2,000", 1000, id="they play", marks=pytest.mark.slow),
    ],
)
def test_a_stopped_audit_leaves_no_process_and_no_file(until: str, models: int, tmp_path: Path) -> None:
    """Its other processes are at the same terminal and hear of Ctrl-C too."""
    audit = ("audit", "--models", models, "--set", "first.frequencies=20", "--out", "found")
    code, screen = at_a_terminal(*audit, folder=tmp_path, until=until)
    assert code == 130
    assert last_line(screen) == "Stopped: nothing was written. Run the same command again."
    assert screen.count("\n") <= 3
    assert not os.listdir(tmp_path)


def test_a_fit_that_is_stopped_at_once_says_how_to_go_on(releases: Path, tmp_path: Path) -> None:
    TABLE.save(tmp_path / "schema.yaml")
    settings = ("--recipe", "paper", "--epsilon", 2, "--set", "iterations=20", "--set", "counts_epsilon=0.5")
    fit = ("fit", releases / "people.csv", "--schema", "schema.yaml", *settings)
    code, screen = at_a_terminal(*fit, folder=tmp_path, until="iteration 1|Ctrl-C again", times=2)
    assert code == 130
    assert "`gpate fit --resume run` continues" in last_line(screen)
    assert gpate("fit", "--resume", tmp_path / "run", "--quiet") == 0


def test_a_signal_just_before_the_wait_for_an_answer_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python cannot handle it until the wait ends: `input` would go on until Enter is pressed."""
    ours, theirs = pty.openpty()
    wait, ended = select.select, []

    def signalled(readers: list[object], *others: list[object]) -> object:
        if not ended:
            signal.raise_signal(signal.SIGUSR1)
            ended.append(bool(wait(readers, *others, 0)[0]))
            os.write(ours, b"yes\n")
        return wait(readers, *others, LIMIT)

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with os.fdopen(theirs) as terminal:
            monkeypatch.setattr("sys.stdin", terminal)
            monkeypatch.setattr("select.select", signalled)
            assert ask(Text("Ready? ")) == "yes\n"
    finally:
        os.close(ours)
        signal.signal(signal.SIGUSR1, before)
    assert ended == [True]
    assert signal.set_wakeup_fd(-1) == -1  # as it was before


def test_the_end_of_input_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(EOFError):
        ask(Text("Ready? "))


def test_what_a_stopped_draft_has_spent_is_said(tmp_path: Path) -> None:
    """Interrupted as soon as there is a ledger: what it paid for is lost, and counts."""
    pd.DataFrame({f"x{i}": range(20_000) for i in range(40)}).to_csv(tmp_path / "a.csv", index=False)
    ledger = tmp_path / "ledger.jsonl"
    command = ["schema", "init", "a.csv", "-o", "s.yaml", "--schema-epsilon", "1", "--ledger", str(ledger)]
    with begun(*command, folder=tmp_path) as child:
        wait_for(ledger.exists, child)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate()
    assert child.returncode == 130
    assert f"the epsilon recorded in {ledger} stays spent" in err
    assert "another --ledger" in err
    assert not (tmp_path / "s.yaml").exists()


# --- kill -9 ----------------------------------------------------------------------------------------------------------


def wait_for(condition: Callable[[], object], child: Child) -> None:
    """However busy the machine is: a child that hangs is ended by pytest's time limit."""
    while not condition():
        assert child.poll() is None, child.communicate()
        time.sleep(0.01)


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
        living.communicate()
    assert sorted(os.listdir(tmp_path)) == [mine.name, "a.csv", "b.csv"]
    assert len(pd.read_csv(tmp_path / "a.csv")) == 5


def write_again_and_again(release: str, path: str) -> None:
    table = Release.load(release)
    for seed in range(40):
        write_records(path, table.sample_chunks(20, seed=seed), n=20, schema=table.schema, force=True)


def test_many_at_the_same_place_do_not_disturb_each_other(releases: Path, tmp_path: Path) -> None:
    """Each begins while others begin, write and end: none takes a folder that is just begun for one left behind."""
    path = tmp_path / "a.csv"
    children = [start(write_again_and_again, str(releases / "table"), str(path)) for _ in range(3)]
    for child in children:
        _, err = child.communicate()
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
