"""The paper's Algorithm 2 as a loop over samples and coordinates with numpy.histogram: slow and obvious."""

from __future__ import annotations

import numpy as np
import torch


def slow_votes(gradients: torch.Tensor, projection: torch.Tensor | None, *, clip: float, bins: int) -> np.ndarray:
    """Votes [samples, coordinates, bins]."""
    samples = gradients.shape[1]
    out = []
    for j in range(samples):
        u = gradients[:, j] if projection is None else gradients[:, j] @ projection[j]
        columns = u.double().numpy().T
        out.append(
            [np.histogram(np.clip(column, -clip, clip), bins=bins, range=(-clip, clip))[0] for column in columns]
        )
    return np.array(out)


def slow_dp_grad_agg(
    gradients: torch.Tensor,
    projection: torch.Tensor | None,
    *,
    clip: float,
    bins: int,
    threshold: float,
    threshold_sigma: float = 0.0,
    vote_sigma: float = 0.0,
    rng: np.random.Generator | None = None,
) -> np.ndarray:
    """The aggregated gradient [samples, dims], with noise from `rng` if there is one."""
    rng = rng or np.random.default_rng(0)
    teachers = len(gradients)
    width = 2 * clip / bins
    result = []
    for j, histograms in enumerate(slow_votes(gradients, projection, clip=clip, bins=bins)):
        u = np.zeros(len(histograms))
        for coordinate, histogram in enumerate(histograms):
            if histogram.max() + threshold_sigma * rng.standard_normal() >= threshold * teachers:
                winner = int(np.argmax(histogram + vote_sigma * rng.standard_normal(bins)))
                u[coordinate] = -clip + (winner + 0.5) * width
        result.append(u if projection is None else projection[j].double().numpy() @ u)
    return np.array(result)
