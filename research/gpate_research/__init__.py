"""Research with gpate: the paper's tables run again, other synthesizers beside ours, and the benchmark sets they need.

Installed beside gpate (`pip install -e research`), it adds the command `gpate reproduce` and the names of its benchmark sets.
"""
