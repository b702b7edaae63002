r"""What discriminators minimise, a number for each teacher.

A loss is given `scores`, which takes batches [teachers, m, dims] that share their labels to scores [teachers, batches, m], and
the real and fake batch of a slice of teachers. Scores that are to be differentiated twice are asked for with `twice=True`.

- `logistic`: the usual GAN's, log(1 + e^-D(real)) + log(1 + e^D(fake)).
- `NoisyLogistic`: the same of records with public noise, plus weight / 2 times the mean of |gradient of D|^2 over them (Mescheder et
  al. 2018), so that teachers with few records do not tell them from the student's with certainty.
- `Wasserstein`: D(fake) - D(real) + weight (|gradient of D| - 1)^2, the gradient taken at random points between real and fake
  records (Gulrajani et al. 2017). It is differentiated twice, so it needs a network without batch normalisation. Those points
  are scored apart: in one batch with the others, both derivatives would be worked out for all three and thrown away for two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.errors import require_positive

Scores = Callable[..., Tensor]
Loss = Callable[[Scores, Tensor, Tensor, slice], Tensor]


def logistic(scores: Scores, real: Tensor, fake: Tensor, part: slice) -> Tensor:
    """The usual GAN's loss: [teachers]."""
    return _logistic_of(scores(real, fake))


def _logistic_of(logits: Tensor) -> Tensor:
    """`logistic` of logits [teachers, 2, m], of real and fake records."""
    return F.softplus(-logits[:, 0]).mean(1) + F.softplus(logits[:, 1]).mean(1)


@dataclass(frozen=True, kw_only=True)
class Wasserstein:
    """The Wasserstein loss with a gradient penalty.

    Attributes:
        mixing: where between real (1) and fake (0) the penalty looks: [teachers, m, 1], for all teachers at once, so that it does
            not matter in which slices they are worked through.
        weight: of the penalty; 10 in the paper.
    """

    mixing: Tensor
    weight: float = 10.0

    def __post_init__(self) -> None:
        require_positive("weight", self.weight)

    def __call__(self, scores: Scores, real: Tensor, fake: Tensor, part: slice) -> Tensor:
        """[teachers]."""
        share = self.mixing[part].to(real)
        between = (share * real + (1 - share) * fake).detach().requires_grad_()
        (slope,) = torch.autograd.grad(scores(between, twice=True).sum(), between, create_graph=True)
        penalty = (slope.square().sum(2) + _TINY).sqrt().sub(1).square()
        values = scores(real, fake)
        return values[:, 1].mean(1) - values[:, 0].mean(1) + self.weight * penalty.mean(1)


@dataclass(frozen=True, kw_only=True)
class NoisyLogistic:
    """The usual GAN's loss of records with public noise, with a penalty on slopes.

    Attributes:
        noise: of real and fake records: [teachers, 2, m, dims], for all teachers at once.
        penalty: weight of the squared slope at the noisy records.
    """

    noise: Tensor
    penalty: float

    def __call__(self, scores: Scores, real: Tensor, fake: Tensor, part: slice) -> Tensor:
        """[teachers]."""
        noise = self.noise[part].to(real)
        points = torch.cat([real + noise[:, 0], fake + noise[:, 1]], 1).detach().requires_grad_()
        here = points.split(real.shape[1], 1)
        values = scores(*here, twice=True)
        (slope,) = torch.autograd.grad(values.sum(), points, create_graph=True)
        return _logistic_of(values) + self.penalty / 2 * slope.square().sum(2).mean(1)


_TINY = 1e-12
"""Under the root, whose slope at zero is infinite."""
