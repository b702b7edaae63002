"""The student: learns from what was released, and keeps no trace of the teachers' phase."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.accounting import Receipt
from gpate.boundary import Released
from gpate.errors import InvalidValue
from gpate.generators import GeneratorSpec, Student
from gpate.generators.batch_norm_folding import FoldedGenerator
from gpate.generators.class_norm import ClassNorm
from gpate.generators.generator_spec import IMAGE_NETWORKS
from gpate.generators.networks import Up, build_network, initialise
from gpate.generators.residual import doubled
from gpate.generators.student import sample_chunks
from gpate.streams import Streams
from gpate.torch_utils import has_triton
from tests.processes import FEW_LATENTS

IMAGE = GeneratorSpec(kind="image", channels=1, height=8, width=8, classes=3, latent=6)
TABLE = GeneratorSpec(kind="table", width=7, classes=2, latent=4, softmax=((1, 4), (5, 7)))
RECEIPT = (Receipt(line=1, chain="0"),)


def student(spec: GeneratorSpec = IMAGE, **settings: object) -> Student:
    return Student(spec, init=Streams(0).torch("init"), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("height", "channels", "base"),
    [(8, 1, (128, 2, 2)), (28, 1, (128, 7, 7)), (32, 3, (256, 4, 4)), (64, 3, (512, 4, 4))],
)
def test_image_sizes(height: int, channels: int, base: tuple[int, ...]) -> None:
    spec = GeneratorSpec(kind="image", channels=channels, height=height, width=height, classes=2, latent=5)
    made = student(spec)
    assert made.network.base == base
    out = made.propose(made.latents(3, Streams(0).torch("z")), torch.tensor([0, 1, 1])).detach()
    assert out.shape == (3, channels * height * height)
    assert 0 <= float(out.min()) <= float(out.max()) <= 1


@pytest.mark.parametrize("network", IMAGE_NETWORKS)
@pytest.mark.parametrize(
    ("height", "width", "channels"), [(8, 8, 1), (28, 28, 1), (32, 48, 3), (64, 64, 3), (12, 20, 3)]
)
def test_every_network_makes_images_of_every_size(network: str, height: int, width: int, channels: int) -> None:
    spec = GeneratorSpec(
        kind="image", channels=channels, height=height, width=width, classes=2, latent=5, network=network, maps=4
    )
    made = student(spec)
    out = made.propose(made.latents(3, Streams(0).torch("z")), torch.tensor([0, 1, 1]))
    assert out.shape == (3, spec.dims)
    assert 0 <= float(out.detach().min()) <= float(out.detach().max()) <= 1
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in made.network.parameters())


@pytest.mark.parametrize("network", IMAGE_NETWORKS)
def test_the_class_decides_what_is_made(network: str) -> None:
    made = student(
        GeneratorSpec(kind="image", channels=1, height=8, width=8, classes=3, latent=6, network=network, maps=4)
    )
    z = made.latents(1, Streams(0).torch("z")).expand(3, -1)
    out = made.frozen(Streams(0).torch("s"))(z, torch.arange(3))
    assert not torch.allclose(out[0], out[1])


@pytest.mark.parametrize("x86", [True, False])
@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize(("height", "width"), [(2, 2), (7, 5)])
def test_up_equals_torchs_transposed_convolution(
    height: int, width: int, outputs: int, x86: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpate.generators.networks._X86", x86)
    up = Up(3, outputs, bias=True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in up.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    x = torch.randn(2, 3, height, width, generator=generator)
    slow = torch.nn.functional.conv_transpose2d(x, up.weight, up.bias, stride=2, padding=2, output_padding=1)
    assert torch.allclose(up(x), slow, atol=1e-5)


def test_table_rows_are_probabilities_block_by_block() -> None:
    made = student(TABLE)
    out = made.propose(made.latents(5, Streams(0).torch("z")), torch.zeros(5, dtype=torch.int64)).detach()
    for start, stop in TABLE.softmax:
        assert torch.allclose(out[:, start:stop].sum(1), torch.ones(5))
    assert bool(((out > 0) & (out < 1)).all())


@pytest.mark.parametrize("spec", [IMAGE, TABLE])
def test_learning_moves_records_along_the_released_change(spec: GeneratorSpec) -> None:
    made = student(spec)
    z, y = made.latents(16, Streams(0).torch("z")), made.labels(16, Streams(0).torch("y"))
    start = made.propose(z, y).detach()[:, 0].mean()
    for _ in range(20):
        made.learn(
            made.propose(z, y),
            Released(torch.full((16, spec.dims), 0.1) * (torch.arange(spec.dims) == 0), receipts=RECEIPT),
        )
    after = made.propose(z, y).detach()
    assert float(after[:, 0].mean()) > float(start) + 0.1


def test_the_gradient_is_that_of_the_papers_equation_2() -> None:
    made = student(TABLE)
    z, y = made.latents(4, Streams(0).torch("z")), made.labels(4, Streams(0).torch("y"))
    change = torch.randn(4, TABLE.dims, generator=torch.Generator().manual_seed(0))
    proposed = made.propose(z, y)
    expected = torch.autograd.grad(
        (proposed * (-2 * change / 4)).sum(), list(made.network.parameters()), retain_graph=True
    )
    made.learn(proposed, Released(change, receipts=RECEIPT))
    for parameter, gradient in zip(made.network.parameters(), expected, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradient, atol=1e-6)


def test_making_fakes_leaves_no_trace_in_the_student() -> None:
    """FINDINGS 7.8: fakes made with private labels must not move what is released, batch-norm averages included."""
    made = student()
    made.learn(
        made.propose(made.latents(8, Streams(1).torch("z")), torch.arange(8) % 3),
        Released(torch.zeros(8, 64), receipts=RECEIPT),
    )
    before = {name: tensor.clone() for name, tensor in made.state().items()}
    fakes = made.frozen(Streams(0).torch("statistics"))
    fakes(made.latents(100, Streams(2).torch("z")), torch.zeros(100, dtype=torch.int64))
    after = made.state()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert made.network.training


def test_a_fake_depends_on_its_own_latent_and_label_only() -> None:
    made = student()
    fakes = made.frozen(Streams(0).torch("statistics"))
    z, y = made.latents(10, Streams(2).torch("z")), torch.arange(10) % 3
    whole = fakes(z, y)
    assert torch.allclose(torch.cat([fakes(z[:3], y[:3]), fakes(z[3:], y[3:])]), whole, atol=1e-6)
    assert torch.allclose(fakes(z, y, batch=4), whole, atol=1e-6)


@pytest.mark.slow
def test_lasting_statistics_are_off_by_less() -> None:
    """Eight batches against one: errors of 1 to the root of 8 = 0.35 in the mean square over 6 draws and 512 numbers."""
    spec = GeneratorSpec(kind="image", channels=1, height=8, width=8, classes=3, network="dense")
    made = Student(spec, init=Streams(0).torch("init"))

    def statistics(seed: int, *, lasting: bool) -> torch.Tensor:
        state = made.frozen(Streams(seed).torch("statistics"), lasting=lasting)._state
        return torch.cat([state[name] for name in sorted(state) if name.endswith("running_mean")])

    exact = torch.stack([statistics(100 + seed, lasting=True) for seed in range(40)]).mean(0)
    once, lasting = (
        torch.stack([statistics(seed, lasting=kind) - exact for seed in range(6)]).square().mean().sqrt()
        for kind in (False, True)
    )
    assert lasting < 0.5 * once


def test_a_finished_student_has_lasting_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpate.generators.student._REFRESH", FEW_LATENTS)
    one, other = student(), student()
    one.finish(Streams(0).torch("statistics"))
    frozen = other.frozen(Streams(0).torch("statistics"), lasting=True)
    assert all(torch.equal(tensor, frozen._state[name]) for name, tensor in one.network.state_dict().items())


def test_a_finished_student_that_learns_on_keeps_its_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Teachers must see the records that it is taught on, and the release must make them: also when proportions came in between."""
    monkeypatch.setattr("gpate.generators.student._REFRESH", FEW_LATENTS)
    made = student()
    made.finish(Streams(0).torch("statistics"))
    made.proportions = np.array([0.8, 0.2, 0.0])
    before = {name: buffer.clone() for name, buffer in made.network.named_buffers()}
    z, y = made.latents(8, Streams(1).torch("z")), torch.arange(8) % 3
    made.learn(made.propose(z, y), Released(torch.ones(8, 64), receipts=RECEIPT))
    fakes = made.frozen(Streams(3).torch("statistics"))
    assert torch.allclose(fakes(z, y), made.propose(z, y), atol=1e-6)
    made.finish(Streams(2).torch("statistics"))
    assert all(torch.equal(buffer, before[name]) for name, buffer in made.network.named_buffers())


