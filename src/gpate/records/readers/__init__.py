"""One reader per source format, for reading whole and in batches alike.

They are not DuckDB's: with it what a record holds decides whether a file can be read. A text that is no UTF-8 ends the reading of a Parquet
file, an open quote or a line of three million characters that of a .csv file, each with a message that quotes the value; one line with a
field too many gives all records a column (measured with DuckDB 2.0, `ignore_errors` and `null_padding`).
"""

from gpate.records.readers.base import CountedSource, FileSource, Source
from gpate.records.readers.csv_file import CsvFile
from gpate.records.readers.image_folder import ImageFolder
from gpate.records.readers.many_files import ManyFiles, files_named, is_pattern
from gpate.records.readers.npz_file import NpzFile
from gpate.records.readers.parquet_file import ParquetFile

__all__ = [
    "CountedSource",
    "CsvFile",
    "FileSource",
    "ImageFolder",
    "ManyFiles",
    "NpzFile",
    "ParquetFile",
    "Source",
    "files_named",
    "is_pattern",
]
