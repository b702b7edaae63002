"""Plug-ins: what another package declares is there, and a broken one is named and never skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import run

PLUGIN = """
from pathlib import Path

import typer

from gpate.datasets import Dataset, Loaded, load
from gpate.datasets import dataset as known

app = typer.Typer()

@app.command()
def hello(name: str) -> None:
    typer.echo(f"hello {name}")

@app.command()
def bye() -> None:
    typer.echo("bye")

digits = known.__globals__["DIGITS"]
more = Dataset(name="more", title="", kind="image", licence="", source="", schema_path=digits.schema_path,
    splits=("train",), loader=lambda split: Loaded(name="more", split=split))
DATASETS = {"more": more}
TAKEN = {"digits": more}
NO_SETS = {"more": "a path"}
"""
GPATE = "from gpate.cli import main; main({})"
LIST = "from gpate.datasets import DATASETS, load; print(*DATASETS); print(load('more').name)"


Installed = Callable[[str, str], subprocess.CompletedProcess[str]]


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    """Runs a program where a package with these entry points is installed, in a process of its own."""

    def program(entry_points: str, text: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "a_plugin.py").write_text(PLUGIN)
        for package in ("first", "second") if "[twice]" in entry_points else ("first",):
            facts = tmp_path / f"{package}-1.0.dist-info"
            facts.mkdir(exist_ok=True)
            (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
            (facts / "entry_points.txt").write_text(entry_points.replace("[twice]", ""))
        return run(exec, f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {text}")

    return program


def test_a_plugin_adds_benchmark_sets(installed: Installed) -> None:
    done = installed("[gpate.datasets]\nmine = a_plugin:DATASETS", LIST)
    names, loaded = done.stdout.splitlines() or [done.stderr, ""]
    assert {"digits", "more"} <= set(names.split())
    assert loaded == "more"


def test_a_plugin_adds_a_command(installed: Installed, tmp_path: Path) -> None:
    done = installed("[gpate.commands]\ngreet = a_plugin:app", GPATE.format(["greet", "hello", "you"]))
    assert (done.returncode, done.stdout) == (0, "hello you\n"), done.stderr
    path = os.pathsep.join([str(tmp_path), *(part for part in sys.path if part)])
    fresh = subprocess.run(
        [sys.executable, "-m", "gpate", "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert "greet" in fresh.stdout


@pytest.mark.parametrize(
    ("entry_points", "says"),
    [
        ("[gpate.commands]\ngreet = not_there:app", "cannot be imported from not_there:app (ModuleNotFoundError"),
        ("[gpate.commands]\ngreet = a_plugin:nothing", "cannot be imported from a_plugin:nothing (AttributeError"),
        ("[gpate.commands]\ngreet = a_plugin:DATASETS", "must be a typer.Typer"),
        ("[gpate.commands]\nfit = a_plugin:app", "has the name of a command of gpate"),
        ("[twice][gpate.commands]\ngreet = a_plugin:app", "is declared by two packages"),
        ("[gpate.datasets]\nmine = a_plugin:app", "must be a mapping from names to gpate.datasets.Dataset"),
        ("[gpate.datasets]\nmine = a_plugin:NO_SETS", "must be a mapping from names to gpate.datasets.Dataset"),
        ("[gpate.datasets]\nmine = a_plugin:TAKEN", "has a set 'digits', and that name is taken"),
    ],
)
def test_a_broken_plugin_is_named(installed: Installed, entry_points: str, says: str) -> None:
    done = installed(entry_points, GPATE.format(["fit", "no-such-set", "--epsilon", "1"]))
    assert done.returncode == 2
    message = " ".join(done.stderr.split())
    assert message.startswith("PluginError: The plug-in '")
    assert says in message
    assert "Fix: " in message
