"""One reader per source format, for reading whole and in batches alike."""

from gpate.records.readers.base import CountedSource, FileSource, Source
from gpate.records.readers.csv_file import CsvFile
from gpate.records.readers.image_folder import ImageFolder
from gpate.records.readers.npz_file import NpzFile
from gpate.records.readers.parquet_file import ParquetFile

__all__ = ["CountedSource", "CsvFile", "FileSource", "ImageFolder", "NpzFile", "ParquetFile", "Source"]
