"""The fast solver is held to scikit-learn's, which is slow and obvious here."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import AdaBoostClassifier
from sklearn.linear_model import LogisticRegression as Slow
from sklearn.metrics import log_loss

from gpate.evaluation.logistic import LogisticRegression
from gpate_research.paper_classifiers import AdaBoost, Bagging


def rows(n: int = 600, d: int = 6, seed: int = 0, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)).astype(np.float32)
    x[:, -2] = x[:, -1] > 0  # a flag that depends on another column
    risk = x[:, 0] - 0.5 * x[:, 1] + 0.3 * x[:, -2] + rng.logistic(size=n) * 0.7 - 0.8
    return x, np.searchsorted(np.quantile(risk, np.linspace(0, 1, classes + 1)[1:-1]), risk)


@pytest.mark.parametrize("seed", range(3))
def test_l2_is_scikit_learns_with_weights(seed: int) -> None:
    x, y = rows(seed=seed)
    weights = np.random.default_rng(seed).exponential(size=len(x))
    slow = Slow(tol=1e-10, max_iter=5000).fit(x.astype(np.float64), y, sample_weight=weights)
    fast = LogisticRegression(classes=2).fit(x, y, weights)
    assert fast.coefficients is not None
    np.testing.assert_allclose(fast.coefficients[0], [*slow.coef_[0], slow.intercept_[0]], atol=2e-3)
    np.testing.assert_allclose(fast.predict_proba(x), slow.predict_proba(x), atol=1e-3)


@pytest.mark.filterwarnings("ignore:.*penalty")
@pytest.mark.parametrize("weight", [1.0, 350.0])
def test_l1_reaches_liblinears_objective_with_class_weights(weight: float) -> None:
    x, y = rows(n=900)
    keep = (y == 0) | (np.arange(len(y)) % 10 == 0)  # a rarer class
    x, y = x[keep], y[keep]
    slow = Slow(penalty="l1", solver="liblinear", class_weight={0: 1, 1: weight}, tol=1e-8, max_iter=5000)
    slow.fit(x.astype(np.float64), y)
    fast = LogisticRegression(classes=2, penalty="l1", class_weight=(1.0, weight)).fit(x, y)
    assert fast.coefficients is not None
    theirs, ours = np.r_[slow.coef_[0], slow.intercept_], fast.coefficients[0]

    def objective(b: np.ndarray) -> float:
        z = x.astype(np.float64) @ b[:-1] + b[-1]
        loss = np.where(y == 1, weight, 1.0) @ (np.logaddexp(0, z) - y * z)
        return float(loss + np.abs(b).sum())

    assert objective(ours) <= objective(theirs) * (1 + 1e-4)
    np.testing.assert_allclose(fast.predict_proba(x), slow.predict_proba(x), atol=5e-3)


def test_adaboost_is_scikit_learns() -> None:
    x, y = rows(n=400)
    slow = AdaBoostClassifier(Slow(tol=1e-10, max_iter=5000), n_estimators=12).fit(x.astype(np.float64), y)
    fast = AdaBoost(classes=2, estimators=12).fit(x, y)
    assert len(fast.members) == len(slow.estimators_)
    np.testing.assert_allclose(fast.votes, slow.estimator_weights_[: len(fast.votes)], atol=0.03)
    theirs = slow.decision_function(x)
    ours = np.log(fast.predict_proba(x)[:, 1] / fast.predict_proba(x)[:, 0])
    assert np.corrcoef(theirs, ours)[0, 1] > 0.999


def test_bagging_is_the_mean_of_fits_to_its_bootstrap_samples() -> None:
    x, y = rows(n=500)
    fast = Bagging(classes=2, estimators=5, seed=3).fit(x, y)
    rng, slow = np.random.default_rng(3), np.zeros((len(x), 2))
    for _ in range(5):
        chosen = rng.integers(0, len(x), len(x))
        slow += Slow(tol=1e-10, max_iter=5000).fit(x[chosen].astype(np.float64), y[chosen]).predict_proba(x) / 5
    np.testing.assert_allclose(fast.predict_proba(x), slow, atol=2e-3)


@pytest.mark.parametrize("build", [LogisticRegression, AdaBoost, Bagging])
def test_several_classes(build: type) -> None:
    x, y = rows(n=900, classes=3)
    options = {} if build is LogisticRegression else {"estimators": 10}
    model = build(classes=3, **options).fit(x, y)
    found = model.predict_proba(x)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    slow = Slow(max_iter=1000).fit(x, y)
    assert np.mean(found.argmax(axis=1) == y) > slow.score(x, y) - 0.06
    if build is not AdaBoost:
        assert log_loss(y, found) < log_loss(y, slow.predict_proba(x)) + 0.05
