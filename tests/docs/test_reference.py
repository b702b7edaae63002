"""The reference is complete: public names, docstrings, commands, schema keys and settings are the same in code and pages."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
import yaml
from tools.reference import EXTENSION, PUBLIC, commands, entry, pages, parameters, public_names

from gpate.methods import methods
from gpate.schema.columns import COLUMN_TYPES
from tests.processes import ROOT

PAGES = pages()
NAMES = [(module, name) for module in (*PUBLIC, *EXTENSION) for name in public_names(module)]


def in_nav(entries: list[Any]) -> Iterator[str]:
    for one in entries:
        if isinstance(one, str):
            yield one
            continue
        for below in one.values():
            yield from in_nav(below if isinstance(below, list) else [below])


def test_every_public_name_has_one_entry() -> None:
    for module in (*PUBLIC, *EXTENSION):
        listed = re.findall(r"^::: ([\w.]+)$", PAGES[f"reference/api/{module}.md"], flags=re.MULTILINE)
        assert listed == [entry(module, name) for name in public_names(module)]
        assert [place.rpartition(".")[2] for place in listed] == public_names(module)
        assert not any(inspect.ismodule(_found(place)) for place in listed), "the object, not a module of its name"
    assert {name for module, name in NAMES if module == "gpate"} == set(import_module("gpate").__all__) - {
        "__version__"
    }


def _found(place: str) -> Any:
    """What a static reader finds: a module before a name in a package."""
    module, _, name = place.rpartition(".")
    package = import_module(module)
    if hasattr(package, "__path__") and find_spec(place) is not None:
        return import_module(place)
    return getattr(package, name)


def test_every_package_with_public_names_is_in_the_reference() -> None:
    packages = {f"gpate.{path.parent.name}" for path in (ROOT / "src" / "gpate").glob("*/__init__.py")}
    with_names = {package for package in packages if hasattr(import_module(package), "__all__")}
    assert with_names <= {*PUBLIC, *EXTENSION}


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[f"{module}.{name}" for module, name in NAMES])
def test_docstrings_say_what_a_thing_is_and_name_its_parameters(module: str, name: str) -> None:
    thing = getattr(import_module(module), name)
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return  # a constant, or the name of a type
    assert _own_docstring(thing), f"{module}.{name} has no docstring"
    for where, function in _functions(thing):
        documented = _arguments(function.__doc__ or "")
        given = [one for one in inspect.signature(function).parameters.values() if one.name not in ("self", "cls")]
        assert all(one.annotation is not one.empty for one in given), f"{module}.{where}: a parameter without a type"
        if documented:
            assert documented == [one.name for one in given], f"{module}.{where}: its docstring has other arguments"


def _own_docstring(thing: Any) -> str:
    text = inspect.cleandoc(thing.__doc__ or "")
    made = dataclasses.is_dataclass(thing) and text.startswith(f"{thing.__name__}(")  # by dataclass itself
    return "" if made else text


def _functions(thing: Any) -> Iterator[tuple[str, Any]]:
    if inspect.isfunction(thing):
        yield thing.__name__, thing
    for name, member in vars(thing).items() if inspect.isclass(thing) else ():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if inspect.isfunction(function) and not name.startswith("_") and function.__name__ == name:  # no default value
            yield f"{thing.__name__}.{name}", function


def _arguments(docstring: str) -> list[str]:
    section = re.search(r"^Args:\n((?:[ ]{4}.*\n|\n)+)", inspect.cleandoc(docstring) + "\n", re.MULTILINE)
    return re.findall(r"^[ ]{4}\*{0,2}(\w+):", section[1], re.MULTILINE) if section else []


def test_every_command_and_option_has_its_line() -> None:
    assert set(commands()) >= {"fit", "sample", "verify", "schema", "budget"}
    for page, found in commands().items():
        for full, command in found:
            assert f"`{full}`" in PAGES[f"reference/command/{page}.md"]
            for one in parameters(command):
                assert one.help, f"{full} {one.names[0]} has no help"
                assert f"| `{one.names[0]}`" in PAGES[f"reference/command/{page}.md"]
    fit = PAGES["reference/command/fit.md"]
    assert "| `--set` | text, repeatable |" in fit
    assert "| `--quiet`, `-q` |" in fit
    assert "| `--epsilon` | number | `1.0` | Total epsilon of the run. |" in fit


def test_every_setting_and_every_key_has_its_line() -> None:
    text = PAGES["reference/settings.md"]
    for method in methods():
        for group in method.groups.values():
            for field in dataclasses.fields(group):
                assert re.search(rf"^\| `{field.name}[`.]", text, re.MULTILINE), f"{method.name}: {field.name}"
        assert all(f"- Recipe `{recipe.recipe}`:" in text for recipe in method.recipes())
    keys = PAGES["reference/schema.md"]
    for kind, column in COLUMN_TYPES.items():
        section = keys.partition(f"## `type: {kind}`")[2].partition("\n## ")[0]
        own = {field.name for field in dataclasses.fields(column)} - {"name", "missing", "invalid"}
        refused = {"decimals"} if kind == "integer" else set()
        assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == own - refused


def test_the_navigation_has_every_page() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    listed = list(in_nav(yaml.safe_load(text)["nav"]))
    written = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    elsewhere = {"changelog.md", "contributing.md", "explanation/research-log.md", "explanation/results.md"}
    elsewhere |= {"tutorial/hospital.md", "tutorial/digits.md"}
    assert sorted(listed) == sorted({*written, *PAGES, *elsewhere})
