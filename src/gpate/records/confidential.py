"""Real records for the custodian's own eyes: evaluation and the confidential report compare synthetic records with them.

Nothing pays for what is computed from these: scores and figures made with them are confidential and stay with the records.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gpate.datasets import Dataset, Split
from gpate.records.encoding import usable
from gpate.records.readers.image_folder import images_in
from gpate.records.source import open_source, read_whole
from gpate.schema import ImageSchema, TableSchema


def has_images(folder: Path) -> bool:
    """Whether a folder has images that would be read."""
    return next(images_in(folder), None) is not None


def read_confidential(
    source: str | os.PathLike[str] | Dataset, schema: TableSchema | ImageSchema, *, split: Split = "train"
) -> Any:
    """A data frame, or (uint8 images, labels), with the declared types, without the records that the schema's rules leave out.

    Real records: keep them and all they show inside.

    Args:
        source: a benchmark or its name, a file or a folder of images.
        schema: public.
        split: of a benchmark.
    """
    read = usable(read_whole(open_source(source, schema=schema, split=split)), schema)
    return read.records if read.kind == "table" else (read.records, read.labels)
