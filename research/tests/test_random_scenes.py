"""How the scene network is made: scenes from a seed, training that learns something, and folding that changes nothing."""

from __future__ import annotations

import math

import pytest
import torch

from gpate.features.perceptual import PerceptualFeatures
from gpate.features.scene_network import CEILING, SceneNetwork, scene_network
from gpate_research.random_scenes import SIDE, VIEW, Trainable, contrast, folded, scenes, textures, train, views


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some(count: int, seed: int = 0) -> torch.Tensor:
    return scenes(count, textures(20, stream(seed)), stream(seed))


def test_scenes_are_images_that_a_seed_decides() -> None:
    images = some(6)
    assert images.shape == (6, 3, SIDE, SIDE)
    assert 0.0 <= float(images.min()) < 0.2
    assert 0.8 < float(images.max()) <= 1.0
    assert torch.equal(images, some(6))
    assert not torch.equal(images, some(6, seed=1))
    assert float(images.flatten(1).std(1).min()) > 0.05  # none is flat


def test_textures_have_no_light_of_their_own() -> None:
    assert float(textures(20, stream()).mean((2, 3)).abs().max()) < 1e-4


def test_views_of_a_scene_are_more_alike_than_those_of_others() -> None:
    """Otherwise there would be nothing to learn, or nothing to do."""
    whole = (some(20) * 255).byte()
    one, other = views(whole, stream(1)), views(whole, stream(2))
    assert one.shape == (20, 3, VIEW, VIEW)
    assert not torch.equal(one, other)
    colours = [view.mean((2, 3)) for view in (one, other)]
    distances = torch.cdist(*colours)
    assert float(distances.diagonal().mean()) < 0.7 * float(distances.mean())


def test_contrast_is_what_the_definition_says() -> None:
    """Every view against all others, one at a time."""
    torch.manual_seed(0)
    network, whole = Trainable(), (some(3) * 255).byte()
    seen = torch.cat([views(whole, stream(1)), views(whole, stream(2))])
    with torch.no_grad():
        loss, right = contrast(network, seen)
        z = network.head(network.activations(seen)[-1].mean((2, 3)))
        z = z / z.norm(dim=1, keepdim=True)
    losses, hits = [], 0
    for i in range(6):
        others = [j for j in range(6) if j != i]
        alike = torch.stack([(z[i] * z[j]).sum() / 0.2 for j in others])
        losses.append(float(alike.logsumexp(0) - alike[others.index((i + 3) % 6)]))
        hits += others[int(alike.argmax())] == (i + 3) % 6
    assert math.isclose(float(loss), sum(losses) / 6, rel_tol=1e-4)
    assert math.isclose(float(right), hits / 6, rel_tol=1e-6)


@pytest.mark.slow
def test_training_learns_which_views_are_of_one_scene() -> None:
    """On views that it has not seen, of the scenes that it has."""
    whole = (some(24) * 255).byte()
    torch.manual_seed(0)
    trained, fresh = train(whole, steps=300, batch=24, seed=0).train(), Trainable()
    losses = []
    for network in (trained, fresh):
        with torch.no_grad():
            pairs = [torch.cat([views(whole, stream(s)), views(whole, stream(s + 50))]) for s in range(100, 108)]
            losses.append(sum(float(contrast(network, seen)[0]) for seen in pairs) / len(pairs))
    assert losses[0] < 0.7 * losses[1]


def test_folding_keeps_what_the_network_sees() -> None:
    """Up to the 8 bits of the weights and the ceiling; channels of the result have a mean square of 1 over the views."""
    torch.manual_seed(0)
    network = Trainable()
    public = views((some(12) * 255).byte(), stream())
    with torch.no_grad():
        for _ in range(20):
            network.activations(public)  # statistics of the normalisation
    network.eval().requires_grad_(False)
    whole = SceneNetwork()
    whole.load_state_dict(folded(network, public))
    for before, after in zip(network.activations(public), whole(public), strict=True):
        scaled = before / (before.square().mean((0, 2, 3)).sqrt()[:, None, None] + 1e-3)
        kept = scaled < 6.0
        assert float((after.activation - scaled)[kept].square().mean().sqrt()) < 0.05
        usual = float(scaled.clamp(max=CEILING).square().mean())
        assert math.isclose(float(after.activation.square().mean()), usual, rel_tol=0.03)
    assert torch.allclose(whole[0].mean[0], next(iter(whole(public))).means.mean((0, 2, 3)), atol=1e-4)


def test_channels_of_the_shipped_network_are_of_one_size_and_random_scenes_are_kept_whole() -> None:
    """Otherwise a few channels, or layers, would be all that counts. What the file says of scenes is true of the network as it is used."""
    seen = views((scenes(60, textures(60, stream(5)), stream(5)) * 255).byte(), stream(5))
    outputs = list(scene_network()(seen))
    for layer, output in zip(scene_network(), outputs, strict=True):
        for cells, mean, deviation in zip(output[1:], layer.mean, layer.deviation, strict=True):
            assert float((cells.mean((0, 2, 3)) - mean).square().mean().sqrt()) < 0.25 * float(deviation)
            found = (cells - mean[:, None, None]).square().mean().sqrt()
            assert math.isclose(float(found), float(deviation), rel_tol=0.15)
    sizes = torch.cat([each.squares.mean((0, 2, 3)) for each in outputs])
    assert float(sizes.quantile(0.05)) > 0.5
    assert float(sizes.quantile(0.95)) < 2.0
    lengths = PerceptualFeatures((3, VIEW, VIEW))(seen).norm(dim=1)
    assert float((lengths < 0.999).float().mean()) > 0.8  # a cut vector is 1 long
    assert 0.4 < float(lengths.median()) < 0.9
