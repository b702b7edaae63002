"""Public maps from a record's tensor to what is summed through the gate. Declared or drawn, never fitted to records."""
