"""The paper's own classifiers of a table: what `paper mean` is the mean of. A plug-in of `gpate evaluate`.

| name | settings (G-PATE, appendix E) |
|---|---|
| LR-L1 | L1 penalty (liblinear's objective); on Kaggle Credit a fraud weighs 350 times |
| AdaBoost | of logistic regressions (L2), 200 |
| bagging | of logistic regressions (L2), 100 |
| MLP | tanh, three layers of 18, Adam; batches of 500 and 30 epochs, on which the paper is silent |

The ensembles are 600 fits for one table and its ceiling. Each fit starts where the last one ended (`gpate.evaluation.logistic`): a
bootstrap sample moves the optimum by very little.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpate.evaluation.logistic import LogisticRegression, with_ones
from gpate.evaluation.table_classifiers import Classifier, Setting

Floats = NDArray[Any]

CREDIT_WEIGHT = 350.0
"""Of a fraud in the paper's logistic regression on Kaggle Credit (G-PATE, appendix E)."""


@dataclass(kw_only=True)
class Bagging:
    """Bootstrap aggregation: the mean of the probabilities of fits to bootstrap samples, which are counts as weights."""

    classes: int
    estimators: int = 100
    seed: int = 0
    members: list[LogisticRegression] = field(default_factory=list, repr=False)

    def fit(self, x: Floats, y: Floats) -> Self:
        """Fits to rows x, labels y."""
        ones, rng = with_ones(x), np.random.default_rng(self.seed)
        whole = LogisticRegression(classes=self.classes).fit_ones(ones, y, np.ones(len(x)))
        metrics = whole.metrics(ones)
        for _ in range(self.estimators):
            counts = np.bincount(rng.integers(0, len(x), len(x)), minlength=len(x)).astype(np.float64)
            member = LogisticRegression(classes=self.classes, coefficients=whole.coefficients)
            self.members.append(member.fit_ones(ones, y, counts, metrics))
        return self

    def predict_proba(self, x: Floats) -> Floats:
        """Probabilities [n, classes]."""
        ones = with_ones(x)
        return np.asarray(sum(member.probabilities(ones) for member in self.members) / len(self.members))


@dataclass(kw_only=True)
class AdaBoost:
    """Adaptive boosting, the algorithm SAMME (Zhu et al. 2009) as scikit-learn has it: row weights sum to 1.

    It ends early when a member does no better than chance.
    """

    classes: int
    estimators: int = 200
    members: list[LogisticRegression] = field(default_factory=list, repr=False)
    votes: list[float] = field(default_factory=list, repr=False)

    def fit(self, x: Floats, y: Floats) -> Self:
        """Fits to rows x, labels y."""
        ones, weights, last = with_ones(x), np.full(len(x), 1.0 / len(x)), None
        for _ in range(self.estimators):
            member = LogisticRegression(classes=self.classes, coefficients=last).fit_ones(ones, y, weights)
            wrong = member.scores(ones).argmax(axis=1) != y
            error, last = float(weights[wrong].sum()), member.coefficients
            if error >= 1 - 1 / self.classes and self.members:
                break
            self.members.append(member)
            if error <= 0 or error >= 1 - 1 / self.classes:
                self.votes.append(1.0)
                break
            self.votes.append(float(np.log((1 - error) / error) + np.log(self.classes - 1)))
            weights = weights * np.exp(self.votes[-1] * wrong)
            weights /= weights.sum()
        return self

    def predict_proba(self, x: Floats) -> Floats:
        """Probabilities [n, classes], by the vote."""
        ones, total = with_ones(x), np.zeros((len(x), self.classes))
        for member, vote in zip(self.members, self.votes, strict=True):
            total[np.arange(len(x)), member.scores(ones).argmax(axis=1)] += vote
        decision = (self.classes * total / sum(self.votes) - 1) / (self.classes - 1)  # +1 for the winner, -1/(K-1) else
        found = np.exp(decision / (1 if self.classes > 2 else 0.5))
        return np.asarray(found / found.sum(axis=1, keepdims=True))


def _lr_l1(s: Setting) -> LogisticRegression:
    weight = CREDIT_WEIGHT if s.benchmark == "credit" else 1.0
    return LogisticRegression(classes=s.classes, penalty="l1", class_weight=(1.0, weight) if s.classes == 2 else ())


def _adaboost(s: Setting) -> AdaBoost:
    return AdaBoost(classes=s.classes)


def _bagging(s: Setting) -> Bagging:
    return Bagging(classes=s.classes, seed=s.seed)


def _mlp(s: Setting) -> Any:
    from sklearn.neural_network import MLPClassifier  # type: ignore[import-untyped,unused-ignore]

    batch = min(500, s.rows)
    return MLPClassifier((18, 18, 18), activation="tanh", batch_size=batch, max_iter=30, random_state=s.seed)


PAPER_CLASSIFIERS = (
    Classifier(name="LR-L1", family="paper", build=_lr_l1, cost=1),
    Classifier(name="AdaBoost", family="paper", build=_adaboost, cost=2),
    Classifier(name="bagging", family="paper", build=_bagging, seeded=True, cost=6),
    Classifier(name="MLP", family="paper", build=_mlp, seeded=True, cost=5),
)
