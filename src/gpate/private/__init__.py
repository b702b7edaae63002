"""The only rooms that hold real records: where they come from, and which teacher each one belongs to."""
