"""The teachers' products as Triton kernels: what cuBLAS and cuDNN do badly for thousands of small networks.

Convolutions are implicit matrix products: patches are read from the image as they are needed and never written, which
saves most of the memory traffic and of the memory. The wide layer's products read each weight once, at the GPU's
bandwidth; its gradient is formed tile by tile and goes straight into Adam's update, so that it is never written either.
All sums are in single precision over TF32 products. `gpate.records.teachers.products` says what is computed; tests hold the
two to each other.
"""

# ruff: noqa: N803, N806
from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

_JIT: Any = triton.jit  # untyped there

_PROGRAMS = 256
"""About as many keep a GPU busy."""

_FEWEST = 8
"""Steps of a program at least: what it adds up has to be written, and added up again."""


@_JIT
def _patches(x, k, at, C: tl.constexpr, B: tl.constexpr, H: tl.constexpr, W: tl.constexpr, KERNEL: tl.constexpr):
    """Patch numbers [k, at]: input plane and tap k at output position `at`, zero outside the image."""
    OH: tl.constexpr = H // 2
    OW: tl.constexpr = W // 2
    plane, tap = k // (KERNEL * KERNEL), k % (KERNEL * KERNEL)
    image, i, j = at // (OH * OW), (at // OW) % OH, at % OW
    row = 2 * i[None, :] + (tap // KERNEL - KERNEL // 2)[:, None]
    column = 2 * j[None, :] + (tap % KERNEL - KERNEL // 2)[:, None]
    inside = (row >= 0) & (row < H) & (column >= 0) & (column < W)
    inside = inside & (plane < C)[:, None] & (at < B * OH * OW)[None, :]
    place = (plane * (B * H * W))[:, None] + (image * (H * W))[None, :] + row * W + column
    return tl.load(x + place, mask=inside, other=0.0)


@_JIT
def _forward(
    weight,
    x,
    out,
    maps: tl.constexpr,
    C: tl.constexpr,
    B: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    MAPS: tl.constexpr,
    AT: tl.constexpr,
    K: tl.constexpr,
    KERNEL: tl.constexpr,
):
    n = tl.program_id(0).to(tl.int64)
    TAPS: tl.constexpr = C * KERNEL * KERNEL
    COUNT: tl.constexpr = B * (H // 2) * (W // 2)
    at, m = tl.program_id(1) * AT + tl.arange(0, AT), tl.arange(0, MAPS)
    total = tl.zeros((MAPS, AT), dtype=tl.float32)
    for start in range(0, TAPS, K):
        k = start + tl.arange(0, K)
        kernel = (m < maps)[:, None] & (k < TAPS)[None, :]
        factor = tl.load(weight + n * maps * TAPS + m[:, None] * TAPS + k[None, :], mask=kernel, other=0.0)
        total += tl.dot(factor, _patches(x + n * C * B * H * W, k, at, C, B, H, W, KERNEL))
    target = out + n * maps * COUNT + m[:, None] * COUNT + at[None, :]
    tl.store(target, total, mask=(m < maps)[:, None] & (at < COUNT)[None, :])


@_JIT
def _for_weight(
    g,
    x,
    out,
    maps: tl.constexpr,
    C: tl.constexpr,
    B: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    MAPS: tl.constexpr,
    AT: tl.constexpr,
    K: tl.constexpr,
    KERNEL: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Of one part of all positions."""
    n, part = tl.program_id(0).to(tl.int64), tl.program_id(2)
    TAPS: tl.constexpr = C * KERNEL * KERNEL
    COUNT: tl.constexpr = B * (H // 2) * (W // 2)
    k, m = tl.program_id(1) * K + tl.arange(0, K), tl.arange(0, MAPS)
    total = tl.zeros((MAPS, K), dtype=tl.float32)
    for step in range(STEPS):
        at = (part * STEPS + step) * AT + tl.arange(0, AT)
        inside = (m < maps)[:, None] & (at < COUNT)[None, :]
        factor = tl.load(g + n * maps * COUNT + m[:, None] * COUNT + at[None, :], mask=inside, other=0.0)
        patches = _patches(x + n * C * B * H * W, k, at, C, B, H, W, KERNEL)
        total += tl.dot(factor, tl.trans(patches))
    target = out + (part * tl.num_programs(0) + n) * maps * TAPS + m[:, None] * TAPS + k[None, :]
    tl.store(target, total, mask=(m < maps)[:, None] & (k < TAPS)[None, :])


@_JIT
def _for_input(
    weight,
    g,
    out,
    maps: tl.constexpr,
    C: tl.constexpr,
    B: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    ROWS: tl.constexpr,
    AT: tl.constexpr,
    K: tl.constexpr,
):
    """A 3x3 convolution of the gradient to four phases of every input plane: even and odd rows and columns."""
    n = tl.program_id(0).to(tl.int64)
    OH: tl.constexpr = H // 2
    OW: tl.constexpr = W // 2
    COUNT: tl.constexpr = B * OH * OW
    at, r = tl.program_id(1) * AT + tl.arange(0, AT), tl.arange(0, ROWS)
    CHUNKS: tl.constexpr = (maps + K - 1) // K
    image, i, j = at // (OH * OW), (at // OW) % OH, at % OW
    total = tl.zeros((ROWS, AT), dtype=tl.float32)
    for step in range(9 * CHUNKS):
        shift, m = step // CHUNKS, (step % CHUNKS) * K + tl.arange(0, K)
        kernel = (r < 4 * C)[:, None] & (m < maps)[None, :]
        row, column = i + shift // 3 - 1, j + shift % 3 - 1
        place = ((n * 9 + shift) * 4 * C) * maps + r[:, None] * maps + m[None, :]
        factor = tl.load(weight + place, mask=kernel, other=0.0)
        inside = (at < COUNT) & (row >= 0) & (row < OH) & (column >= 0) & (column < OW)
        place = n * maps * COUNT + m[:, None] * COUNT + (image * (OH * OW) + row * OW + column)[None, :]
        near = tl.load(g + place, mask=(m < maps)[:, None] & inside[None, :], other=0.0)
        total += tl.dot(factor, near)
    phase, plane = r // C, r % C
    pixel = (image * (H * W) + 2 * i * W + 2 * j)[None, :] + ((phase // 2) * W + phase % 2)[:, None]
    target = out + n * C * B * H * W + (plane * (B * H * W))[:, None] + pixel
    tl.store(target, total, mask=(r < 4 * C)[:, None] & (at < COUNT)[None, :])


def _padded(size: int) -> int:
    return max(16, int(triton.next_power_of_2(size)))


def convolve(weight: Tensor, x: Tensor, kernel: int) -> Tensor:
    """[n, maps, c * kernel^2] and [n, c, b, h, w] -> [n, maps, b * h/2 * w/2]."""
    n, c, b, h, w = x.shape
    maps, count = weight.shape[1], b * (h // 2) * (w // 2)
    out = x.new_empty(n, maps, count)
    grid = (n, triton.cdiv(count, 128))
    _forward[grid](weight, x, out, maps, c, b, h, w, MAPS=_padded(maps), AT=128, K=32, KERNEL=kernel)
    return out


def convolve_for_weight(g: Tensor, x: Tensor, kernel: int) -> Tensor:
    """The weight's gradient, given the output's. Of few teachers, which would leave most of the GPU idle, positions are divided too."""
    n, c, b, h, w = x.shape
    maps, taps = g.shape[1], c * kernel * kernel
    k, at = min(64, _padded(taps)), 32
    tiles, steps = triton.cdiv(taps, k), triton.cdiv(b * (h // 2) * (w // 2), at)
    each = triton.cdiv(steps, min(max(1, _PROGRAMS // (n * tiles)), triton.cdiv(steps, _FEWEST)))
    parts = triton.cdiv(steps, each)
    out = x.new_empty(parts, n, maps, taps)
    _for_weight[n, tiles, parts](
        g,
        x,
        out,
        maps,
        c,
        b,
        h,
        w,
        MAPS=_padded(maps),
        AT=at,
        K=k,
        KERNEL=kernel,
        STEPS=each,
        num_warps=8 if k == 64 else 4,
        num_stages=2,
    )
    return out[0] if parts == 1 else out.sum(0)


@cache
def _phases(device: torch.device) -> Tensor:
    """Kernel rows [phase, shift]: input row 2 i + phase meets output row i - 1 + shift through row phase + 4 - 2 shift; row 5 is a
    zero below.
    """
    return torch.tensor([[4, 2, 0], [5, 3, 1]], device=device)


def convolve_for_input(weight: Tensor, g: Tensor, shape: torch.Size, kernel: int) -> Tensor:
    """The input's gradient, given the output's. For kernels of 5x5."""
    n, c, b, h, w = shape
    maps, count = g.shape[1], b * (h // 2) * (w // 2)
    taps = _phases(g.device)
    padded = F.pad(weight.view(n, maps, c, kernel, kernel), (0, 1, 0, 1))
    phases = padded[:, :, :, taps][..., taps]  # [n, maps, c, row phase, row shift, column phase, column shift]
    phases = phases.permute(0, 4, 6, 3, 5, 2, 1).contiguous()
    out = g.new_empty(shape)
    grid = (n, triton.cdiv(count, 128))
    _for_input[grid](phases, g, out, maps, c, b, h, w, ROWS=_padded(4 * c), AT=128, K=16, num_warps=4, num_stages=3)
    return out


@_JIT
def _activate(
    h,
    label,
    scale,
    shift,
    out,
    maps,
    batches,
    m,
    positions,
    leak,
    eps,
    NORM: tl.constexpr,
    M: tl.constexpr,
    P: tl.constexpr,
):
    plane, batch = tl.program_id(0).to(tl.int64), tl.program_id(1)
    r, p = tl.arange(0, M), tl.arange(0, P)
    inside = (r < m)[:, None] & (p < positions)[None, :]
    place = (plane * batches + batch) * m * positions + r[:, None] * positions + p[None, :]
    sample = ((plane // maps) * batches * m + batch * m + r) * maps + plane % maps
    value = tl.load(h + place, mask=inside, other=0.0) + tl.load(label + sample, mask=r < m, other=0.0)[:, None]
    if NORM:
        count = m * positions
        mean = tl.sum(tl.where(inside, value, 0.0)) / count
        centred = tl.where(inside, value - mean, 0.0)
        value = centred * tl.rsqrt(tl.sum(centred * centred) / count + eps) * tl.load(scale + plane)
    value += tl.load(shift + plane)
    tl.store(out + place, tl.where(value > 0, value, leak * value), mask=inside)


@_JIT
def _activate_backward(
    h,
    label,
    scale,
    shift,
    g,
    for_h,
    for_label,
    for_scale,
    for_shift,
    maps,
    batches,
    m,
    positions,
    leak,
    eps,
    NORM: tl.constexpr,
    M: tl.constexpr,
    P: tl.constexpr,
):
    plane, batch = tl.program_id(0).to(tl.int64), tl.program_id(1)
    r, p = tl.arange(0, M), tl.arange(0, P)
    inside = (r < m)[:, None] & (p < positions)[None, :]
    place = (plane * batches + batch) * m * positions + r[:, None] * positions + p[None, :]
    sample = ((plane // maps) * batches * m + batch * m + r) * maps + plane % maps
    value = tl.load(h + place, mask=inside, other=0.0) + tl.load(label + sample, mask=r < m, other=0.0)[:, None]
    slope = tl.load(g + place, mask=inside, other=0.0)
    if NORM:
        count = m * positions
        mean = tl.sum(tl.where(inside, value, 0.0)) / count
        centred = tl.where(inside, value - mean, 0.0)
        root = tl.rsqrt(tl.sum(centred * centred) / count + eps)
        hat, factor = centred * root, tl.load(scale + plane)
        slope = tl.where(hat * factor + tl.load(shift + plane) > 0, slope, leak * slope)
        along = tl.sum(slope * hat)
        tl.store(for_scale + plane * batches + batch, along)
        total = tl.sum(slope)
        tl.store(for_shift + plane * batches + batch, total)
        slope = tl.where(inside, factor * root * (slope - total / count - hat * along / count), 0.0)
    else:
        slope = tl.where(value + tl.load(shift + plane) > 0, slope, leak * slope)
        tl.store(for_shift + plane * batches + batch, tl.sum(slope))
    tl.store(for_h + place, slope, mask=inside)
    tl.store(for_label + sample, tl.sum(slope, axis=1), mask=r < m)


def _layout(h: Tensor, batches: int) -> tuple[tuple[int, int], tuple[int, int, int, int], dict[str, int]]:
    n, maps, samples, positions = h.shape
    m = samples // batches
    tile = {"M": int(triton.next_power_of_2(m)), "P": int(triton.next_power_of_2(positions))}
    warps = min(16, max(1, tile["M"] * tile["P"] // 512))
    return (n * maps, batches), (maps, batches, m, positions), {**tile, "num_warps": warps}


def activate(
    h: Tensor, label: Tensor, scale: Tensor | None, shift: Tensor, *, batches: int, leak: float, eps: float
) -> Tensor:
    """See `gpate.records.teachers.products.activation`."""
    grid, sizes, tile = _layout(h, batches)
    out = torch.empty_like(h)
    _activate[grid](
        h, label, shift if scale is None else scale, shift, out, *sizes, leak, eps, NORM=scale is not None, **tile
    )
    return out


def activate_backward(
    h: Tensor, label: Tensor, scale: Tensor | None, shift: Tensor, g: Tensor, *, batches: int, leak: float, eps: float
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Gradients of h, label, scale and shift, given the output's. The forward pass is done again: it is cheaper than keeping it."""
    grid, sizes, tile = _layout(h, batches)
    for_h, for_label = torch.empty_like(h), torch.empty_like(label)
    for_shift = h.new_empty(*shift.shape, batches)
    for_scale = for_shift if scale is None else torch.empty_like(for_shift)
    _activate_backward[grid](
        h,
        label,
        shift if scale is None else scale,
        shift,
        g,
        for_h,
        for_label,
        for_scale,
        for_shift,
        *sizes,
        leak,
        eps,
        NORM=scale is not None,
        **tile,
    )
    return for_h, for_label, None if scale is None else for_scale.sum(-1), for_shift.sum(-1)


@_JIT
def _dense(x, weight, out, s, inputs, outputs, POS: tl.constexpr, S: tl.constexpr, I: tl.constexpr, O: tl.constexpr):
    n = tl.program_id(0).to(tl.int64)
    o, r = tl.program_id(1) * O + tl.arange(0, O), tl.program_id(2) * S + tl.arange(0, S)
    total = tl.zeros((S, O), dtype=tl.float32)
    for start in range(0, inputs, I):
        i = start + tl.arange(0, I)
        left = tl.load(
            x + n * s * inputs + r[:, None] * POS + (i // POS * (s * POS) + i % POS)[None, :],
            mask=(r < s)[:, None] & (i < inputs)[None, :],
            other=0.0,
        )
        place = weight + n * inputs * outputs + i[:, None] * outputs + o[None, :]
        total += tl.dot(left, tl.load(place, mask=(i < inputs)[:, None] & (o < outputs)[None, :], other=0.0))
    target = out + n * s * outputs + r[:, None] * outputs + o[None, :]
    tl.store(target, total, mask=(r < s)[:, None] & (o < outputs)[None, :])


@_JIT
def _dense_for_input(
    g, weight, out, s, inputs, outputs, POS: tl.constexpr, S: tl.constexpr, I: tl.constexpr, O: tl.constexpr
):
    n = tl.program_id(0).to(tl.int64)
    i, r = tl.program_id(1) * I + tl.arange(0, I), tl.program_id(2) * S + tl.arange(0, S)
    total = tl.zeros((S, I), dtype=tl.float32)
    for start in range(0, outputs, O):
        o = start + tl.arange(0, O)
        left = tl.load(
            g + n * s * outputs + r[:, None] * outputs + o[None, :],
            mask=(r < s)[:, None] & (o < outputs)[None, :],
            other=0.0,
        )
        place = weight + n * inputs * outputs + i[:, None] * outputs + o[None, :]
        right = tl.load(place, mask=(i < inputs)[:, None] & (o < outputs)[None, :], other=0.0)
        total += tl.dot(left, tl.trans(right))
    target = out + n * s * inputs + r[:, None] * POS + (i // POS * (s * POS) + i % POS)[None, :]
    tl.store(target, total, mask=(r < s)[:, None] & (i < inputs)[None, :])


@_JIT
def _dense_adam(
    x,
    g,
    weight,
    first,
    second,
    s,
    inputs,
    outputs,
    rate,
    root,
    beta1,
    beta2,
    eps,
    POS: tl.constexpr,
    S: tl.constexpr,
    I: tl.constexpr,
    O: tl.constexpr,
):
    n = tl.program_id(0).to(tl.int64)
    i, o = tl.program_id(1) * I + tl.arange(0, I), tl.program_id(2) * O + tl.arange(0, O)
    inside = (i < inputs)[:, None] & (o < outputs)[None, :]
    place = n * inputs * outputs + i[:, None] * outputs + o[None, :]
    # asked for first: they come from memory while the gradient is formed
    old, m, v = (
        tl.load(weight + place, mask=inside),
        tl.load(first + place, mask=inside),
        tl.load(second + place, mask=inside),
    )
    gradient = tl.zeros((I, O), dtype=tl.float32)
    for start in range(0, s, S):
        r = start + tl.arange(0, S)
        left = tl.load(
            x + n * s * inputs + r[:, None] * POS + (i // POS * (s * POS) + i % POS)[None, :],
            mask=(r < s)[:, None] & (i < inputs)[None, :],
            other=0.0,
        )
        near = g + n * s * outputs + r[:, None] * outputs + o[None, :]
        right = tl.load(near, mask=(r < s)[:, None] & (o < outputs)[None, :], other=0.0)
        gradient += tl.dot(tl.trans(left), right)
    m = beta1 * m + (1 - beta1) * gradient
    v = beta2 * v + (1 - beta2) * gradient * gradient
    change = rate * m / (tl.sqrt(v) / root + eps)
    tl.store(weight + place, old - change, mask=inside)
    tl.store(first + place, m, mask=inside)
    tl.store(second + place, v, mask=inside)


def dense(x: Tensor, weight: Tensor) -> Tensor:
    """[n, maps, s, positions] and [n, maps * positions, outputs] -> [n, s, outputs]."""
    n, _, s, positions = x.shape
    inputs, outputs = weight.shape[1:]
    out = x.new_empty(n, s, outputs)
    size, across = min(32, _padded(s)), min(256, _padded(outputs))
    grid = (n, triton.cdiv(outputs, across), triton.cdiv(s, size))
    _dense[grid](x, weight, out, s, inputs, outputs, POS=positions, S=size, I=32, O=across, num_stages=3)
    return out


def dense_for_input(g: Tensor, weight: Tensor, shape: torch.Size) -> Tensor:
    """The input's gradient, given the output's."""
    n, _, s, positions = shape
    inputs, outputs = weight.shape[1:]
    out = g.new_empty(shape)
    size = min(32, _padded(s))
    grid = (n, triton.cdiv(inputs, 64), triton.cdiv(s, size))
    _dense_for_input[grid](g, weight, out, s, inputs, outputs, POS=positions, S=size, I=64, O=64, num_stages=3)
    return out


def dense_adam(
    x: Tensor,
    g: Tensor,
    weight: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    rate: float,
    betas: tuple[float, float],
    eps: float,
    step: int,
) -> None:
    """Adam's update of a weight whose gradient is x^T g, in place."""
    n, _, s, positions = x.shape
    inputs, outputs = weight.shape[1:]
    grid = (n, triton.cdiv(inputs, 32), triton.cdiv(outputs, 128))
    bias1, bias2 = 1 - betas[0] ** step, 1 - betas[1] ** step
    numbers = (rate / bias1, bias2**0.5, *betas, eps)
    size = min(32, _padded(s))
    _dense_adam[grid](x, g, weight, first, second, s, inputs, outputs, *numbers, POS=positions, S=size, I=32, O=128)
