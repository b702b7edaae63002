"""The batched ensemble equals a loop of separate modules, whatever the chunk size.

In double precision: Adam divides by the root of the second moment, so where a gradient is zero but for rounding, single
precision amplifies the last bit to a full step in both.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gpate.boundary.values import opened
from gpate.errors import InvalidValue
from gpate.records.teachers import products
from gpate.records.teachers.discriminators import LEAK, DenseTeacher, ImageTeacher, TeacherNetwork, teacher_network
from gpate.records.teachers.ensemble import Ensemble, Placement, plan_placement
from gpate.records.teachers.products import EPS, Patches, activation, kernels
from gpate.streams import Streams

CPU = torch.device("cpu")
NETWORKS = {
    "paper": teacher_network("paper", kind="image", shape=(1, 8, 8), classes=3),
    "official": teacher_network("official", kind="image", shape=(1, 8, 8), classes=3),
    "colour": teacher_network("official", kind="image", shape=(3, 16, 16), classes=2),
    "odd": teacher_network("official", kind="image", shape=(1, 7, 10), classes=3),
    "table": teacher_network("paper", kind="table", shape=(1, 1, 9), classes=3),
}


class SlowTeacher(nn.Module):
    """One teacher, written with torch's own layers."""

    def __init__(self, network: TeacherNetwork, weights: dict[str, Tensor], index: int) -> None:
        super().__init__()
        self.network = network
        self.p = nn.ParameterDict(
            {name.replace(".", "_"): nn.Parameter(t[index].clone()) for name, t in weights.items()}
        )

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        y = F.one_hot(labels, self.network.classes).to(x.dtype)  # type: ignore[attr-defined]
        p = self.p
        if isinstance(self.network, DenseTeacher):
            h = x
            for name in ("dense0", "dense1", "out"):
                h = h @ p[name] + y @ p[f"{name}_label"] + p[f"{name}_shift"]
                h = h if name == "out" else F.leaky_relu(h, 0.2)
            return h.squeeze(1)
        assert isinstance(self.network, ImageTeacher)
        h = x.view(-1, *self.network.shape)
        for i, maps in enumerate(self.network.kernels):
            kernel = p[f"conv{i}"].view(maps, -1, 5, 5)
            h = F.conv2d(h, kernel, stride=2, padding=2) + (y @ p[f"conv{i}_label"])[:, :, None, None]
            if f"conv{i}_scale" in p:
                h = F.batch_norm(h, None, None, p[f"conv{i}_scale"], p[f"conv{i}_shift"], training=True, eps=1e-5)
            else:
                h = h + p[f"conv{i}_shift"][None, :, None, None]
            h = F.leaky_relu(h, 0.2)
        h = h.flatten(1) @ p["dense"] + y @ p["dense_label"]
        h = F.batch_norm(h, None, None, p["dense_scale"], p["dense_shift"], training=True, eps=1e-5)
        return (F.leaky_relu(h, 0.2) @ p["out"] + y @ p["out_label"]).squeeze(1)


def ensemble(network: TeacherNetwork, teachers: int = 5, chunk: int = 5) -> Ensemble:
    return Ensemble(
        network,
        teachers=teachers,
        placement=Placement(device=CPU, storage=CPU, chunk=chunk),
        streams=Streams(1),
        dtype=torch.float64,
    )


def batches(network: TeacherNetwork, steps: int, teachers: int = 5, m: int = 6) -> list[tuple[Tensor, Tensor, Tensor]]:
    g = torch.Generator().manual_seed(0)
    shape = getattr(network, "shape", None)
    dims = network.width if isinstance(network, DenseTeacher) else shape[0] * shape[1] * shape[2]  # type: ignore[index]
    classes = network.classes  # type: ignore[attr-defined]
    return [
        (
            torch.rand(teachers, m, dims, generator=g, dtype=torch.float64),
            torch.rand(teachers, m, dims, generator=g, dtype=torch.float64),
            torch.randint(0, classes, (teachers, m), generator=g),
        )
        for _ in range(steps)
    ]


