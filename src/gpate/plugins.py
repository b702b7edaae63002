"""Plug-ins: benchmark sets, commands, methods and classifiers that other installed packages add to gpate.

A package declares them as entry points in its `pyproject.toml`; gpate finds them when it is next run.

| group | the name | what it leads to |
|---|---|---|
| `gpate.datasets` | of the plug-in | a mapping from the names of benchmark sets to `gpate.datasets.Dataset` |
| `gpate.commands` | of the command | a `typer.Typer`: `gpate NAME ...` runs it |
| `gpate.methods` | of the plug-in | a `gpate.methods.Method`, which is then registered |
| `gpate.classifiers` | of the plug-in | classifiers of tables that `gpate evaluate` trains too: a sequence of `Classifier` |

    [project.entry-points."gpate.datasets"]
    census = "my_package.sets:DATASETS"

    [project.entry-points."gpate.commands"]
    compare = "my_package.command:app"

Each group is read once in a process. A plug-in that cannot be imported, is of another type, or takes a name that is taken
raises `PluginError`: nothing is skipped in silence. `research/` in gpate's repository is such a package.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any

from gpate.errors import PluginError

DATASET_PLUGINS = "gpate.datasets"
COMMAND_PLUGINS = "gpate.commands"
CLASSIFIER_PLUGINS = "gpate.classifiers"
METHOD_PLUGINS = "gpate.methods"


@cache
def plugins(group: str) -> dict[str, Any]:
    """What the plug-ins of a group lead to, by name.

    Raises:
        PluginError: one cannot be imported, or two have the same name.
    """
    found: dict[str, Any] = {}
    for entry in sorted(entry_points(group=group)):
        if entry.name in found:
            raise PluginError(group, entry.name, "is declared by two packages", "uninstall one of them")
        try:
            found[entry.name] = entry.load()
        except Exception as problem:
            reason = f"cannot be imported from {entry.value} ({type(problem).__name__}: {problem})"
            raise PluginError(group, entry.name, reason) from problem
    return found
