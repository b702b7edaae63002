"""Utility and quality of a synthetic set against real records. Its scores are not private."""
