"""What every command has in common: an example in its help, `--json`, `--quiet`, progress on standard error alone, NO_COLOR, completion.

The commands are found by walking the tree, those of installed plug-ins included: a new one fails until `CASES` has an example of it.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console

from gpate.cli import _add_plugins, app, main
from gpate.cli.terminal import EXIT_CODES
from gpate.release import Release
from gpate.version import __version__
from tests.command import gpate
from tests.processes import ROOT, run
from tests.releases import TABLE, make_release

RECORDS = 1237
"""In the table that is fitted and evaluated: a number that no display may show."""

CASES = {
    "fit": "train.csv --schema schema.yaml --quick --epsilon 5 --out new",
    "sample": "release -n 50 -o new.csv",
    "sign": "release --key key",
    "verify": "release",
    "evaluate": "release --train train.csv --test test.csv --quick -n 100",
    "report": "release --real train.csv -o new.html",
    "audit": "--recipe votes --models 30 --workers 1",
    "schema init": "train.csv -o new.yaml",
    "schema edit": "draft.yaml --list",
    "schema check": "schema.yaml",
    "account gaussian": "--noise-multiplier 5 --count 10",
    "account laplace": "--scale 10 --count 5",
    "account gnmax": "--teachers 40 --threshold-sigma 30 --vote-sigma 10 --queries 5",
    "account calibrate": "--epsilon 1 --votes 100",
    "account ledger": "release/ledger.jsonl",
    "budget create": "new.budget --epsilon 1 --delta 1e-5",
    "budget show": "clinic.budget",
    "budget settle": "clinic.budget schema.jsonl",
    "reproduce list": "--results results.jsonl",
    "reproduce run": "table1c --results results.jsonl --time-limit 1e-9",
    "reproduce show": "table1c --results results.jsonl",
    "reproduce take": "lines.jsonl --results results.jsonl",
}
"""Arguments of a short run of each command, in the folder of `place`."""

SERVES = "desk"
"""Goes on until it is closed: run in tests/desk."""

INSTANT = {
    "schema init",
    "schema edit",
    "budget create",
    "reproduce list",
    "reproduce run",
    "reproduce show",
    "reproduce take",
}
"""What they do in `CASES` takes no time worth a display."""

STYLE = re.compile(r"\x1b\[[\d;]*m")
HIDDEN_CURSOR = "\x1b[?25l"  # how a display begins


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield " ".join(path), command
        return
    for name, inner in command.commands.items():
        yield from leaves(inner, (*path, name))


def groups(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """`gpate` itself, which has no name here, and commands that have commands."""
    if hasattr(command, "commands"):
        yield " ".join(path), command
        for name, inner in command.commands.items():
            yield from groups(inner, (*path, name))


_add_plugins()
COMMANDS = dict(leaves(typer.main.get_command(app)))
GROUPS = dict(groups(typer.main.get_command(app)))
RUN = [name for name in COMMANDS if name != SERVES]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that the cases need; each works on a copy."""
    folder = tmp_path_factory.mktemp("conformance")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_release(folder / "release")
        drawn = Release.load("release")
        for name, n, seed in (("train", RECORDS, 101), ("test", 300, 102)):
            drawn.sample(n, seed=seed).to_csv(f"{name}.csv", index=False)
        TABLE.save(folder / "schema.yaml")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "key"], check=True)
        for name in ("results", "lines"):
            (folder / f"{name}.jsonl").touch()
        assert gpate("budget", "create", "clinic.budget", "--epsilon", 2, "--delta", 1e-5, "-q") == 0
        paid = ("--schema-epsilon", 1, "--ledger", "schema.jsonl", "--budget", "clinic.budget")
        assert gpate("schema", "init", "train.csv", "-o", "draft.yaml", *paid, "-q") == 0
    return folder


@pytest.fixture
def copy(place: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(place, tmp_path / "copy"))