@pytest.mark.parametrize("name", NETWORKS)
def test_batched_equals_a_loop_of_modules(name: str) -> None:
    """Weights after 5 Adam steps, and gradients with respect to the student's records, teacher by teacher."""
    network = NETWORKS[name]
    fast = ensemble(network)
    slow = [SlowTeacher(network, fast.weights, i) for i in range(5)]
    optimisers = [torch.optim.Adam(teacher.parameters(), lr=1e-3, betas=(0.5, 0.999)) for teacher in slow]
    everyone = torch.ones(5, dtype=torch.bool)
    for real, fake, labels in batches(network, 5):
        fast.train(lambda part, b=(real, fake, labels): tuple(t[part] for t in b), has_records=everyone)  # type: ignore[misc]
        for i, (teacher, optimiser) in enumerate(zip(slow, optimisers, strict=True)):
            optimiser.zero_grad()
            loss = F.softplus(-teacher(real[i], labels[i])).mean() + F.softplus(teacher(fake[i], labels[i])).mean()
            loss.backward()
            optimiser.step()
    for i, teacher in enumerate(slow):
        for key, weight in fast.weights.items():
            assert torch.allclose(weight[i], teacher.p[key.replace(".", "_")], atol=1e-9), key
    _, proposed, labels = batches(network, 1, teachers=1)[0]
    for saturating in (True, False):
        wanted = torch.cat([opened(g) for g in fast.change_wanted(proposed[0], labels[0], saturating=saturating)])
        for i, teacher in enumerate(slow):
            x = proposed[0].clone().requires_grad_()
            logits = teacher(x, labels[0])
            gain = F.softplus(logits).sum() if saturating else -F.softplus(-logits).sum()
            assert torch.allclose(wanted[i], torch.autograd.grad(gain, x)[0], atol=1e-10)


@pytest.mark.parametrize(
    ("chunk", "name"),
    [
        (1, "official"),
        (1, "table"),
        (30, "paper"),
        *(pytest.param(chunk, name, marks=pytest.mark.slow) for chunk in (1, 2, 70) for name in NETWORKS),
    ],
)
def test_chunk_size_changes_nothing(name: str, chunk: int) -> None:
    network, teachers = NETWORKS[name], 70  # more than one block of initial weights
    whole, parts = ensemble(network, teachers, 70), ensemble(network, teachers, chunk)
    has = torch.ones(teachers, dtype=torch.bool)
    for batch in batches(network, 2, teachers=teachers):
        for each in (whole, parts):
            each.train(lambda part, b=batch: tuple(t[part] for t in b), has_records=has)  # type: ignore[misc]
    for key in whole.weights:
        assert torch.allclose(whole.weights[key], parts.weights[key], atol=1e-9), key


def test_a_teacher_without_records_keeps_its_weights_and_still_votes() -> None:
    network = NETWORKS["paper"]
    teachers = ensemble(network)
    before = {key: weight.clone() for key, weight in teachers.weights.items()}
    has = torch.tensor([True, False, True, True, False])
    for batch in batches(network, 3):
        teachers.train(lambda part, b=batch: tuple(t[part] for t in b), has_records=has)  # type: ignore[misc]
    for key, weight in teachers.weights.items():
        assert torch.equal(weight[~has], before[key][~has])
    assert any(not torch.equal(weight[has], before[key][has]) for key, weight in teachers.weights.items())
    _, proposed, labels = batches(network, 1, teachers=1)[0]
    assert sum(len(opened(g)) for g in teachers.change_wanted(proposed[0], labels[0])) == 5


def test_one_teachers_records_change_no_other_teacher() -> None:
    network = NETWORKS["official"]
    one, other = ensemble(network), ensemble(network)
    has = torch.ones(5, dtype=torch.bool)
    for real, fake, labels in batches(network, 3):
        changed = real.clone()
        changed[2] = 1 - changed[2]
        one.train(lambda part, b=(real, fake, labels): tuple(t[part] for t in b), has_records=has)  # type: ignore[misc]
        other.train(lambda part, b=(changed, fake, labels): tuple(t[part] for t in b), has_records=has)  # type: ignore[misc]
    keep = torch.tensor([0, 1, 3, 4])
    assert all(torch.equal(one.weights[key][keep], other.weights[key][keep]) for key in one.weights)
    assert any(not torch.equal(one.weights[key][2], other.weights[key][2]) for key in one.weights)


def test_teachers_start_different_from_each_other() -> None:
    """FINDINGS 7.1: all teachers one shared object."""
    weights = ensemble(NETWORKS["paper"], 70).weights["dense"]
    assert len({tuple(w.flatten()[:4].tolist()) for w in weights}) == 70


def test_state_is_loaded_back_and_training_goes_on_alike() -> None:
    network = NETWORKS["table"]
    one, other = ensemble(network), ensemble(network)
    has = torch.ones(5, dtype=torch.bool)
    first, second = batches(network, 2)
    one.train(lambda part: tuple(t[part] for t in first), has_records=has)  # type: ignore[arg-type, return-value]
    other.load_state({key: tensor.clone() for key, tensor in one.state().items()})
    for each in (one, other):
        each.train(lambda part: tuple(t[part] for t in second), has_records=has)  # type: ignore[arg-type, return-value]
    assert all(torch.equal(one.weights[key], other.weights[key]) for key in one.weights)
    with pytest.raises(InvalidValue, match="same teachers"):
        ensemble(network, 4, 4).load_state(one.state())