def test_labels_follow_the_shares() -> None:
    """20,000 labels, 6 standard errors."""
    made = student(proportions=np.array([0.7, 0.3, 0.0]))
    counts = np.bincount(made.labels(20_000, Streams(0).torch("y")).numpy(), minlength=3) / 20_000
    assert np.allclose(counts, [0.7, 0.3, 0.0], atol=6 * (0.21 / 20_000) ** 0.5)
    assert counts[2] == 0
    even = np.bincount(made.labels(20_000, Streams(0).torch("y"), evenly=True).numpy(), minlength=3) / 20_000
    assert np.allclose(even, 1 / 3, atol=6 * (2 / 9 / 20_000) ** 0.5)
    with pytest.raises(InvalidValue, match="sum to 1"):
        student(proportions=np.array([0.7, 0.7, 0.0]))


def test_state_round_trip_goes_on_alike() -> None:
    one, other = student(), student()
    z, y = one.latents(8, Streams(0).torch("z")), torch.arange(8) % 3
    change = Released(torch.randn(8, 64, generator=torch.Generator().manual_seed(1)), receipts=RECEIPT)
    one.learn(one.propose(z, y), change)
    other.load_state({name: tensor.clone() for name, tensor in one.state().items()})
    for each in (one, other):
        each.learn(each.propose(z, y), change)
    assert all(torch.equal(a, b) for a, b in zip(one.state().values(), other.state().values(), strict=True))


