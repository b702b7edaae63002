"""Was the noise drawn that the ledger says? A white-box check of a gate's transcript.

For each purpose, the noise of all answers is divided by the scale that its event states. The sum of squares of n standard
normal numbers is chi-squared with n degrees of freedom, which sees a wrong scale; and the largest distance of their
distribution from the normal one (Kolmogorov and Smirnov) sees a wrong shape. Laplace noise: the sum of n absolute values is
half a chi-squared number with 2n degrees of freedom.

**Guarantee.** A purpose whose noise is what it should be fails with probability `risk` at most, divided evenly over all
purposes and both tests. Exact noise lies on a grid. For Gaussian noise its steps are a millionth of the scale; Laplace noise on
whole counts is first spread over its steps, at random, so that it has the continuous law if it has the discrete one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import chi2, kstest, laplace, norm

from gpate.accounting import Laplace
from gpate.audit.transcript_gate import GateTranscript, NoisedRelease
from gpate.errors import NotComputable, require_probability

_SCALES = ("sigma", "scale")


@dataclass(frozen=True, kw_only=True)
class NoiseCheck:
    """What was found for one purpose.

    Attributes:
        purpose: as the ledger has it.
        values: of noise that were looked at.
        p_value: how likely noise as it should be looks at least as odd; both tests together.
        passed: whether that is above the risk.
    """

    purpose: str
    values: int
    p_value: float
    passed: bool

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def noise_checks(transcripts: Iterable[GateTranscript], *, risk: float = 1e-6) -> list[NoiseCheck]:
    """One check for each purpose.

    Args:
        transcripts: of any number of runs.
        risk: that sound noise is accused, in all checks together.
    """
    require_probability("risk", risk)
    noise: dict[tuple[str, bool], list[np.ndarray]] = {}
    for transcript in transcripts:
        for release in transcript.releases:
            noise.setdefault((release.purpose, isinstance(release.event, Laplace)), []).append(_standard(release))
    checks = []
    for (purpose, pure), parts in noise.items():
        drawn = np.concatenate(parts)
        p = min(1.0, 2 * min(_scale_p(drawn, pure=pure), float(kstest(drawn, (laplace if pure else norm).cdf).pvalue)))
        checks.append(NoiseCheck(purpose=purpose, values=len(drawn), p_value=p, passed=p > risk / len(noise)))
    return checks


def _standard(release: NoisedRelease) -> np.ndarray:
    """The noise over the scale that its event states."""
    scale = next((getattr(release.event, name) for name in _SCALES if hasattr(release.event, name)), None)
    if scale is None:
        raise NotComputable(f"{release.event} states no scale of its noise.")
    noise = np.asarray((release.answer - release.exact).ravel())
    if isinstance(release.event, Laplace) and release.event.grid is not None:
        return _continuous(np.rint(noise / release.event.grid), release.event.grid / scale)
    return noise / scale  # the grid of a discrete Gaussian is a millionth of its sigma


def _continuous(steps: np.ndarray, step: float) -> np.ndarray:
    """Discrete Laplace noise as a continuous one: each value is spread at random over its share of the distribution.

    P(k) = (1 - q) / (1 + q) q^|k| with q = e^-step, so beyond k lies the mass q^(|k| + 1) / (1 + q).
    """
    rng = np.random.default_rng()
    q = math.exp(-step)
    tail = (q ** (np.abs(steps) + 1) + rng.random(steps.shape) * (1 - q) * q ** np.abs(steps)) / (1 + q)
    return np.where(steps == 0, laplace.ppf(tail), -np.sign(steps) * np.log(2 * tail))


def _scale_p(drawn: np.ndarray, *, pure: bool) -> float:
    """Two-sided, of a wrong scale."""
    size, freedom = (2 * np.abs(drawn).sum(), 2 * len(drawn)) if pure else (np.square(drawn).sum(), len(drawn))
    return float(min(1.0, 2 * min(chi2.cdf(size, freedom), chi2.sf(size, freedom))))
