"""Errors of the research package. Each message names the value that was wrong and the fix."""

from __future__ import annotations

from gpate.errors import GpateError


class PeerError(GpateError):
    """Base of what can go wrong with another synthesizer that is run beside ours."""


class PeerMissing(PeerError):
    """It is not installed, or its Python was not named."""


class PeerFailed(PeerError):
    """It ended without a table that fits the schema. What it printed may quote records, so no message holds it."""


class PeerTooSlow(PeerError):
    """It was stopped at its time limit."""


class ResultsWriteFailed(GpateError):
    """A line of results could not be brought to disk."""