def test_finished_students_sample_the_same_for_the_same_stream_in_any_chunk() -> None:
    made = student()
    made.finish(Streams(0).torch("statistics"))
    frozen = made.frozen(Streams(0).torch("statistics"))
    labels = torch.arange(50) % 3
    small, large = (
        torch.cat([x for x, _ in sample_chunks(frozen, labels, Streams(9).torch("sample"), chunk=chunk)])
        for chunk in (7, 50)
    )
    assert small.shape == (50, 64)
    torch.testing.assert_close(small, large, rtol=0, atol=1e-5)


def test_a_kind_that_cannot_be_built_is_named() -> None:
    with pytest.raises(InvalidValue, match="'video'"):
        GeneratorSpec(kind="video", width=3, classes=2)


@pytest.mark.parametrize("network", ["dcgan", "narrow"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 48), (3, 64, 64), (3, 17, 30)])
def test_a_folded_generator_is_the_generator(shape: tuple[int, int, int], network: str) -> None:
    """With weights, shifts and statistics that are nothing special, so that a forgotten one would show."""
    channels, height, width = shape
    spec = GeneratorSpec(
        kind="image", channels=channels, height=height, width=width, classes=3, network=network, maps=8
    )
    made = build_network(spec)
    stream = torch.Generator().manual_seed(0)
    initialise(made, stream)
    state = {
        name: t + 0.1 * torch.rand(t.shape, generator=stream) if t.is_floating_point() else t
        for name, t in made.state_dict().items()
    }
    made.load_state_dict(state)
    z, labels = torch.rand(7, spec.latent, generator=stream) * 2 - 1, torch.arange(7) % 3
    with torch.no_grad():
        plain = made.eval()(z, labels)
    assert plain.std() > 0.01
    assert torch.allclose(FoldedGenerator(made, state, dtype=torch.float32)(z, labels), plain, atol=1e-5)
    if torch.cuda.is_available():  # by kernels, where there are any
        on_gpu = {name: tensor.cuda() for name, tensor in state.items()}
        folded = FoldedGenerator(made, on_gpu, dtype=torch.float32)(z.cuda(), labels.cuda())
        assert torch.allclose(folded.cpu(), plain, atol=2e-3)  # products in TF32


@pytest.mark.skipif(not torch.cuda.is_available() or not has_triton(), reason="needs a GPU with Triton")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(6, 5, 7, 7), (20, 64, 28, 28), (8, 128, 3, 5)])
def test_the_kernels_of_the_class_norm_compute_what_torch_does(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Output, all gradients, and the running statistics; in double precision as the reference."""
    stream = torch.Generator().manual_seed(0)
    layer = ClassNorm(shape[1], 3)
    with torch.no_grad():
        for table in (layer.scale, layer.shift):
            table.copy_(torch.randn(table.shape, generator=stream))
    x, towards = (torch.randn(shape, generator=stream).to(dtype) for _ in range(2))
    y = F.one_hot(torch.arange(shape[0]) % 3, 3)

    def both(device: str, real: torch.dtype) -> list[torch.Tensor]:
        own = copy.deepcopy(layer).to(device, torch.float64 if device == "cpu" else torch.float32).train()
        leaf = x.to(device, real).requires_grad_()
        out = own(leaf, y.to(device, own.scale.dtype))
        out.backward(towards.to(device, real))
        assert leaf.grad is not None
        assert own.scale.grad is not None
        assert own.shift.grad is not None
        found = [out, leaf.grad, own.scale.grad, own.shift.grad, own.norm.running_mean, own.norm.running_var]
        return [tensor.detach().cpu().double() for tensor in found]

    for fused, slow in zip(both("cuda", dtype), both("cpu", torch.float64), strict=True):
        assert (
            fused - slow
        ).norm() <= 0.01 * slow.norm()  # a number within rounding of the ReLU's corner may fall on either side


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_doubling_repeats_every_pixel(order: torch.memory_format) -> None:
    x = torch.randn(3, 5, 4, 6, generator=torch.Generator().manual_seed(0)).to(memory_format=order).requires_grad_()
    expected = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
    out = doubled(x)
    assert out.is_contiguous(memory_format=order)
    assert torch.equal(out, expected)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad((out * weights).sum(), x)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), x)
    torch.testing.assert_close(gradient, wanted)
