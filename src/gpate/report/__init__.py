"""The page about a run: privacy in plain words, what was spent, real against synthetic, usefulness, warnings."""

from gpate.report.page import write_report

__all__ = ["write_report"]