def test_state_goes_to_the_host_when_the_card_is_too_small() -> None:
    network = NETWORKS["official"]
    weights = 4 * sum(torch.Size(shape).numel() for shape, _ in network.shapes().values())
    cuda = torch.device("cuda")
    roomy = plan_placement(network, teachers=100, batch=4, device=cuda, free=100 * weights * 20)
    tight = plan_placement(network, teachers=100, batch=4, device=cuda, free=100 * weights)
    assert roomy.storage == cuda
    assert tight.storage == CPU
    assert 1 <= tight.chunk < 100


def test_an_unknown_variant_is_named() -> None:
    with pytest.raises(InvalidValue, match="'resnet'"):
        teacher_network("resnet", kind="image", shape=(1, 8, 8), classes=2)


@pytest.mark.parametrize("shape", [(2, 3, 4, 8, 8), (3, 1, 2, 28, 28), (1, 2, 3, 6, 10)])
def test_patches_are_those_of_unfold_and_their_gradient_its_transpose(shape: tuple[int, ...]) -> None:
    n, c, b, h, w = shape
    x = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    slow = F.unfold(x.transpose(1, 2).reshape(n * b, c, h, w), 5, padding=2, stride=2)
    slow = slow.view(n, b, c * 25, -1).transpose(1, 2).reshape(n, c * 25, -1)
    fast = Patches.apply(x)
    assert torch.equal(fast, slow)
    weights = torch.rand(fast.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    gradients = [torch.autograd.grad((out * weights).sum(), x)[0] for out in (fast, slow)]
    assert torch.allclose(*gradients)


def test_patches_can_be_differentiated_twice() -> None:
    """As a gradient penalty does: held to finite differences."""
    x = torch.rand(1, 2, 2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    squares = lambda pixels: Patches.apply(pixels).square()  # noqa: E731 - linear alone, the second derivative is zero
    assert torch.autograd.gradcheck(squares, (x,))
    assert torch.autograd.gradgradcheck(squares, (x,), fast_mode=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    "shape",
    [
        (7, 3, 4, 8, 8),
        (30, 11, 5, 14, 14),
        (3, 1, 2, 28, 28),
        (2, 5, 3, 6, 10),
        (1, 1, 256, 28, 28),
        (1, 64, 40, 14, 14),
    ],
)
@pytest.mark.parametrize("maps", [3, 42, 128])
def test_convolutions_on_the_gpu_equal_those_by_torch(shape: tuple[int, ...], maps: int) -> None:
    """Products of bfloat16 factors keep two to three decimals."""
    n, c = shape[:2]
    x, weight = torch.randn(shape, device="cuda"), torch.randn(n, maps, 25 * c, device="cuda")
    slow_x, slow_weight = (t.double().requires_grad_() for t in (x, weight))
    slow = slow_weight @ Patches.apply(slow_x)
    g = torch.randn(slow.shape, device="cuda")
    slow.backward(g.double())
    k = kernels()
    for fast, exact in (
        (k.convolve(weight, x, 5), slow),
        (k.convolve_for_weight(g, x, 5), slow_weight.grad),
        (k.convolve_for_input(weight, g, x.shape, 5), slow_x.grad),
    ):
        assert (fast - exact).square().mean().sqrt() < 1e-2 * exact.square().mean().sqrt()


class _ByTorch:
    """What the kernels compute, by torch's own convolutions: a teacher after the other."""

    @staticmethod
    def convolve(weight: Tensor, x: Tensor, kernel: int) -> Tensor:
        def one(w: Tensor, images: Tensor) -> Tensor:
            out = F.conv2d(images.transpose(0, 1), w.view(len(w), -1, kernel, kernel), stride=2, padding=2)
            return out.transpose(0, 1).flatten(1)

        return torch.stack([one(w, images) for w, images in zip(weight, x, strict=True)])

    @classmethod
    def convolve_for_weight(cls, g: Tensor, x: Tensor, kernel: int) -> Tensor:
        weight = x.new_zeros(len(x), g.shape[1], x.shape[1] * kernel**2)
        return torch.func.vjp(lambda w: cls.convolve(w, x, kernel), weight)[1](g)[0]

    @classmethod
    def convolve_for_input(cls, weight: Tensor, g: Tensor, shape: torch.Size, kernel: int) -> Tensor:
        return torch.func.vjp(lambda x: cls.convolve(weight, x, kernel), g.new_zeros(shape))[1](g)[0]


@pytest.mark.parametrize("fast", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_convolutions_by_kernels_can_be_differentiated_as_often_as_wished(
    monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    """Each kernel's derivative is made of the other two: held to finite differences with torch's convolutions in their place,
    in every direction or, fast, in one at random.
    """
    monkeypatch.setattr(products, "kernels", lambda: _ByTorch)
    monkeypatch.setattr(products, "has_kernels", lambda _: True)
    stream = torch.Generator().manual_seed(0)
    weight = torch.randn(2, 2, 50, dtype=torch.float64, generator=stream).requires_grad_()
    x = torch.randn(2, 2, 1, 4, 4, dtype=torch.float64, generator=stream).requires_grad_()
    assert torch.autograd.gradcheck(products.convolution, (weight, x), fast_mode=fast)
    assert torch.autograd.gradgradcheck(products.convolution, (weight, x), fast_mode=fast)

    def slope(w: Tensor, images: Tensor) -> Tensor:  # as in a gradient penalty: not linear in either
        scores = products.convolution(w, images).square().sum()
        return torch.autograd.grad(scores, images, create_graph=True)[0]

    assert torch.autograd.gradgradcheck(slope, (weight, x), fast_mode=fast)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gradient_penalty_on_the_gpu_is_that_on_the_processor() -> None:
    network = teacher_network("plain", kind="image", shape=(1, 8, 8), classes=3)
    stream = torch.Generator().manual_seed(0)
    start = {
        name: torch.randn(5, *shape, generator=stream, dtype=torch.float64) * (deviation or 0.1)
        for name, (shape, deviation) in network.shapes().items()
    }
    x, y = torch.rand(5, 1, 4, 64, generator=stream), F.one_hot(torch.arange(20).view(5, 1, 4) % 3, 3)
    found = []
    for device, dtype in (("cuda", torch.float32), ("cpu", torch.float64)):
        weights = {name: value.to(device, dtype).requires_grad_() for name, value in start.items()}
        records = x.to(device, dtype).requires_grad_()
        scores = network.logits(weights, records, y.to(device, dtype), twice=True)
        (slope,) = torch.autograd.grad(scores.sum(), records, create_graph=True)
        penalty = (slope.square().sum(3).sqrt() - 1).square().sum()
        convolutions = [weights["conv0"], weights["conv1"]]
        found.append([slope, *torch.autograd.grad(penalty, convolutions)])
    for fast, exact in zip(*found, strict=True):
        error = (fast.cpu().double() - exact).square().mean().sqrt()
        assert error < 1e-2 * exact.square().mean().sqrt()


@pytest.mark.parametrize("size", [8, 13, 28])
def test_a_projected_discriminator_is_normalised_over_each_record_and_has_weights_for_every_class(size: int) -> None:
    """Against torch's own layers, record by record."""
    network = teacher_network("projected", kind="image", shape=(1, size, size), classes=3)
    stream = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(1, *shape, generator=stream) for name, (shape, _) in network.shapes().items()}
    x, labels = torch.rand(5, size**2, generator=stream), torch.tensor([0, 2, 1, 2, 0])
    found = network.logits(weights, x[None, None], F.one_hot(labels, 3).float()[None, None])[0, 0]
    own = {name: weight[0] for name, weight in weights.items()}
    for i, c in enumerate(labels):
        h = x[i].view(1, 1, size, size)
        for layer in ("conv0", "conv1"):
            kernels = own[layer].view(len(own[layer]), -1, 5, 5)
            h = F.conv2d(h, kernels, own[f"{layer}.label"][c] + own[f"{layer}.shift"], stride=2, padding=2)
            h = F.leaky_relu(F.layer_norm(h, h.shape[1:], eps=EPS), LEAK)
        h = F.adaptive_avg_pool2d(h, min(4, -(-size // 4)))
        h = F.linear(h.flatten(1), own["dense"].T, own["dense.label"][c] + own["dense.shift"])
        h = F.leaky_relu(F.layer_norm(h, h.shape[1:], eps=EPS), LEAK)[0]
        score = h @ (own["out"][:, 0] + own["out.class"][c]) + own["out.label"][c, 0]
        torch.testing.assert_close(found[i], score, rtol=1e-3, atol=1e-3)


def test_factors_of_the_wide_layer_are_its_gradient() -> None:
    """Outputs and the maps' gradient are those of the ordinary layer, and Adam by factors is Adam by their product."""
    stream = torch.Generator().manual_seed(0)
    x, weight, g = (torch.randn(3, *shape, generator=stream) for shape in ((4, 7, 9), (36, 5), (7, 5)))
    found = []
    for factors in (None, list[products.Factors]()):
        maps, own = x.clone().requires_grad_(), weight.clone().requires_grad_(factors is None)
        out = products.wide(maps, own, factors)
        found.append((out, *torch.autograd.grad(out, [maps, own] if factors is None else [maps], g)))
    (slow, for_slow, gradient), (fast, for_fast) = found
    assert torch.allclose(fast, slow)
    assert torch.allclose(for_fast, for_slow)
    assert factors is not None
    state = [[weight.clone(), torch.zeros_like(weight), torch.zeros_like(weight)] for _ in range(2)]
    products.factored_adam(factors[0], *state[0], rate=0.1, betas=(0.5, 0.999), eps=1e-8, step=1)
    own = state[1][0].requires_grad_()
    own.grad = gradient
    torch.optim.Adam([own], lr=0.1, betas=(0.5, 0.999)).step()
    assert torch.allclose(state[0][0], own)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("s", "inputs", "outputs"), [(30, (42, 49), 256), (7, (1, 70), 40), (90, (11, 3), 256)])
def test_the_wide_layer_on_the_gpu_equals_that_by_torch(s: int, inputs: tuple[int, int], outputs: int) -> None:
    n, k = 3, kernels()
    maps, positions = inputs
    shapes = ((maps, s, positions), (maps * positions, outputs), (s, outputs))
    x, weight, g = (torch.randn(n, *shape, device="cuda") for shape in shapes)
    rows = x.transpose(1, 2).flatten(2).double()
    for fast, exact in (
        (k.dense(x, weight), rows @ weight.double()),
        (k.dense_for_input(g, weight, x.shape).transpose(1, 2).flatten(2), g.double() @ weight.double().mT),
    ):
        assert (fast - exact).square().mean().sqrt() < 1e-3 * exact.square().mean().sqrt()
    first, second = torch.rand_like(weight), torch.rand_like(weight)
    before, step = weight.clone(), 3
    gradient = rows.mT @ g.double()
    moments = 0.5 * first.double() + 0.5 * gradient, 0.999 * second.double() + 0.001 * gradient.square()
    k.dense_adam(x, g, weight, first, second, rate=1e-3, betas=(0.5, 0.999), eps=1e-8, step=step)
    for fast, exact in zip((first, second), moments, strict=True):
        assert (fast - exact).square().mean().sqrt() < 1e-3 * exact.square().mean().sqrt()
    change = 1e-3 / (1 - 0.5**step) * first / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
    assert torch.allclose(weight, before - change, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("norm", [True, False])
def test_activations_on_the_gpu_equal_those_by_torch(norm: bool) -> None:
    shapes = ((4, 5, 14, 49), (4, 14, 5), (4, 5), (4, 5))
    values = [torch.randn(shape, device="cuda") for shape in shapes]
    weights = torch.randn(shapes[0], device="cuda")
    found = []
    for dtype in (torch.float32, torch.float64):  # the kernels are for single precision
        h, label, scale, shift = (value.to(dtype).requires_grad_() for value in values)
        out = activation(h, label, scale if norm else None, shift, batches=2, leak=0.2)
        wanted = [h, label, shift, *([scale] if norm else [])]
        found.append([out, *torch.autograd.grad((out * weights).sum(), wanted)])
    for fast, exact in zip(*found, strict=True):
        assert torch.allclose(fast.double(), exact, atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_teachers_kept_on_the_host_are_those_kept_on_the_card() -> None:
    network, cuda = NETWORKS["official"], torch.device("cuda")
    places = [Placement(device=cuda, storage=storage, chunk=3) for storage in (cuda, CPU)]
    card, host = (Ensemble(network, teachers=8, placement=place, streams=Streams(1)) for place in places)
    assert host.weights["dense"].is_pinned()
    has = torch.ones(8, dtype=torch.bool, device=cuda)
    for batch in batches(network, 3, teachers=8):
        tensors = [t.to(cuda, torch.float32 if t.is_floating_point() else t.dtype) for t in batch]
        for each in (card, host):
            each.train(lambda part, b=tensors: tuple(t[part] for t in b), has_records=has)  # type: ignore[misc]
    for key, weight in card.weights.items():
        assert torch.equal(weight.cpu(), host.weights[key]), key
