"""The schema of images."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Any, ClassVar

from gpate.errors import InvalidValue, SchemaError, require_count
from gpate.schema.columns import Category, checked_categories, repeated
from gpate.schema.declaration import Schema, only_known, require_optional_text, unit_of
from gpate.schema.privacy_unit import PrivacyUnit


def composed(text: str) -> str:
    """A text in Unicode's form NFC, in which a letter and its accent are one character. The same name of a class may be in another form
    on disk: macOS writes names of folders in NFD.
    """
    return unicodedata.normalize("NFC", text)


@dataclass(frozen=True, kw_only=True)
class ImageSchema(Schema):
    """Schema of images of one size, with or without classes.

    Attributes:
        height: in pixels.
        width: in pixels.
        channels: 1 for grey, 3 for colour.
        classes: names of the labels 0, 1, ...; empty for images without labels.
        row_id: what identifies a record, such as its file name.
        unit: what the guarantee protects, if not a single record.
        description: one line for people.
    """

    kind: ClassVar[str] = "image"
    cost: ClassVar[None] = None  # type: ignore[misc]
    height: int
    width: int
    channels: int = 1
    classes: tuple[Category, ...] = ()
    row_id: str | None = None
    unit: PrivacyUnit | None = None
    description: str = ""

    def __post_init__(self) -> None:
        require_count("height", self.height, 1)
        require_count("width", self.width, 1)
        if not isinstance(self.channels, int) or self.channels not in (1, 3) or isinstance(self.channels, bool):
            raise InvalidValue("channels", self.channels, "1 (grey) or 3 (colour)")
        if self.classes != ():
            object.__setattr__(self, "classes", checked_categories("classes", self.classes))
            if twice := repeated(composed(str(name)) for name in self.classes):
                fix = "Fix: rename one of the two: they differ in their form of Unicode only."
                raise InvalidValue("classes", twice, "listed once each", fix)
        require_optional_text("row_id", self.row_id)
        if self.unit is not None and self.unit.column is not None and self.unit.column == self.row_id:
            raise InvalidValue("unit", self.unit.to_dict(), "another column than the row id")

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in the YAML file."""
        named = {"classes": list(self.classes), "row_id": self.row_id, "description": self.description}
        size = {"height": self.height, "width": self.width, "channels": self.channels}
        unit = {} if self.unit is None else {"unit": self.unit.to_dict()}
        return {"kind": self.kind, **size, **{key: value for key, value in named.items() if value}, **unit}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> ImageSchema:
        """From the entries of a YAML file but `kind`."""
        only_known(fields, ("description", "height", "width", "channels", "classes", "row_id", "unit"), cls.kind)
        absent = [key for key in ("height", "width") if key not in fields]
        if absent:
            raise SchemaError(f"An image schema lacks {', '.join(absent)}.")
        return cls(**{**fields, "unit": unit_of(fields)})
