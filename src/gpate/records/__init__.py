"""The only rooms that hold real records: sources, the partition of records over teachers, and the teachers."""
