"""Raw records: what a reader gives, before encoding and before the gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
from numpy.typing import NDArray

from gpate.errors import InvalidValue, SensitiveAccess
from gpate.records.content_hash import Content, id_text, image_content, row_id_content, table_content

Rows = slice | NDArray[np.bool_] | NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class RawRecords:
    """Records that have not passed the gate. No text form, no pickle.

    Attributes:
        kind: `table` or `image`.
        records: a data frame without its row ids, or uint8 [records, height, width(, 3)].
        labels: int64 [records], numbers of the classes; None for a table, and for images without classes.
        row_ids: one per record, if the schema declares them.
        unit_ids: of the privacy unit of each record, if the schema declares one.
        faults: what could not be read, bool: [records, columns + 1] of a table, by column, and in the end whether the record
            could be divided into columns; [records, 1] of images; None if there can be no fault.
    """

    kind: Literal["table", "image"]
    records: Any
    labels: NDArray[np.int64] | None = None
    row_ids: NDArray[Any] | None = None
    unit_ids: NDArray[Any] | None = None
    faults: NDArray[np.bool_] | None = None

    def __repr__(self) -> str:
        return f"RawRecords(kind={self.kind!r}, <withheld>)"

    def __reduce__(self) -> NoReturn:
        raise SensitiveAccess("RawRecords cannot be pickled. Fix: read them again from their source.")

    @classmethod
    def join(cls, parts: Sequence[RawRecords]) -> RawRecords:
        """The records of all parts, in their order."""
        if len(parts) == 1:
            return parts[0]
        table = parts[0].kind == "table"
        records = [part.records for part in parts]
        return cls(
            kind=parts[0].kind,
            records=_in_one(records) if table else np.concatenate(records),
            labels=_joined([part.labels for part in parts]),
            row_ids=_joined([part.row_ids for part in parts]),
            unit_ids=_joined([part.unit_ids for part in parts]),
            faults=_joined([part.faults for part in parts]),
        )

    def part(self, rows: Rows) -> RawRecords:
        """A copy of some of them."""
        table = self.kind == "table"
        return replace(
            self,
            records=self.records.iloc[rows].copy().reset_index(drop=True) if table else np.array(self.records[rows]),
            labels=None if self.labels is None else self.labels[rows].copy(),
            row_ids=None if self.row_ids is None else self.row_ids[rows].copy(),
            unit_ids=None if self.unit_ids is None else self.unit_ids[rows].copy(),
            faults=None if self.faults is None else self.faults[rows].copy(),
        )

    def without(self, number: int) -> RawRecords:
        """All records but one: a neighbouring data set.

        Args:
            number: of the record to leave out, from 0.
        """
        if not 0 <= number < len(self.records):
            raise InvalidValue("record", number, "the number of a record of the data, from 0")
        return self.part(np.delete(np.arange(len(self.records)), number))

    def without_unit_of(self, number: int) -> RawRecords:
        """All records but those of one record's privacy unit: a neighbouring data set. Without units, all but that record.

        Args:
            number: of the record, from 0.
        """
        others = self.without(number)
        if self.unit_ids is None:
            return others
        own = [id_text(value) for value in self.unit_ids]
        return self.part(np.array([value != own[number] for value in own], dtype=bool))

    def content(self) -> Content:
        """What the partition hashes: the row ids where they are declared, else the records themselves."""
        if self.row_ids is not None:
            return row_id_content(self.row_ids)
        return table_content(self.records) if self.kind == "table" else image_content(self.records, self.labels)


def _in_one(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Frames under each other, every value as it is: pandas would bring columns of several types to a common one, so that a missing
    value in one record could make texts of others' numbers, and a time after 2262 end the run.
    """
    first = frames[0].dtypes
    mixed = [name for name in first.index if any(frame.dtypes[name] != first[name] for frame in frames)]
    return pd.concat([frame.astype(dict.fromkeys(mixed, object)) for frame in frames], ignore_index=True)


def _joined(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    present = [part for part in parts if part is not None]
    return np.concatenate(present) if present else None
