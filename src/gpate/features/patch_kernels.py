"""What is done to the responses of patches, as Triton kernels: each response is read once forward, and read and written once backward.

torch needs eight passes forward and some twenty backward, bound by memory. `gpate.features.patches` defines the function; a test
compares the two. A program sees one record only, so that none depends on its place.
"""

# ruff: noqa: N803
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_JIT: Any = triton.jit  # untyped there
_PLACES = 64
_FILTERS = 32


@_JIT
def _forward(
    responses, contrast, fields, out, threshold, filters, places, G: tl.constexpr, F: tl.constexpr, P: tl.constexpr
):
    """Of one record and some filters: how far responses are beyond the threshold on either side, averaged over each field."""
    n = tl.program_id(0).to(tl.int64)
    f, g = tl.program_id(1) * F + tl.arange(0, F), tl.arange(0, G)
    above, below = tl.zeros((F, G), dtype=tl.float32), tl.zeros((F, G), dtype=tl.float32)
    for start in range(0, places, P):
        p = start + tl.arange(0, P)
        inside = (f < filters)[:, None] & (p < places)[None, :]
        r = tl.load(responses + (n * filters + f)[:, None] * places + p[None, :], mask=inside, other=0.0)
        r = r / tl.load(contrast + n * places + p, mask=p < places, other=1.0)[None, :]
        field = tl.load(fields + p[:, None] * G + g[None, :], mask=(p < places)[:, None], other=0.0)
        above += tl.dot(tl.maximum(r - threshold, 0.0), field, input_precision="ieee")
        below += tl.dot(tl.maximum(-r - threshold, 0.0), field, input_precision="ieee")
    place = (n * 2 * filters + f)[:, None] * G + g[None, :]
    tl.store(out + place, above, mask=(f < filters)[:, None])
    tl.store(out + place + filters * G, below, mask=(f < filters)[:, None])


@_JIT
def _backward(
    responses,
    contrast,
    fields,
    gradient,
    of_responses,
    of_contrast,
    threshold,
    filters,
    places,
    G: tl.constexpr,
    F: tl.constexpr,
    P: tl.constexpr,
):
    """Of one record and some places, all filters."""
    n = tl.program_id(0).to(tl.int64)
    p, g = tl.program_id(1) * P + tl.arange(0, P), tl.arange(0, G)
    c = tl.load(contrast + n * places + p, mask=p < places, other=1.0)
    field = tl.load(fields + p[None, :] * G + g[:, None], mask=(p < places)[None, :], other=0.0)
    total = tl.zeros((P,), dtype=tl.float32)
    for start in range(0, filters, F):
        f = start + tl.arange(0, F)
        inside = (f < filters)[:, None] & (p < places)[None, :]
        at = (n * filters + f)[:, None] * places + p[None, :]
        r = tl.load(responses + at, mask=inside, other=0.0) / c[None, :]
        place = (n * 2 * filters + f)[:, None] * G + g[None, :]
        above = tl.load(gradient + place, mask=(f < filters)[:, None], other=0.0)
        below = tl.load(gradient + place + filters * G, mask=(f < filters)[:, None], other=0.0)
        slope = tl.where(r > threshold, tl.dot(above, field, input_precision="ieee"), 0.0)
        slope = tl.where(r < -threshold, -tl.dot(below, field, input_precision="ieee"), slope) / c[None, :]
        tl.store(of_responses + at, slope, mask=inside)
        total -= tl.sum(slope * r, 0)
    tl.store(of_contrast + n * places + p, total, mask=p < places)


def forward(responses: Tensor, contrast: Tensor, fields: Tensor, threshold: float) -> Tensor:
    """[m, filters, places], [m, places], [places, grid^2] -> [m, 2 filters, grid^2]."""
    m, filters, places = responses.shape
    out = responses.new_empty(m, 2 * filters, fields.shape[1])
    sizes = (threshold, filters, places)
    grid = (m, triton.cdiv(filters, _FILTERS))
    _forward[grid](responses, contrast, fields, out, *sizes, G=fields.shape[1], F=_FILTERS, P=_PLACES)
    return out


def backward(
    gradient: Tensor, responses: Tensor, contrast: Tensor, fields: Tensor, threshold: float
) -> tuple[Tensor, Tensor]:
    """Gradients of the responses and the contrast."""
    m, filters, places = responses.shape
    of_responses, of_contrast = torch.empty_like(responses), torch.empty_like(contrast)
    grid = (m, triton.cdiv(places, _PLACES))
    _backward[grid](
        responses,
        contrast,
        fields,
        gradient,
        of_responses,
        of_contrast,
        threshold,
        filters,
        places,
        G=fields.shape[1],
        F=_FILTERS,
        P=_PLACES,
    )
    return of_responses, of_contrast
