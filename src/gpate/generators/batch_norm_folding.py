"""An image generator with batch normalisation folded into its weights, for speed.

With fixed normalisation statistics every layer of `ImageGenerator` is linear up to the leaky ReLU: scale and shift
are folded into the layer's weights, and the label's contribution is a table with one entry per class, border effects
included. The remaining products have sizes suited to tensor cores, in bfloat16 if asked for; what follows them is one
pass each, by the kernels of `gpate.generators.fold_kernels` on a GPU with Triton. Used for the teachers' synthetic
records on a GPU; nothing that is released is computed with it.

    >>> from gpate.generators import GeneratorSpec, Student
    >>> spec = GeneratorSpec(kind="image", channels=1, height=28, width=28, classes=10)
    >>> network = Student(spec, init=torch.Generator().manual_seed(0)).network.eval()
    >>> folded = FoldedGenerator(network, network.state_dict(), dtype=torch.float32)
    >>> z, labels = torch.rand(4, spec.latent), torch.arange(4)
    >>> bool((folded(z, labels) - network(z, labels)).abs().max() < 1e-4)
    True
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.generators.generator_spec import cropped
from gpate.generators.networks import LEAK, ImageGenerator, phases
from gpate.torch_utils import has_triton, kernel_module

_kernels = partial(kernel_module, "gpate.generators.fold_kernels")


class FoldedGenerator:
    """Latents [m, latent] and labels [m] -> records [m, dims].

    Args:
        network: an image generator, for its layout.
        state: its weights and statistics.
        dtype: of the products.
    """

    @torch.no_grad()
    def __init__(self, network: ImageGenerator, state: Mapping[str, Tensor], *, dtype: torch.dtype) -> None:
        self.spec, self.dtype, self.base = network.spec, dtype, network.base
        latent, maps = self.spec.latent, self.base[0]

        def norm(name: str) -> tuple[Tensor, Tensor]:
            scale = state[f"{name}.weight"] * torch.rsqrt(state[f"{name}.running_var"] + 1e-5)
            return scale, state[f"{name}.bias"] - state[f"{name}.running_mean"] * scale

        scale, shift = norm("norm1")
        weight = state["dense1.weight"] * scale[:, None]
        self.dense1, self.label1 = weight[:, :latent].to(dtype), (weight[:, latent:].T + shift).to(dtype).contiguous()
        scale, shift = norm("norm2")
        # channels last, as the convolutions
        weight = (state["dense2.weight"] * scale[:, None]).unflatten(0, self.base).permute(1, 2, 0, 3).flatten(0, 2)
        shift = shift.unflatten(0, self.base).permute(1, 2, 0).flatten()
        hidden = len(state["dense1.weight"])
        self.dense2, self.label2 = weight[:, :hidden].to(dtype), (weight[:, hidden:].T + shift).to(dtype).contiguous()

        self.ups: list[tuple[Tensor, Tensor]] = []
        height, width = self.base[1:]
        onehot = torch.eye(self.spec.classes, device=weight.device)[:, :, None, None]
        for i, _ in enumerate(network.norms):
            weight, (scale, shift) = state[f"ups.{i}.weight"], norm(f"norms.{i}")
            planes = onehot.expand(-1, -1, height, width)
            table = F.conv_transpose2d(planes, weight[maps:], stride=2, padding=2, output_padding=1)
            table = table * scale[:, None, None] + shift[:, None, None]
            self.ups.append((self._last(weight[:maps] * scale[:, None, None]), self._last(table)))
            maps, height, width = weight.shape[1], 2 * height, 2 * width
        last = len(network.norms)
        kernels = phases(state[f"ups.{last}.weight"])  # 3x3, to four phases
        table = F.conv2d(onehot.expand(-1, -1, height, width), kernels[:, maps:], padding=1)
        self.table = (table + state[f"ups.{last}.bias"].repeat_interleave(4)[:, None, None]).contiguous()
        extra = -len(kernels) % 8  # tensor cores need multiples of eight outputs
        self.last = self._last(F.pad(kernels[:, :maps], (0, 0, 0, 0, 0, 0, 0, extra)))

    def _last(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.dtype).contiguous(memory_format=torch.channels_last)

    @torch.no_grad()
    def __call__(self, z: Tensor, labels: Tensor) -> Tensor:
        """The records, in single precision."""
        h = self._activated(F.linear(z.to(self.dtype), self.dense1), self.label1, labels)
        h = self._activated(F.linear(h, self.dense2), self.label2, labels)
        maps, height, width = self.base
        h = h.view(-1, height, width, maps).permute(0, 3, 1, 2)
        for weight, table in self.ups:
            h = F.conv_transpose2d(h, weight, stride=2, padding=2, output_padding=1)
            h = self._activated(h.contiguous(memory_format=torch.channels_last), table, labels)
        h = F.conv2d(h, self.last, padding=1)
        if _by_kernels(h):
            out: Tensor = _kernels().image(h.contiguous(memory_format=torch.channels_last), self.table, labels)
        else:
            h = h[:, : self.table.shape[1]].float()
            out = F.pixel_shuffle(h.add_(self.table[labels]), 2).sigmoid_()
        return cropped(out.view(-1, self.spec.channels, *self.spec.canvas), self.spec).flatten(1)

    @staticmethod
    def _activated(h: Tensor, table: Tensor, labels: Tensor) -> Tensor:
        """With the label's part, in place."""
        if _by_kernels(h):
            out: Tensor = _kernels().activate_(h, table, labels, LEAK)
            return out
        return F.leaky_relu_(h.add_(table[labels]), LEAK)


def _by_kernels(h: Tensor) -> bool:
    return h.is_cuda and has_triton()
