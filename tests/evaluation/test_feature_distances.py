"""Frechet distance, Inception Score, precision/recall/density/coverage and nearest neighbours against closed forms and
slow references."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch

from gpate.errors import NotComputable
from gpate.evaluation.feature_distances import Moments, frechet, inception_score, moments, prdc
from gpate.evaluation.memorisation import nearest


def normal(seed: int, n: int, d: int) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def test_frechet_of_two_gaussians_that_commute_is_known_exactly() -> None:
    """Diagonal covariances: the sum of squared differences of means and of standard deviations."""
    a = Moments(mean=torch.tensor([1.0, -2.0]).double(), covariance=torch.diag(torch.tensor([4.0, 9.0])).double())
    b = Moments(mean=torch.tensor([0.0, 1.0]).double(), covariance=torch.diag(torch.tensor([1.0, 0.0])).double())
    assert frechet(a, b) == pytest.approx((1 + 9) + (2 - 1) ** 2 + (3 - 0) ** 2, abs=1e-12)
    assert frechet(a, a) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("count", [40, 8])
def test_frechet_agrees_with_a_general_matrix_root(count: int) -> None:
    """Also with fewer records than features, where covariances are singular."""
    x, y = normal(0, count, 20), normal(1, count, 20) @ normal(2, 20, 20) / 4 + 0.3
    a, b = moments(x), moments(y)
    np.testing.assert_allclose(a.covariance, np.cov(x.double().numpy(), rowvar=False), atol=1e-12)
    shift = np.eye(20) * (0 if count > 20 else 1e-12)
    root = scipy.linalg.sqrtm(a.covariance.numpy() @ b.covariance.numpy() + shift).real
    expected = float((a.mean - b.mean).square().sum() + a.covariance.trace() + b.covariance.trace()) - 2 * root.trace()
    assert frechet(a, b) == pytest.approx(expected, rel=1e-4 if count < 20 else 1e-9)
    assert frechet(a, b) == pytest.approx(frechet(b, a), rel=1e-6)


def test_moments_refuse_what_has_none() -> None:
    with pytest.raises(NotComputable, match="2 records"):
        moments(torch.zeros(1, 3))
    with pytest.raises(NotComputable, match="not finite"):
        moments(torch.tensor([[0.0], [float("nan")]]))


def test_inception_score_of_the_extremes() -> None:
    """Sure of every image, all classes alike: the number of classes. The same answer for all: 1."""
    assert inception_score(torch.eye(7).repeat(5, 1)) == pytest.approx(7)
    assert inception_score(torch.tensor([[0.2, 0.8]]).repeat(9, 1)) == pytest.approx(1)
    assert inception_score(torch.tensor([[1.0, 0.0]]).repeat(9, 1)) == pytest.approx(1)


def test_agreement_with_torchmetrics() -> None:
    fids = pytest.importorskip("torchmetrics.image.fid")
    inceptions = pytest.importorskip("torchmetrics.image.inception")

    class Flat(torch.nn.Module):
        num_features = 12

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1)

    real, fake = normal(0, 60, 12).view(60, 3, 2, 2), normal(1, 50, 12).view(50, 3, 2, 2) * 1.5 + 0.2
    fid = fids.FrechetInceptionDistance(feature=Flat(), normalize=True).set_dtype(torch.float64)
    fid.update(real, real=True)
    fid.update(fake, real=False)
    ours = frechet(moments(real.flatten(1)), moments(fake.flatten(1)))
    assert ours == pytest.approx(float(fid.compute()), rel=1e-4)

    score = inceptions.InceptionScore(feature=Flat(), splits=1)
    score.update(fake)
    assert inception_score(fake.flatten(1).softmax(1)) == pytest.approx(float(score.compute()[0]), rel=1e-4)


def slow_prdc(real: np.ndarray, fake: np.ndarray, k: int) -> dict[str, float]:
    """Straight from the definitions, one pair at a time."""

    def radius(points: np.ndarray, i: int) -> float:
        return sorted(np.linalg.norm(points - points[i], axis=1))[k]

    real_radii = [radius(real, i) for i in range(len(real))]
    fake_radii = [radius(fake, j) for j in range(len(fake))]
    gaps = np.array([[np.linalg.norm(r - f) for f in fake] for r in real])
    return {
        "precision": np.mean([any(gaps[i, j] < real_radii[i] for i in range(len(real))) for j in range(len(fake))]),
        "recall": np.mean([any(gaps[i, j] < fake_radii[j] for j in range(len(fake))) for i in range(len(real))]),
        "density": sum(gaps[i, j] < real_radii[i] for i in range(len(real)) for j in range(len(fake))) / k / len(fake),
        "coverage": np.mean([any(gaps[i, j] < real_radii[i] for j in range(len(fake))) for i in range(len(real))]),
    }


def test_prdc_agrees_with_its_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpate.evaluation.feature_distances._CHUNK", 300)  # several chunks
    real, fake = normal(0, 41, 3), normal(1, 57, 3) * 0.7 + 0.4
    expected = slow_prdc(real.double().numpy(), fake.double().numpy(), 3)
    assert prdc(real, fake, k=3) == pytest.approx(expected, abs=1e-9)
    assert 0 < expected["recall"] < 1
    assert 0 < expected["coverage"] < 1


def test_prdc_of_a_set_against_itself_and_of_a_constant() -> None:
    real = normal(0, 300, 8)
    found = prdc(real, real)
    assert (found["precision"], found["recall"], found["coverage"]) == (1, 1, 1)
    stuck = prdc(real, real.mean(0, keepdim=True).expand(300, -1))
    assert stuck["recall"] == 0
    with pytest.raises(NotComputable, match="more than 5"):
        prdc(real, real[:5])


def test_nearest_is_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bytes too, and over several chunks of points."""
    monkeypatch.setattr("gpate.evaluation.memorisation._CHUNK", 7)
    points = torch.randint(0, 256, (50, 12), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    queries = torch.cat([points[[49, 3]], 255 - points[:20]])
    gaps = torch.cdist(queries.double(), points.double())
    distances, index = nearest(queries, points)
    assert index.tolist() == gaps.argmin(1).tolist()
    assert distances[:2].tolist() == [0, 0]
    torch.testing.assert_close(distances.double(), gaps.min(1).values, rtol=1e-6, atol=0)
