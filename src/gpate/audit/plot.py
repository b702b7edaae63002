"""The picture of an audit: scores on both sides, and the trade-off between false alarms and misses."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpate.accounting.gaussian import mu_for
from gpate.accounting.guesses import most_hits, most_hits_gaussian
from gpate.audit.game import Audit

_WITHOUT, _WITH, _CLAIM, _REFUTED = "#8a8a8a", "#d1632f", "#1f5fa8", "#fbe4e1"


def plot_audit(path: Path, audit: Audit) -> None:
    """Writes it as an image."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    both = np.concatenate([audit.without, audit.with_])
    low, high = (float(np.quantile(both, share)) for share in (0.001, 0.999))
    bins = np.linspace(low, max(high, low + 1e-6), 40).tolist()
    left.hist(audit.without, bins, color=_WITHOUT, alpha=0.7, label="without the record")
    left.hist(audit.with_, bins, color=_WITH, alpha=0.6, label="with it")
    left.axvline(audit.found.thresholds.epsilon, color="#222222", lw=1, ls=":", label="where epsilon is bounded")
    left.set(xlabel="score: the higher, the more it looks like the record was there", ylabel="runs")
    left.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize="small")
    cuts = np.unique(both)
    alarms = [1.0, *(float(np.mean(audit.without > cut)) for cut in cuts)]
    misses = [0.0, *(float(np.mean(audit.with_ <= cut)) for cut in cuts)]
    grid = np.linspace(0.0, 1.0, 800)
    floor = 1 - most_hits(grid, epsilon=audit.epsilon, delta=audit.delta)
    said = f"claimed: epsilon {audit.epsilon:g}, delta {audit.delta:g}"
    right.plot(grid, floor, color=_CLAIM, ls="--", label=said)
    if audit.gaussian:
        mu = mu_for(audit.epsilon, delta=audit.delta)
        floor = np.maximum(floor, 1 - most_hits_gaussian(grid, mu=mu))
        right.plot(grid, floor, color=_CLAIM, label=f"the same by mu {mu:.3g}")
    right.fill_between(grid, 0, floor, color=_REFUTED, lw=0, label="refutes it, but for chance")
    right.plot(alarms, misses, color=_WITH, label="found")
    right.set(xlabel="false alarms", ylabel="misses", xlim=(0, 1), ylim=(0, 1))
    right.legend(frameon=False, fontsize="small", loc="upper right")
    verdict = "REFUTED" if audit.caught else "not refuted"
    confidence = f"with confidence {audit.found.confidence:g}"
    figure.suptitle(f"epsilon is at least {audit.bound:.3g} {confidence}, claimed {audit.epsilon:g}: {verdict}")
    figure.savefig(path, dpi=120)
