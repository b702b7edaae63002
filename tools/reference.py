"""The reference pages of the site that are generated from the code: Python API, commands, schema keys, settings of each method.

`pages()` has their Markdown by path; `tools/site.py` adds them to the site when it is built, so that nothing is written twice.
Pages of the API name the objects, and mkdocstrings renders their docstrings; all other pages are complete.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
import types
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo, CommandInfo, OptionInfo

from gpate.cli import app
from gpate.errors import GpateError
from gpate.methods import methods
from gpate.methods.settings import Settings, Speed
from gpate.schema import Cost, ImageSchema, PrivacyUnit, TableSchema
from gpate.schema.columns import COLUMN_TYPES, Column

PUBLIC = ("gpate", "gpate.schema", "gpate.release", "gpate.evaluation", "gpate.report", "gpate.audit", "gpate.errors")
"""Modules for users: what the deprecation policy covers."""

EXTENSION = (
    "gpate.accounting",
    "gpate.boundary",
    "gpate.methods",
    "gpate.records",
    "gpate.features",
    "gpate.generators",
    "gpate.datasets",
)
"""Modules for those who write a method or check the code."""


def pages() -> dict[str, str]:
    """Markdown of all generated pages, by their path below docs/."""
    made = {f"reference/api/{module}.md": api_page(module) for module in (*PUBLIC, *EXTENSION)}
    made |= {f"reference/command/{name}.md": command_page(name, found) for name, found in commands().items()}
    return made | {"reference/schema.md": schema_page(), "reference/settings.md": settings_page()}


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; a vertical bar or a new line in a cell does no harm."""
    lines = [list(head), ["---"] * len(list(head)), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def code(text: object) -> str:
    """A value as inline code."""
    return f"`{text}`"


# --- Python ------------------------------------------------------------------------------------------------------------


def public_names(module: str) -> list[str]:
    """The documented names of a module: its `__all__`, or the errors of `gpate.errors`."""
    found = import_module(module)
    if module == "gpate.errors":
        return [name for name, value in vars(found).items() if inspect.isclass(value) and issubclass(value, GpateError)]
    return [name for name in found.__all__ if not name.startswith("__")]


def api_page(module: str) -> str:
    """The page of a module: what it is, and an entry for each public name."""
    about = inspect.getdoc(import_module(module)) or ""
    entries = (f"::: {entry(module, name)}\n" for name in public_names(module))
    return "\n".join([f"# {code(module)}\n\n{about}\n", *entries])


def entry(module: str, name: str) -> str:
    """Where mkdocstrings finds a public name: in its package, or where it is defined if a module of the package has the same name."""
    shadowed = find_spec(f"{module}.{name}") is not None if hasattr(import_module(module), "__path__") else False
    return f"{getattr(import_module(module), name).__module__}.{name}" if shadowed else f"{module}.{name}"


# --- commands ----------------------------------------------------------------------------------------------------------


def commands() -> dict[str, list[tuple[str, CommandInfo]]]:
    """The commands of gpate with their full names, by page: a group has all of its commands on one. Those of plug-ins are not here."""
    found = {_name(one): [(f"gpate {_name(one)}", one)] for one in app.registered_commands}
    for group in app.registered_groups:
        inner = group.typer_instance
        assert inner is not None
        assert group.name is not None
        found[group.name] = [(f"gpate {group.name} {_name(one)}", one) for one in inner.registered_commands]
    return {name: ones for name, ones in found.items() if all(_own(one) for _, one in ones)}


def _own(command: CommandInfo) -> bool:
    """Whether a command is gpate's and not a plug-in's, which is registered once a command has run in this process."""
    return command.callback is not None and command.callback.__module__.partition(".")[0] == "gpate"


def _name(command: CommandInfo) -> str:
    assert command.callback is not None
    return command.name or command.callback.__name__.replace("_", "-")


def command_page(name: str, found: list[tuple[str, CommandInfo]]) -> str:
    """The page of a command, or of a group of commands."""
    if len(found) == 1:
        return f"# {code(found[0][0])}\n\n{command_text(*found[0])}"
    parts = (f"## {code(full)}\n\n{command_text(full, command)}" for full, command in found)
    group = next(one.typer_instance for one in app.registered_groups if one.name == name)
    assert group is not None
    return f"# {code('gpate ' + name)}\n\n{group.info.help or ''}\n\n" + "\n".join(parts)


def command_text(full: str, command: CommandInfo) -> str:
    """What a command does, its usage, and a table of its arguments and options."""
    assert command.callback is not None
    listed = list(parameters(command))
    named = " ".join(f"[{one.shown}]" if one.optional else one.shown for one in listed if not one.option)
    usage = f"```text\n{full} {named}{' ' if named else ''}[OPTIONS]\n```\n"
    rows = [[", ".join(map(code, one.names)), one.kind, one.default, one.help] for one in listed]
    about = inspect.cleandoc(command.help or command.callback.__doc__ or "")
    ending = f"\n{command.epilog}\n" if isinstance(command.epilog, str) else ""
    return f"{about}\n\n{usage}\n{table(('name', 'value', 'default', 'meaning'), rows)}{ending}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameter:
    """An argument or an option of a command."""

    option: bool
    names: tuple[str, ...]
    kind: str
    default: str
    optional: bool
    help: str

    @property
    def shown(self) -> str:
        """The argument's name in the usage line."""
        return self.names[0]


def parameters(command: CommandInfo) -> Iterator[Parameter]:
    """Arguments and options of a command, from the signature of its function."""
    assert command.callback is not None
    hints = get_type_hints(command.callback, include_extras=True)
    for parameter in inspect.signature(command.callback).parameters.values():
        hint = hints[parameter.name]
        if get_origin(hint) is not Annotated:
            continue  # the context
        kind, info = get_args(hint)
        required = parameter.default is inspect.Parameter.empty
        option = isinstance(info, OptionInfo)
        assert option or isinstance(info, ArgumentInfo)
        plain = parameter.name.replace("_", "-")
        if option:  # within Annotated, typer takes the first name for the default
            named = [name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str)]
            names = named or ([f"--{plain}", f"--no-{plain}"] if kind is bool else [f"--{plain}"])
        else:
            names = [info.metavar or parameter.name.upper()]
        flag = kind is bool
        unset = required or parameter.default in (None, False)
        yield Parameter(
            option=option,
            names=tuple(names),
            kind="" if flag else words(kind),
            default="required" if required else "" if unset else code(parameter.default),
            optional=not required,
            help=info.help or "",
        )


