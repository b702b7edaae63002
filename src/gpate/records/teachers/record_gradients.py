"""Gradients of one discriminator, record by record: what DP-SGD clips.

Every record is given a teacher of its own, all of them with the same weights. The gradient with respect to the weights of
its teacher is then the record's own, and all of them come from one pass of the ensemble's tensor program. The network has no
batch normalisation, and a batch holds one record, so a record's gradient cannot depend on the others.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.records.teachers.discriminators import TeacherNetwork

_ROW = 64
"""Numbers in a row: a whole number of a processor's vectors, whatever their width."""


def record_gradients(
    network: TeacherNetwork,
    weights: Mapping[str, Tensor],
    records: Tensor,
    labels: Tensor,
    *,
    real: bool,
    wasserstein: bool,
) -> Tensor:
    """The gradient of each record's loss, or of the sum over each group of records, with respect to all weights, flat: [m, parameters].

    Args:
        network: without batch normalisation.
        weights: of one discriminator, [1, ...] each.
        records: [m, dims], or in groups [m, each, dims].
        labels: [m], or [m, each].
        real: whether the discriminator should take them for real.
        wasserstein: the score itself is the loss; otherwise the logistic loss.
    """
    m = len(records)
    groups, of_groups = (records, labels) if records.ndim == 3 else (records[:, None], labels[:, None])
    own = {name: weight.detach().expand(m, *weight.shape[1:]).requires_grad_() for name, weight in weights.items()}
    y = F.one_hot(of_groups, weights["out.label"].shape[1]).to(records.dtype)
    scores = network.logits(own, groups[:, None], y[:, None])
    losses = (-scores if real else scores).view(m, -1)
    if not wasserstein:
        # a row for each: in a vector of all the last bits of a record's slope would depend on its place among the others
        each = losses.shape[1]
        losses = F.softplus(F.pad(losses, (0, -each % _ROW)))[:, :each]
    total = losses.sum()
    gradients = torch.autograd.grad(total, [own[name] for name in weights])
    return torch.cat([gradient.flatten(1) for gradient in gradients], 1)
