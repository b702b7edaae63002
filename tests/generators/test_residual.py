"""What a residual network computes when it is sampled on a CPU is what it computes in training, up to rounding; it moves its images."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.generators import GeneratorSpec
from gpate.generators.class_norm import ClassNorm
from gpate.generators.networks import build_network, initialise
from gpate.generators.residual import doubled, doubled_convolution

COUNTS = st.integers(1, 5)


@given(
    m=COUNTS, inputs=COUNTS, outputs=COUNTS, height=COUNTS, width=COUNTS, last=st.booleans(), seed=st.integers(0, 99)
)
def test_the_four_phases_are_the_convolution_of_the_doubled_image(
    m: int, inputs: int, outputs: int, height: int, width: int, last: bool, seed: int
) -> None:
    stream = torch.Generator().manual_seed(seed)
    x, weight = (
        torch.randn(m, inputs, height, width, generator=stream),
        torch.randn(outputs, inputs, 3, 3, generator=stream),
    )
    layout = torch.channels_last if last else torch.contiguous_format
    found = torch.full((m, outputs, 2 * height, 2 * width), torch.nan)
    for (a, b), part in doubled_convolution(x.contiguous(memory_format=layout), weight):
        found[:, :, a::2, b::2] = part
    torch.testing.assert_close(found, F.conv2d(doubled(x), weight, padding=1), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("side", "channels"), [(8, 1), (12, 3), (17, 1), (28, 1)])
def test_sampling_gives_what_training_sees(side: int, channels: int) -> None:
    """Gradients are only computed on the plain path. Statistics, scales and shifts are not at their start."""
    spec = GeneratorSpec(
        kind="image", classes=3, channels=channels, height=side, width=side, latent=5, network="residual", maps=4
    )
    stream, network = torch.Generator().manual_seed(0), build_network(spec)
    initialise(network, stream)
    for module in network.modules():
        if isinstance(module, ClassNorm):
            assert module.norm.running_mean is not None
            assert module.norm.running_var is not None
            for tensor in (module.scale.data, module.shift.data, module.norm.running_mean, module.norm.running_var):
                tensor.copy_(torch.rand(tensor.shape, generator=stream) + 0.5)
    network.eval()
    z, labels = spec.latents(7, stream), torch.arange(7) % 3
    plain = network(z, labels)
    assert plain.requires_grad
    with torch.no_grad():
        sampled = network(z, labels)
        alone = torch.cat([network(z[i : i + 1], labels[i : i + 1]) for i in range(7)])
    assert not sampled.requires_grad
    assert float(plain.detach().std()) > 0.01  # images, not a constant
    torch.testing.assert_close(sampled, plain.detach(), rtol=0, atol=1e-5)
    torch.testing.assert_close(alone, sampled, rtol=0, atol=1e-5)  # no record depends on the others


def test_two_latent_numbers_move_the_image_of_a_residual_network() -> None:
    spec = GeneratorSpec(kind="image", classes=2, width=16, height=16, latent=6, network="residual", maps=4, shift=2)
    network = build_network(spec).eval()
    initialise(network, torch.Generator().manual_seed(0))
    with torch.no_grad():
        network.dense.weight[:, 4:6] = 0  # so that the image itself does not depend on them
        z = torch.rand(1, 6).repeat(2, 1)
        z[:, 4:] = torch.tensor([[0.0, 0.0], [0.9, -0.5]])
        still, gone = network(z, torch.tensor([1, 1])).view(2, 16, 16)
    assert torch.equal(gone[:-2, 1:], still[2:, :-1])