def words(kind: Any) -> str:
    """A type as a reader of the command line knows it."""
    known = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    if get_origin(kind) is types.UnionType:
        return words(next(one for one in get_args(kind) if one is not type(None)))
    if get_origin(kind) is list:
        return f"{words(get_args(kind)[0])}, repeatable"
    return known.get(kind, getattr(kind, "__name__", str(kind)).lower())


# --- frozen dataclasses --------------------------------------------------------------------------------------------------


def attributes(cls: type[Any]) -> dict[str, str]:
    """What the docstrings of a class and of its bases say of each attribute, in the sections `Attributes`."""
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        section = re.search(
            r"^Attributes:\n((?:[ ]{4}.*\n|\n)+)", inspect.cleandoc(one.__doc__ or "") + "\n", re.MULTILINE
        )
        for entry in re.split(r"^(?=\w+:)", textwrap.dedent(section[1]), flags=re.MULTILINE) if section else ():
            name, _, text = entry.partition(":")
            if text:
                found[name.strip()] = " ".join(text.split())
    return found


def default_of(field: dataclasses.Field[Any]) -> str:
    """The default of a field as a schema file writes it."""
    if field.default is dataclasses.MISSING:
        return "required"
    return "" if field.default in (None, "", ()) else code(_plain(field.default))


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- schema keys -----------------------------------------------------------------------------------------------------------

_NOT_KEYS = ("name", "ids", "order")
"""Fields that a schema file has no key for."""


