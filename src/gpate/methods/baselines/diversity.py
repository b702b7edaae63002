"""Moves the student's records of one class away from each other: mode seeking (Mao et al. 2019).

A discriminator that noise has made slow does not notice in time that a class has become one picture. This looks at the student's records
only, so it is post-processing.

    >>> move = apart(torch.tensor([[0.0, 0.2], [0.0, 0.1], [1.0, 0.5]]), torch.tensor([0, 0, 1]))
    >>> move.sign()
    tensor([[ 0.,  1.],
            [ 0., -1.],
            [ 0.,  0.]])
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_FAR = 0.36
"""Records that differ by so much in a number, in the root mean square, are far enough from each other."""

_NEAR = 1e-3
"""Added to a length that is divided by."""


def apart(records: Tensor, labels: Tensor) -> Tensor:
    """For each record in [0, 1] the mean of the directions away from up to two others of its class, shorter the farther they are."""
    order = torch.argsort(labels, stable=True)
    first, second = order[:-1], order[1:]
    same = labels[first] == labels[second]
    first, second = first[same], second[same]
    difference = records[first] - records[second]
    length = difference.norm(dim=1, keepdim=True)
    far = _FAR * math.sqrt(records.shape[1])
    push = difference * ((1 - length / far).clamp(min=0.0) / (length + _NEAR) / 2)
    out = torch.zeros_like(records)
    out[first] += push  # no place occurs twice
    out[second] -= push
    return out
