"""What goes into the noise on neighbouring data sets after the same answers: whole numbers, so that sensitivities are exact."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from gpate.accounting import Budget, grid_for
from gpate.accounting.events import GaussianNoise
from gpate.audit.transcript_gate import NoisedRelease, RecordingGate
from gpate.boundary import FastNoise, Gate

Pair = tuple[NoisedRelease, NoisedRelease]
"""The same release with the record in question, and without it."""


def releases_of_neighbours(play: Callable[[bool, Gate], object], budget: Budget) -> list[Pair]:
    """Plays with the record, then without it on the answers that were given before; what is asked must be the same."""
    with_, noise = RecordingGate(budget, noise=FastNoise(0)), FastNoise(0)
    play(True, with_)
    without = RecordingGate(budget, replay=with_.transcript, noise=noise)
    play(False, without)
    return list(zip(with_.transcript.releases, without.transcript.releases, strict=True))


def move(pair: Pair) -> list[Fraction]:
    """By how much the record moves each number of a Gaussian release, as the voucher was given it: without rounding."""
    event = pair[0].event
    assert isinstance(event, GaussianNoise)
    unit = grid_for(event.sigma)
    first, second = (release.exact.ravel() / unit for release in pair)  # a power of two: nothing is rounded
    assert all((whole == np.rint(whole)).all() for whole in (first, second)), "not on the grid"
    return [Fraction(int(v)) * Fraction(unit) for v in first - second]


def squared(moves: list[Fraction]) -> Fraction:
    """The squared length."""
    return sum((v * v for v in moves if v), Fraction(0))