def schema_page() -> str:
    """All keys of a schema file."""
    parts = [
        "# Schema keys\n",
        inspect.getdoc(import_module("gpate.schema.declaration")) or "",
        "\n## Keys of a table\n",
        _keys(TableSchema, kind="`table`"),
        "\n## Keys of images\n",
        _keys(ImageSchema, kind="`image`"),
        "\n## Keys of `unit`\n",
        _keys(PrivacyUnit),
        "\n## Keys of `cost`\n",
        _keys(Cost),
        "\n## Keys of every column\n",
        _keys(Column, type=", ".join(map(code, COLUMN_TYPES))),
        _rules_of_columns(),
    ]
    for name, column in COLUMN_TYPES.items():
        own = [f for f in dataclasses.fields(column) if f.name not in ("name", "missing", "invalid")]
        own = [f for f in own if not (name == "integer" and f.name == "decimals")]  # refused there
        about = inspect.cleandoc(column.__doc__ or "").split("\n\nAttributes:")[0]
        parts.append(f"\n## `type: {name}`\n\n{about}\n")
        if own:
            texts = attributes(column)
            parts.append(
                table(("key", "default", "meaning"), ([code(f.name), default_of(f), texts[f.name]] for f in own))
            )
    constraints = inspect.getdoc(import_module("gpate.schema.constraints")) or ""
    return "\n".join([*parts, "\n## `constraints`\n", constraints, ""])


def _keys(cls: type[Any], **more: str) -> str:
    texts = attributes(cls)
    rows = [[code(name), "required", text] for name, text in more.items()]
    fields = (f for f in dataclasses.fields(cls) if f.name not in _NOT_KEYS)
    rows += [[code(f.name), default_of(f), texts[f.name]] for f in fields]
    return table(("key", "default", "meaning"), rows)


def _rules_of_columns() -> str:
    return "\n" + inspect.cleandoc(Column.__doc__ or "").partition("**Rules.**")[2].strip() + "\n"


# --- settings of methods -----------------------------------------------------------------------------------------------------


def settings_page() -> str:
    """All settings of all methods, with their defaults in each recipe that has other ones."""
    parts = [
        "# Settings of each method\n",
        "A method has settings; a recipe is a named set of their values. `gpate fit --set NAME=VALUE`, or "
        '`Synthesizer(settings={"NAME": VALUE})`, changes one. A setting within a setting is named with a dot: `matching.steps`. '
        "Whatever is changed, the guarantee is the epsilon and delta that you ask for; settings affect utility and time. "
        "All of them are part of the release, in `config.json`.\n",
        "## Recipes\n",
        table(("recipe", "method", "for", "numbers from"), _recipe_rows()),
    ]
    shown: dict[type[Any], str] = {}
    for method in methods():
        parts.append(f"\n## Method `{method.name}`\n\n{inspect.getdoc(type(method)) or ''}\n")
        for name, group in method.groups.items():
            head = f"### `{name}` of `{method.name}`\n"
            if group in shown:
                parts.append(f"{head}\nThe same settings as those of method `{shown[group]}`, above.\n")
            else:
                shown[group] = method.name
                parts += [head, table(("setting", "default", "meaning"), _setting_rows(group()))]
        parts += [_recipe_values(recipe) for recipe in method.recipes()]
    parts += ["\n## Speed, in every method\n", table(("setting", "default", "meaning"), _setting_rows(Speed()))]
    return "\n".join(parts)


def _recipe_rows() -> Iterator[list[str]]:
    for method in methods():
        for recipe in method.recipes():
            yield [code(recipe.recipe), code(method.name), " or ".join(recipe.kinds), recipe.source]


def _setting_rows(group: Any) -> Iterator[list[str]]:
    texts = _texts(group)
    for name, value in values(group).items():
        yield [code(name), "none" if value is None else code(_plain(value)), texts[name]]


def values(group: Any) -> dict[str, Any]:
    """The settings of a group by name, those within settings with a dot."""
    found = {field.name: getattr(group, field.name) for field in dataclasses.fields(group)}
    inner = {name: value for name, value in found.items() if dataclasses.is_dataclass(value)}
    plain = {name: value for name, value in found.items() if name not in inner}
    return plain | {f"{name}.{key}": one for name, value in inner.items() for key, one in values(value).items()}


def _texts(group: Any) -> dict[str, str]:
    found = dict(attributes(type(group)))
    for field in dataclasses.fields(group):
        if dataclasses.is_dataclass(value := getattr(group, field.name)):
            found |= {f"{field.name}.{key}": text for key, text in _texts(value).items()}
    return found


def _recipe_values(recipe: Settings) -> str:
    """The settings in which a recipe differs from the defaults."""
    changed = [
        f"`{name}` = {'none' if value is None else code(_plain(value))}"
        for group in recipe.groups.values()
        for name, value in values(group).items()
        if value != values(type(group)())[name]
    ]
    return f"- Recipe `{recipe.recipe}`: {', '.join(changed) or 'the defaults'}."