def done(name: str, *, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A command with the streams of a terminal that are read apart."""
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "100", "NO_COLOR": ""}
    kept = {"GPATE_CACHE": str(folder.parents[1] / "conformance-cache")}  # one for all tests
    found = run(main, [*name.split(), *CASES[name].split()], cwd=folder, env={**terminal, **kept, **env})
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-3000:]
    return found


def test_every_command_has_a_case() -> None:
    assert {name for name in CASES if not name.startswith("reproduce")} <= set(RUN) <= set(CASES)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_that_parse(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for example in examples_of(COMMANDS[name]):
        assert example.startswith(f"gpate {name} ") or example == f"gpate {name}"
        parse(example, name)


@pytest.mark.parametrize("name", GROUPS)
def test_help_of_a_group_has_examples_of_its_commands(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for example in examples_of(GROUPS[name]):
        inner = [each for each in COMMANDS if f"{example} ".startswith(f"gpate {each} ") and each.startswith(name)]
        assert len(inner) == 1, example
        parse(example, inner[0])


def examples_of(command: Any) -> list[str]:
    """The examples at the end of a command's help, before the exit codes."""
    found = re.findall(r"^    (gpate .*)$", command.epilog or "", flags=re.MULTILINE)
    assert found
    assert (command.epilog or "").endswith(EXIT_CODES)
    return found


def parse(example: str, name: str) -> None:
    """Raises where an option is unknown; files that an example reads are there."""
    Path("run", "release").mkdir(parents=True, exist_ok=True)
    Path("run", "release", "ledger.jsonl").touch()
    COMMANDS[name].make_context(name, shlex.split(example)[1 + len(name.split()) :])


@pytest.mark.parametrize("name", COMMANDS)
def test_quiet_and_json_are_called_the_same(name: str) -> None:
    options = {tuple(parameter.opts) for parameter in COMMANDS[name].params}
    assert {("--quiet", "-q"), ("--json",)} <= options


def said(
    name: str, option: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[str, str]:
    """What a command prints in this process, where a display would be drawn as at a terminal."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GPATE_CACHE", str(folder.parents[1] / "conformance-cache"))
    monkeypatch.setattr("gpate.cli.progress.errors", Console(stderr=True, force_terminal=True))
    assert gpate(*name.split(), *CASES[name].split(), option) == 0
    told = capsys.readouterr()
    assert HIDDEN_CURSOR not in told.err
    return told.out, told.err


@pytest.mark.parametrize("name", RUN)
def test_json_is_one_object_alone_on_standard_output(
    name: str, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = said(name, "--json", copy, monkeypatch, capsys)
    assert isinstance(json.loads(out), dict)
    assert err == "" or name == "fit", "which has its progress there, an object a line"


@pytest.mark.parametrize("name", RUN)
def test_progress_is_on_standard_error_and_nothing_is_coloured_by_no_color(name: str, copy: Path) -> None:
    found = done(name, folder=copy, NO_COLOR="1")
    assert "\x1b" not in found.stdout
    assert not STYLE.search(found.stderr)
    assert (HIDDEN_CURSOR in found.stderr) == (name not in INSTANT)
    shown = found.stderr.partition("Wrote ")[0]  # a sample's size is the user's
    assert not re.search(rf"(?<![\d.,]){RECORDS // 1000},?{RECORDS % 1000}(?![\d.]| it/s)", shown)


@pytest.mark.parametrize("name", [name for name in RUN if name != "fit"])  # has a test of it
def test_quiet_leaves_results_warnings_and_errors(
    name: str, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err = said(name, "--quiet", copy, monkeypatch, capsys)
    assert err == "" or name == "report", "only a confidential page warns here"


def test_a_pipe_gets_no_escape_codes(copy: Path) -> None:
    for name in ("verify", "sample"):
        found = done(name, folder=copy, FORCE_COLOR="", TERM="xterm-256color")
        assert "\x1b" not in found.stdout + found.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"], ["fit", "--no-such-option"]])
def test_help_and_usage_errors_are_plain_with_no_color(arguments: list[str], tmp_path: Path) -> None:
    forced = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    coloured = run(main, arguments, cwd=tmp_path, env={**forced, "NO_COLOR": ""})
    plain = run(main, arguments, cwd=tmp_path, env={**forced, "NO_COLOR": "1"})
    assert STYLE.search(coloured.stdout + coloured.stderr)
    assert "\x1b" not in plain.stdout + plain.stderr


# --- the program -------------------------------------------------------------------------------------------------------------


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpate("--version") == 0
    assert capsys.readouterr().out == f"gpate {__version__}\n"


@pytest.mark.skipif(shutil.which("bash") is None, reason="completion is asked for by bash")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    """By the script that the command prints, as bash does when Tab is pressed."""
    program = tmp_path / "gpate"
    program.write_text(f"#!{sys.executable}\nfrom gpate.cli import main\nmain()\n")
    program.chmod(0o755)
    presses = """
        eval "$(gpate --show-completion)"
        complete -p gpate
        press() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gpate_completion gpate; echo "${COMPREPLY[@]}"; }
        press gpate sa
        press gpate verify --sig
    """
    env = {"PATH": f"{tmp_path}:/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": f"{ROOT / 'src'}", "HOME": str(tmp_path)}
    found = subprocess.run(["bash", "-c", presses], env=env, capture_output=True, text=True)
    declared, *answers = found.stdout.splitlines()
    assert "-F _gpate_completion gpate" in declared, found.stderr
    assert answers == ["sample", "--signers"]
