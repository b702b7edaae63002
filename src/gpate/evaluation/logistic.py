"""Weighted logistic regression on tables with many rows and few columns, as fast as an ensemble of hundreds needs it.

The objective is convex, so any solver finds the same model. This one takes Newton steps on the d x d matrix of second
derivatives, and can start where a similar fit ended. Tests hold it to scikit-learn.

Objective, as scikit-learn has it with C = 1: `sum_i w_i log(1 + exp(-s_i x_i b)) + penalty(b)`. L2 leaves the intercept
alone, L1 does not (liblinear's habit). More than two classes: one against the rest.

    >>> x, y = np.array([[-1.0], [0.0], [1.0], [2.0]], dtype=np.float32), np.array([0, 0, 1, 1])
    >>> LogisticRegression(classes=2).fit(x, y).predict(x)
    array([0, 0, 1, 1])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Floats = NDArray[Any]
Penalty = Literal["l1", "l2"]

_STEPS, _SWEEPS, _HALVINGS = 200, 20, 20
_TOLERANCE = {"l1": 1e-6, "l2": 1e-8}
"""Steps end when the next one would lower the mean loss by less than this. One-hot columns sum to one, so that many L1
solutions are nearly as good as the best: to go on would move coefficients and no prediction."""


def fit_binary(
    x: Floats,
    y: Floats,
    w: Floats,
    *,
    penalty: Penalty,
    start: Floats | None = None,
    metric: Floats | None = None,
) -> Floats:
    """Coefficients, the intercept last.

    Args:
        x: float32 [n, d + 1], the last column all ones.
        y: 0 or 1 for each row.
        w: weights.
        penalty: `l1` or `l2`.
        start: where to begin.
        metric: second derivatives of a similar problem (L2 only), inverted, to be used for all steps: more steps, but
            each costs d times less.
    """
    ridge = np.ones(x.shape[1])
    ridge[-1] = 0.0
    b = np.zeros(x.shape[1]) if start is None else start.copy()
    y, w = np.asarray(y, dtype=np.float64), np.asarray(w, dtype=np.float64)
    total, z = float(w.sum()), _scores(x, b)
    loss = _loss(z, y, w) + _penalty(b, penalty, ridge)
    for _ in range(_STEPS):
        p = expit(z)
        gradient = (x.T @ (w * (p - y)).astype(np.float32)).astype(np.float64)
        if penalty == "l2":
            gradient += ridge * b
            step = -(np.linalg.solve(second(x, w, p, ridge), gradient) if metric is None else metric @ gradient)
            gain = -0.5 * float(gradient @ step)
        else:
            curvature = second(x, w, p, 0.0)
            step = _lasso_step(curvature, gradient, b)
            model = gradient @ step + 0.5 * step @ curvature @ step
            gain = -float(model + np.abs(b + step).sum() - np.abs(b).sum())
        if gain <= _TOLERANCE[penalty] * total:
            break
        size = 1.0
        for _ in range(_HALVINGS):
            moved = b + size * step
            z_moved = _scores(x, moved)
            lower = _loss(z_moved, y, w) + _penalty(moved, penalty, ridge)
            if lower <= loss - 1e-4 * size * gain:
                break
            size /= 2
        else:
            break  # rounding hides any further descent
        b, z, loss = moved, z_moved, lower
    return b


def second(x: Floats, w: Floats, p: Floats, ridge: Floats | float) -> Floats:
    """Second derivatives of the loss at probabilities p, kept away from singular."""
    found = (x.T @ (x * (w * p * (1 - p)).astype(np.float32)[:, None])).astype(np.float64)
    found[np.diag_indices_from(found)] += ridge + 1e-9 * w.sum()
    return found


def _scores(x: Floats, b: Floats) -> Floats:
    return (x @ b.astype(np.float32)).astype(np.float64)


def _loss(z: Floats, y: Floats, w: Floats) -> float:
    return float(w @ (np.logaddexp(0.0, z) - y * z))


def _penalty(b: Floats, penalty: Penalty, ridge: Floats) -> float:
    return float(np.abs(b).sum() if penalty == "l1" else 0.5 * (ridge * b) @ b)


def _lasso_step(curvature: Floats, gradient: Floats, b: Floats) -> Floats:
    """Minimises the quadratic model plus |b + step|_1, one coordinate at a time."""
    step, slope = np.zeros_like(b), gradient.copy()
    diagonal = np.diag(curvature).copy()
    for _ in range(_SWEEPS):
        largest = 0.0
        for j in range(len(b)):
            now = b[j] + step[j]
            target = now - slope[j] / diagonal[j]
            change = np.sign(target) * max(abs(target) - 1.0 / diagonal[j], 0.0) - now
            if change:
                step[j] += change
                slope += change * curvature[j]
                largest = max(largest, abs(change) * diagonal[j] ** 0.5)
        if largest <= 1e-4:
            break
    return step


def with_ones(x: Floats) -> Floats:
    """Float32 rows with a last column of ones."""
    return np.hstack([x.astype(np.float32, copy=False), np.ones((len(x), 1), dtype=np.float32)])


@dataclass(kw_only=True)
class LogisticRegression:
    """Logistic regression.

    Attributes:
        classes: how many there are; labels are their numbers.
        penalty: `l1` or `l2`.
        class_weight: factor for each class; ones by default.
        coefficients: [1 or classes, d + 1], after `fit`; fits start here if it is set before.
    """

    classes: int
    penalty: Penalty = "l2"
    class_weight: tuple[float, ...] = ()
    coefficients: Floats | None = field(default=None, repr=False)

    def fit(self, x: Floats, y: Floats, weights: Floats | None = None) -> Self:
        """Fits to rows x, labels y."""
        return self.fit_ones(with_ones(x), y, np.ones(len(x)) if weights is None else weights)

    def fit_ones(self, ones: Floats, y: Floats, weights: Floats, metrics: Sequence[Floats | None] = ()) -> Self:
        """As `fit`, for rows that have their column of ones already; `metrics` as in `fit_binary`."""
        if self.class_weight:
            weights = weights * np.asarray(self.class_weight)[y]
        positive = [1] if self.classes == 2 else range(self.classes)
        starts = [None] * len(positive) if self.coefficients is None else list(self.coefficients)
        self.coefficients = np.stack(
            [
                fit_binary(ones, y == c, weights, penalty=self.penalty, start=start, metric=metric)
                for c, start, metric in zip(positive, starts, metrics or [None] * len(positive), strict=True)
            ]
        )
        return self

    def scores(self, ones: Floats) -> Floats:
        """Log odds [n, classes], those of the first of two classes being 0."""
        assert self.coefficients is not None
        found = ones @ self.coefficients.T.astype(np.float32)
        return np.hstack([np.zeros_like(found), found]) if self.classes == 2 else found

    def metrics(self, ones: Floats) -> list[Floats]:
        """Inverse second derivatives where the fit ended, for fits to nearly the same rows."""
        assert self.coefficients is not None
        ridge = np.ones(ones.shape[1])
        ridge[-1] = 0.0
        weights = np.ones(len(ones))
        return [np.linalg.inv(second(ones, weights, expit(_scores(ones, b)), ridge)) for b in self.coefficients]

    def probabilities(self, ones: Floats) -> Floats:
        """Probabilities [n, classes]."""
        scores = self.scores(ones).astype(np.float64)
        if self.classes == 2:
            second = expit(scores[:, 1])
            return np.stack([1 - second, second], axis=1)
        found = expit(scores) + 1e-300
        return found / found.sum(axis=1, keepdims=True)

    def predict_proba(self, x: Floats) -> Floats:
        """Probabilities [n, classes]."""
        return self.probabilities(with_ones(x))

    def predict(self, x: Floats) -> Floats:
        """Numbers of classes."""
        return self.scores(with_ones(x)).argmax(axis=1)
