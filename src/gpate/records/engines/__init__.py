"""Records in databases and query engines, and frames of other libraries: each is a source of Arrow batches, or counts by itself."""

from gpate.records.engines.opening import is_frame, open_engine, open_frame, open_query

__all__ = ["is_frame", "open_engine", "open_frame", "open_query"]
