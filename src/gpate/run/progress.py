"""What may be shown while a run goes on, and how it is stopped."""

from __future__ import annotations

from dataclasses import dataclass

from gpate.errors import GpateError


class Interrupted(GpateError):
    """The run was stopped on request after a whole iteration; nothing is lost."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What may be shown while a run goes on: released numbers only."""

    iteration: int
    spend: float
    epsilon: float
    answered: float
    seconds: float
    fraction: float
    replayed: bool
