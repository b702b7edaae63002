"""Match the gradients of a linear classifier: those of the student's images should be those of the records.

A labeller (`gpate.generators.labeller`) is trained by released gradients: in step t, with weights W_t, the mean over all records of
phi(x) r_t(x, c)^T, where r_t = softmax(phi(x) W_t) - e_c is what the model of that step gets wrong about a record of class c. Each is
a mean of a public function of a record and its class, so a student can match it, as it matches class means, and the
release is used twice at no further cost. A student that matches all of them would train the same labeller: its images
of a class then show what the labeller knows the class by.

Gradients of single steps are noisy. They are averaged over stages, the last half of the steps, the last half of those before it and
so on, and r over the models of a stage likewise, so that what is matched is exactly what was released.

Zhao, Mopuri and Bilen (2021) match gradients of networks to condense a data set; there they are without noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from gpate.features import FeatureMap
from gpate.generators.matching import GroupMeans
from gpate.generators.student import ReleasedTensor


def stages(steps: int) -> list[slice]:
    """Of so many steps, the first stage first.

    >>> stages(9)
    [slice(0, 1, None), slice(1, 2, None), slice(2, 4, None), slice(4, 9, None)]
    """
    found, end = [], steps
    while end:
        found.append(slice(end // 2, end))
        end //= 2
    return found[::-1]


@dataclass(frozen=True, kw_only=True)
class MeanGradients:
    """Mean gradients of the stages of a linear classifier's training.

    Attributes:
        features: phi, the inputs of the classifier.
        models: of each stage, the weights that its gradients were computed with: [steps, dims, classes], where the student is.
        proportions: of the classes among the records, as released; likewise.
        means: released, [stages, classes * dims].
        weights: [stages].
    """

    features: FeatureMap
    models: Sequence[Tensor]
    proportions: Tensor
    means: ReleasedTensor
    weights: Tensor

    def batch(self, images: Tensor, labels: Tensor) -> GroupMeans:
        """Of each stage; an image counts by its class's proportion."""
        phi, classes = self.features(images), len(self.proportions)
        counts = classes * self.proportions[labels]
        own = F.one_hot(labels, classes)
        residuals = []
        for models in self.models:
            wrong = torch.einsum("md,sdc->smc", phi, models).softmax(2) - own
            wrong = wrong / torch.linalg.vector_norm(wrong, dim=2, keepdim=True).clamp(min=1.0)  # as at the gate
            residuals.append(wrong.mean(0) * counts[:, None])
        r = torch.stack(residuals)
        mean = (r.transpose(1, 2) @ phi).flatten(1) / len(phi)
        return GroupMeans(mean, lambda: (r.square().sum(2) * phi.square().sum(1)).mean(1), len(phi))
