"""Encode records as tensors and decode them, from the schema alone: nothing is fitted.

A table's record becomes one row of float32 numbers between 0 and 1, column by column in `blocks`:

| column | slots |
|---|---|
| numeric, integer, datetime | one number: the declared bounds are 0 and 1, after log or arcsinh if declared |
| boolean | one flag |
| categorical | one slot per category, and one more for a missing value if allowed: exactly one of them is 1 |
| any other with `missing: true` | after its own slot one more, 1 where the value is missing (the slot itself is then 0) |

A categorical or boolean target is not included: it is the record's label. Nor are columns that a constraint computes from others:
`decode` computes them. Ids have no place here. `decode` accepts the soft values of a
generator. The dtypes it returns depend on the schema alone, so tables may be decoded in chunks.

For methods that count instead of training networks, `encode_values` gives one float64 number for each column, in its own units.

    >>> import pandas as pd
    >>> from gpate.schema import Schema
    >>> columns = {"age": {"type": "integer", "bounds": [0, 100]}, "sex": {"type": "categorical", "categories": ["f", "m"]}}
    >>> codec = TableCodec(Schema.from_dict({"kind": "table", "columns": columns}))
    >>> codec.encode(pd.DataFrame({"age": [25, 300], "sex": ["m", "f"]})).features
    tensor([[0.2500, 0.0000, 1.0000],
            [1.0000, 1.0000, 0.0000]])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.errors import InvalidValue, SchemaError
from gpate.schema.column_values import Read, in_own_units, read, values_of
from gpate.schema.columns import Boolean, Categorical, Column
from gpate.schema.image_schema import ImageSchema
from gpate.schema.table_schema import TableSchema

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Block:
    """Consecutive slots of one column: `features[:, start:stop]`.

    Attributes:
        name: the column's.
        kind: `number`, `flag` (a boolean) and `missing` (an indicator) are one slot each, for a sigmoid; `onehot` is
            for a softmax.
        start: first slot.
        stop: the slot after the last.
    """

    name: str
    kind: Literal["number", "flag", "onehot", "missing"]
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of slots."""
        return self.stop - self.start


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Encoded:
    """Records as tensors. As private as the records: its repr shows nothing.

    Attributes:
        features: float32 [records, width].
        labels: int64 [records], the class index of each record; None if the schema has no classes.
        repaired: bool [records, columns], where a column, in the schema's order, could not hold a value: its rule replaced it.
        dropped: bool [records], records that a rule leaves out; their features and labels mean nothing.
    """

    features: Tensor
    labels: Tensor | None
    repaired: Tensor
    dropped: Tensor

    def __repr__(self) -> str:
        return "Encoded(<withheld>)"


