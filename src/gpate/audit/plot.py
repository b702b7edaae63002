"""The picture of an audit: scores on both sides, and the trade-off between false alarms and misses."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpate.accounting.gaussian import mu_for
from gpate.accounting.guesses import most_hits, most_hits_gaussian
from gpate.audit.game import Audit

_WITHOUT, _WITH, _CLAIM = "#8a8a8a", "#d1632f", "#1f5fa8"


def plot_audit(path: Path, audit: Audit) -> None:
    """Writes it as an image."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    both = np.concatenate([audit.without, audit.with_])
    low, high = (float(np.quantile(both, share)) for share in (0.001, 0.999))
    bins = np.linspace(low, max(high, low + 1e-6), 40).tolist()
    left.hist(audit.without, bins, color=_WITHOUT, alpha=0.7, label="without the record")
    left.hist(audit.with_, bins, color=_WITH, alpha=0.6, label="with it")
    left.axvline(audit.found.thresholds.epsilon, color="#222222", lw=1, ls=":")
    left.set(xlabel="score", ylabel="runs")
    left.legend(frameon=False)
    cuts = np.unique(both)
    alarms = [float(np.mean(audit.without > cut)) for cut in cuts]
    misses = [float(np.mean(audit.with_ <= cut)) for cut in cuts]
    right.plot(alarms, misses, color=_WITH, label="found")
    grid = np.linspace(0.0, 1.0, 400)
    if audit.gaussian:
        mu = mu_for(audit.epsilon, delta=audit.delta)
        right.plot(grid, 1 - most_hits_gaussian(grid, mu=mu), color=_CLAIM, label=f"claimed: mu {mu:.3g}")
    floor = 1 - most_hits(grid, epsilon=audit.epsilon, delta=audit.delta)
    right.plot(grid, floor, color=_CLAIM, ls="--", label=f"claimed: epsilon {audit.epsilon:g}, delta {audit.delta:g}")
    right.set(xlabel="false alarms", ylabel="misses", xlim=(0, 1), ylim=(0, 1))
    right.legend(frameon=False)
    figure.suptitle(f"epsilon at least {audit.bound:.3g}, claimed {audit.epsilon:g}")
    figure.savefig(path, dpi=120)
