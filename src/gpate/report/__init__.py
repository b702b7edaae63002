"""The page about a run: privacy in plain words, what was spent, real against synthetic, usefulness, warnings."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpate.report.page import write_report

__all__ = ["write_report"]


def __getattr__(name: str) -> Any:
    """Imports what needs torch when it is first used: words and figures do not."""
    if name != "write_report":
        raise AttributeError(f"module 'gpate.report' has no attribute {name!r}")
    from gpate.report.page import write_report

    return write_report
