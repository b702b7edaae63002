"""Settings of a run: the groups of settings of one method, and what only affects speed.

A recipe is a named instance. `Settings.changed` applies `--set key=value`; `to_json` and `settings_from_json` write and read the
format of releases and run folders.

    >>> from gpate.methods.pate import Mechanism
    >>> Settings(recipe="own", source="here", method="votes", groups={"mechanism": Mechanism()}).of(Mechanism).bins
    10
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gpate.errors import InvalidValue, require_count, require_fraction, require_positive

T = TypeVar("T")

BOTH = ("image", "table")


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What changes speed only.

    Attributes:
        device: `auto`, `cpu` or `cuda`.
        chunk: teachers at a time; None plans it from the memory there is.
        checkpoint_seconds: how often the private state is written, so that a resumed run has less to do again.
    """

    device: str = "auto"
    chunk: int | None = None
    checkpoint_seconds: float = 300.0

    def __post_init__(self) -> None:
        if self.chunk is not None:
            require_count("chunk", self.chunk, 1)
        if self.checkpoint_seconds != 0:
            require_positive("checkpoint_seconds", self.checkpoint_seconds)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of a run.

    Attributes:
        recipe: its name.
        source: where its numbers are from.
        method: the name of a registered method.
        groups: the method's settings, frozen dataclasses by name.
        speed: nothing but speed.
        quick: whether it is a fast, lower-quality run.
        kinds: of records that the recipe is for; not stored.
    """

    recipe: str
    source: str
    method: str
    groups: Mapping[str, Any]
    speed: Speed = field(default_factory=Speed)
    quick: bool = False
    kinds: tuple[str, ...] = BOTH

    def of(self, kind: type[T]) -> T:
        """The group of that class."""
        return next(group for group in self.groups.values() if isinstance(group, kind))

    def with_group(self, name: str, group: Any) -> Settings:
        """The same with another group of that name."""
        return dataclasses.replace(self, groups={**self.groups, name: group})

    def changed(self, changes: Mapping[str, Any]) -> Settings:
        """With some settings changed by their name; a text is read as JSON where it is JSON.

        A setting inside a setting is named with a dot: `matching.steps`.
        """
        every, touched = {**self.groups, "speed": self.speed}, set[str]()
        for full, value in changes.items():
            group, name = _group_of(every, full)
            given = _read(value) if isinstance(value, str) else value
            every[group] = _with(every[group], name.split("."), given, name)
            touched.add(group)
        other = bool(touched - {"speed"}) and not self.recipe.endswith("changed")
        speed = every.pop("speed")
        return dataclasses.replace(self, recipe=self.recipe + ", changed" * other, groups=every, speed=speed)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        groups = {name: dataclasses.asdict(group) for name, group in {**self.groups, "speed": self.speed}.items()}
        return {"recipe": self.recipe, "source": self.source, "method": self.method, "quick": self.quick, **groups}


def require_outside_share(value: float) -> float:
    """The budget fraction for releasing how many values lay outside the declared domain: at least 0 and below a half."""
    if require_fraction("outside_share", value) >= 0.5:
        raise InvalidValue("outside_share", value, "at least 0 and below 0.5")
    return float(value)


def settings_from_json(data: Mapping[str, Any], groups: Mapping[str, type[Any]]) -> Settings:
    """The inverse of `Settings.to_json`, for a method with these groups."""
    return Settings(
        recipe=data["recipe"],
        source=data["source"],
        method=data["method"],
        quick=data.get("quick", False),
        groups={name: _from_plain(kind, data[name]) for name, kind in groups.items()},
        speed=_from_plain(Speed, data["speed"]),
    )


def _group_of(groups: Mapping[str, Any], name: str) -> tuple[str, str]:
    """The first group that has such a setting, and its name there; the method's own come before `speed`. A group may be named before it."""
    known: dict[str, str] = {}
    for group, values in groups.items():
        for each in dataclasses.fields(values):
            known.setdefault(each.name, group)
    first, _, rest = name.partition(".")
    if (
        first in groups
        and first not in known
        and rest.partition(".")[0] in {f.name for f in dataclasses.fields(groups[first])}
    ):
        return first, rest
    if first not in known:
        raise InvalidValue("setting", name, f"one of {', '.join(known)}")
    return known[first], name


def _with(settings: Any, path: list[str], value: Any, name: str) -> Any:
    """A frozen dataclass with one field, or one inside a field, replaced."""
    first, rest = path[0], path[1:]
    fields = [f.name for f in dataclasses.fields(settings)] if dataclasses.is_dataclass(settings) else []
    if first not in fields:
        raise InvalidValue("setting", name, f"one of {', '.join(fields)} after its dot" if fields else "without a dot")
    if rest:
        value = _with(getattr(settings, first), rest, value, name)
    elif dataclasses.is_dataclass(getattr(settings, first)):
        raise InvalidValue(
            "setting", name, f"named in full, e.g. {name}.{dataclasses.fields(getattr(settings, first))[0].name}"
        )
    return dataclasses.replace(settings, **{first: value})


def _from_plain(kind: type[Any], data: Mapping[str, Any]) -> Any:
    """A dataclass from plain data, dataclasses within it included. What the data does not say is as the class has it, whatever
    the class around it would choose: a recipe may change, and a setting's own default was what held before there was one.
    """
    model = kind()
    values = {
        name: _from_plain(type(inner), value) if dataclasses.is_dataclass(inner := getattr(model, name)) else value
        for name, value in data.items()
    }
    return kind(**values)


def _read(text: str) -> Any:
    try:
        return None if text == "None" else json.loads(text.lower() if text in ("True", "False") else text)
    except json.JSONDecodeError:
        return text