class TableCodec:
    """Codec between data frames and tensors.

    Attributes:
        schema: of the table.
        blocks: the layout of a row of features.
        width: number of slots in a row.
    """

    def __init__(self, schema: TableSchema) -> None:
        if not isinstance(schema, TableSchema):
            raise InvalidValue("schema", type(schema).__name__, "a TableSchema", "ImageCodec is for images.")
        self.schema = schema
        self.blocks = tuple(_layout(schema.features))
        self.width = self.blocks[-1].stop if self.blocks else 0

    def encode(self, frame: pd.DataFrame, *, unreadable: NDArray[np.bool_] | None = None) -> Encoded:
        """Encode records as tensors, each by itself; what a column cannot hold is repaired by its rule.

        Args:
            frame: all columns of the schema, in any order, and no others except the row id and ids.
            unreadable: [records, columns], where a reader found something that is no value of the declared type.

        Raises:
            SchemaError: the frame has other columns than the schema.
        """
        features = torch.zeros(len(frame), self.width)
        blocks = {(block.name, block.kind): block for block in self.blocks}

        def place(column: Column, found: Read) -> None:
            numbers = torch.from_numpy(found.numbers)
            if isinstance(column, Categorical):
                block = blocks[column.name, "onehot"]
                codes = torch.where(torch.from_numpy(found.missing), len(column.categories), numbers.long())
                features[:, block.start : block.stop].scatter_(1, codes.unsqueeze(1), 1.0)
                return
            features[:, blocks[column.name, _kind(column)].start] = numbers.float()
            if column.missing:
                features[:, blocks[column.name, "missing"].start] = torch.from_numpy(found.missing).float()

        return self._encode(frame, unreadable, features, place)

    def encode_values(self, frame: pd.DataFrame, *, unreadable: NDArray[np.bool_] | None = None) -> Encoded:
        """As `encode`, with one number for each column but a label, in its own units: features are float64 [records, columns].

        Numbers within their bounds as they are, times as seconds since 1970, categories as their place in the list, flags as 0 and 1;
        NaN where a value is missing.
        """
        places = {column.name: i for i, column in enumerate(self.schema.features)}
        features = torch.zeros(len(places), len(frame), dtype=torch.float64).T  # column by column in memory

        def place(column: Column, found: Read) -> None:
            features[:, places[column.name]] = torch.from_numpy(found.values)

        return self._encode(frame, unreadable, features, place, scaled=False)

    def _encode(
        self,
        frame: pd.DataFrame,
        unreadable: NDArray[np.bool_] | None,
        features: Tensor,
        place: Callable[[Column, Read], None],
        *,
        scaled: bool = True,
    ) -> Encoded:
        """Reads all columns; `place` puts each but a label into `features`."""
        self._check_names(frame)
        labels: Tensor | None = None
        repaired = torch.zeros(len(self.schema.columns), len(frame), dtype=torch.bool).T
        dropped = torch.zeros(len(frame), dtype=torch.bool)
        derived = self.schema.derived
        for i, column in enumerate(self.schema.columns):
            misread = None if unreadable is None else unreadable[:, i]
            found = read(column, frame[column.name], misread, scaled=scaled)
            repaired[:, i] = torch.from_numpy(found.repaired)
            if column.name in derived:
                continue
            dropped |= torch.from_numpy(found.dropped)
            if column is self.schema.label:
                labels = torch.from_numpy(found.numbers).long()
            else:
                place(column, found)
        return Encoded(features=features, labels=labels, repaired=repaired, dropped=dropped)

    def decode(
        self, features: Tensor, labels: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> pd.DataFrame:
        """Decode tensors to a data frame with the schema's columns, in order, those that are computed from others included.

        Args:
            features: [records, width]; slots may be soft, numbers outside [0, 1] are clipped.
            labels: the class of each record, if the schema has classes.
            generator: samples categories, flags and missing values with the probabilities in their slots. Without one
                the most likely value is taken: the largest slot of a category, 1 from 0.5 on.
        """
        if features.ndim != 2 or features.shape[1] != self.width:
            raise InvalidValue("shape of features", tuple(features.shape), f"[records, {self.width}]")
        if not torch.isfinite(features).all():
            raise InvalidValue("features", "NaN or infinity", "finite", "Check the generator.")
        soft = features.detach().cpu()
        blocks = {(block.name, block.kind): block for block in self.blocks}
        nothing = np.zeros(len(soft), dtype=bool)
        table: dict[str, Any] = {}
        for column in self.schema.columns:
            if column.name in self.schema.derived:
                continue
            missing = nothing
            numbers: NDArray[Any]
            if column is self.schema.label:
                numbers = self._checked_labels(labels, len(soft)).numpy()
            elif isinstance(column, Categorical):
                block = blocks[column.name, "onehot"]
                numbers = _choose(soft[:, block.start : block.stop], generator).numpy()
                missing = numbers == len(column.categories)
            else:
                slot = soft[:, blocks[column.name, _kind(column)].start]
                numbers = (_flip(slot, generator) if isinstance(column, Boolean) else slot.double()).numpy()
                if column.missing:
                    missing = _flip(soft[:, blocks[column.name, "missing"].start], generator).numpy()
            table[column.name] = values_of(column, in_own_units(column, numbers), missing)
        if self.schema.label is None and labels is not None:
            raise InvalidValue("labels", "given", "left out: the schema's target has no classes")
        return self._frame(table)

    def decode_values(self, features: Tensor, labels: Tensor | None = None) -> pd.DataFrame:
        """The inverse of `encode_values`: numbers beyond the bounds are clipped, others rounded as their column declares."""
        values = features.detach().cpu().numpy()
        if values.ndim != 2 or values.shape[1] != len(self.schema.features):
            raise InvalidValue("shape of features", tuple(values.shape), f"[records, {len(self.schema.features)}]")
        own = dict(zip((column.name for column in self.schema.features), values.T, strict=True))
        table: dict[str, Any] = {}
        for column in self.schema.columns:
            if column.name in self.schema.derived:
                continue
            if column is self.schema.label:
                numbers = self._checked_labels(labels, len(values)).numpy()
                missing = np.zeros(len(values), dtype=bool)
            else:
                numbers, missing = own[column.name], np.isnan(own[column.name])
                if bool(missing.any()) and not column.missing:
                    raise InvalidValue(f"features of column {column.name!r}", "NaN", "numbers", "Check the generator.")
            table[column.name] = values_of(column, numbers, missing)
        return self._frame(table)

    def _frame(self, table: dict[str, Any]) -> pd.DataFrame:
        """The columns in the schema's order, with those that are computed from others."""
        import pandas as pd

        if self.schema.constrained is not None:
            table = self.schema.constrained.with_sums(table)
        return pd.DataFrame({name: table[name] for name in self.schema.names}, copy=False)

    def _check_names(self, frame: pd.DataFrame) -> None:
        import pandas as pd

        if not isinstance(frame, pd.DataFrame):
            raise InvalidValue("data", type(frame).__name__, "a pandas DataFrame")
        names = [str(name) for name in frame.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        absent = [name for name in self.schema.names if name not in frame.columns]
        known = {*self.schema.names, *(column.name for column in self.schema.ids), self.schema.row_id}
        extra = [name for name in names if name not in known]
        problems = [
            f"{what}: {', '.join(found)}"
            for what, found in (
                ("columns that appear twice", twice),
                ("columns of the schema that the data lack", absent),
                ("columns that the schema does not have", extra),
            )
            if found
        ]
        if problems:
            raise SchemaError(f"The data do not fit the schema: {'; '.join(problems)}. Fix: declare or drop them.")

    def _checked_labels(self, labels: Tensor | None, records: int) -> Tensor:
        return _checked_labels(labels, records, len(self.schema.classes))


def _checked_labels(labels: Tensor | None, records: int, classes: int) -> Tensor:
    if labels is None:
        raise InvalidValue("labels", None, "given: the schema has classes")
    whole = not (labels.dtype.is_floating_point or labels.dtype.is_complex)
    if not whole or labels.shape != (records,) or bool(((labels < 0) | (labels >= classes)).any()):
        raise InvalidValue("labels", "other values", f"whole numbers from 0 to {classes - 1}, one per record")
    return labels.detach().cpu().long()


def _kind(column: Column) -> Literal["flag", "number"]:
    return "flag" if isinstance(column, Boolean) else "number"


def _layout(columns: Sequence[Column]) -> list[Block]:
    blocks: list[Block] = []
    slot = 0
    for column in columns:
        parts: list[tuple[Literal["number", "flag", "onehot", "missing"], int]]
        if isinstance(column, Categorical):
            parts = [("onehot", len(column.categories) + column.missing)]
        else:
            parts = [(_kind(column), 1)] + ([("missing", 1)] if column.missing else [])
        for kind, size in parts:
            blocks.append(Block(name=column.name, kind=kind, start=slot, stop=slot + size))
            slot += size
    return blocks


def _choose(soft: Tensor, generator: torch.Generator | None) -> Tensor:
    """The slot of each row: the largest, or sampled in proportion (the largest where none is positive)."""
    if generator is None:
        return soft.argmax(dim=1)
    bounds = soft.double().clamp_min_(0.0).cumsum(dim=1)
    total = bounds[:, -1:]
    draw = torch.rand(len(soft), 1, generator=generator, dtype=torch.float64) * total
    drawn = (bounds <= draw).sum(dim=1).clamp_(max=soft.shape[1] - 1)
    nothing = total.squeeze(1) <= 0
    return torch.where(nothing, soft.argmax(dim=1), drawn) if bool(nothing.any()) else drawn


def _flip(soft: Tensor, generator: torch.Generator | None) -> Tensor:
    """Whether each flag is set: from 0.5 on, or sampled with its probability."""
    if generator is None:
        return soft >= 0.5
    return torch.rand(soft.shape, generator=generator, dtype=torch.float64) < soft.double()


class ImageCodec:
    """Codec between uint8 images and float32 tensors in [0, 1].

    Attributes:
        schema: of the images.
        shape: (channels, height, width) of an encoded image.
    """

    def __init__(self, schema: ImageSchema) -> None:
        if not isinstance(schema, ImageSchema):
            raise InvalidValue("schema", type(schema).__name__, "an ImageSchema", "TableCodec is for tables.")
        self.schema = schema
        self.shape = (schema.channels, schema.height, schema.width)

    def encode(self, images: NDArray[np.uint8] | Tensor) -> Tensor:
        """Encode uint8 images [N, H, W] (grey) or [N, H, W, C] as float32 [N, C, H, W]."""
        pixels = torch.as_tensor(images)
        if pixels.dtype != torch.uint8:
            raise InvalidValue("dtype of images", str(pixels.dtype), "uint8, 0 to 255")
        channels, height, width = self.shape
        if pixels.ndim == 3 and channels == 1:
            pixels = pixels.unsqueeze(-1)
        if pixels.ndim != 4 or tuple(pixels.shape[1:]) != (height, width, channels):
            raise SchemaError(
                f"The images do not fit the schema: they must be [N, {height}, {width}{'' if channels == 1 else f', {channels}'}]. "
                "Fix: resize them when they are read, or correct the schema."
            )
        return pixels.permute(0, 3, 1, 2).contiguous().float().div_(255.0)

    def decode(self, features: Tensor) -> NDArray[np.uint8]:
        """Decode floats [N, C, H, W], clipped to [0, 1], to uint8 [N, H, W] (grey) or [N, H, W, C]."""
        if features.ndim != 4 or tuple(features.shape[1:]) != self.shape:
            raise InvalidValue("shape of features", tuple(features.shape), f"[N, {', '.join(map(str, self.shape))}]")
        if not torch.isfinite(features).all():
            raise InvalidValue("features", "NaN or infinity", "finite", "Check the generator.")
        pixels = features.detach().cpu().float().clamp(0.0, 1.0).mul_(255.0).round_().to(torch.uint8)
        images: NDArray[np.uint8] = pixels.permute(0, 2, 3, 1).contiguous().numpy()
        return images[..., 0] if self.schema.channels == 1 else images

    def encode_labels(self, labels: Sequence[Any] | NDArray[Any]) -> Tensor:
        """Class names to indices, int64 [N]."""
        numbers = {name: i for i, name in enumerate(self.schema.classes)}
        try:
            return torch.tensor([numbers[label] for label in np.asarray(labels).tolist()], dtype=torch.int64)
        except (KeyError, TypeError):
            raise SchemaError(
                "A label is not among the schema's classes. Fix: complete the list, in the order of the labels."
            ) from None

    def decode_labels(self, labels: Tensor) -> NDArray[Any]:
        """Class indices to names."""
        checked = _checked_labels(labels, len(labels), len(self.schema.classes))
        return np.asarray(self.schema.classes).take(checked.numpy())
