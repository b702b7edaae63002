"""Reading a source whole, as tests of several kinds do."""

from __future__ import annotations

from typing import Any

from gpate.records.raw import RawRecords
from gpate.records.source import open_source, read_whole


def read(data: Any, schema: Any, **options: Any) -> RawRecords:
    return read_whole(open_source(data, schema=schema, **options))
