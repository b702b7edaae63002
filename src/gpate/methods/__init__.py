"""Compositions of the other rooms, one method each. The only rooms, beside the command, that may see private records."""
