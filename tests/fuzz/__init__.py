"""Hostile input: what a stranger may hand to gpate must end well or with a named error, and nothing else.

`python -m tests.fuzz TARGET --cases 100000 --seed 0` runs the long one, `make fuzz` all of them.
"""
