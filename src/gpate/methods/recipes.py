"""Recipes: named settings, each stating where its numbers are from. They belong to the methods; here they are looked up.

>>> from gpate.schema import ImageSchema
>>> digits = ImageSchema(channels=1, height=28, width=28, classes=("0", "1"))
>>> resolve("paper", schema=digits, dataset="mnist", epsilon=1.0).to_json()["mechanism"]["teachers"]
4000
>>> resolve("default", schema=digits, dataset=None, epsilon=1.0).method
'embedding'
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gpate.errors import InvalidValue
from gpate.methods import method_named, methods
from gpate.methods.base import AnySchema
from gpate.methods.settings import Settings


def recipes() -> dict[str, Settings]:
    """All recipes of all registered methods, by name."""
    return {settings.recipe: settings for method in methods() for settings in method.recipes()}


def resolve(recipe: str, *, schema: AnySchema, dataset: str | None, epsilon: float) -> Settings:
    """The settings for a recipe's name; `default` is what measured best for such records.

    Args:
        recipe: a name, or `default`.
        schema: of the records.
        dataset: a benchmark's name, if it is one.
        epsilon: the whole budget.
    """
    for method in methods():
        name = method.default_recipe(schema) if recipe == "default" else recipe
        for settings in method.recipes() if name is not None else ():
            if settings.recipe == name:
                if schema.kind not in settings.kinds:
                    suits = " or ".join(settings.kinds)
                    fix = f"This one is for a {suits}: take `default`."
                    raise InvalidValue("recipe", recipe, f"for a {schema.kind}", fix)
                return method.resolved(settings, schema=schema, dataset=dataset, epsilon=epsilon)
    raise InvalidValue("recipe", recipe, f"one of default, {', '.join(recipes())}")


def quick(settings: Settings) -> Settings:
    """A fast, lower-quality run. The guarantee is the same."""
    changes = method_named(settings.method).quick(settings)
    return dataclasses.replace(settings.changed(changes), recipe=settings.recipe, quick=True)


def asked(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """With the settings that a user asks for.

    Raises:
        InvalidValue: there is no such setting, or it follows from others in this method.
    """
    for name in sorted(method_named(settings.method).not_asked & changes.keys()):
        fix = "It follows from other settings here. Fix: leave it out."
        raise InvalidValue(name, changes[name], f"left out with the recipe {settings.recipe}", fix)
    return settings.changed(changes)


def check(settings: Settings) -> None:
    """Raises for settings that no run could have."""
    method_named(settings.method).check(settings)
