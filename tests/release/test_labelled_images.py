"""Images that get their labels from a labeller: which are kept, and what becomes of those that nobody sees."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from gpate.generators import GeneratorSpec
from gpate.generators.labeller import LabellerSpec
from gpate.release.labelled_images import TURNS, labelled_images

SPEC = GeneratorSpec(kind="image", classes=3, width=16, height=16, latent=2, labeller=LabellerSpec(scales=1, filters=0))


class Network(nn.Module):
    """Draws a class at random, at the first pixel, and at the second the class that it was asked for."""

    def __init__(self, never: int | None = None) -> None:
        super().__init__()
        self.weight, self.never, self.labeller = nn.Parameter(torch.zeros(1)), never, Seen()

    def forward(self, latents: Tensor, asked: Tensor) -> Tensor:
        drawn = ((latents[:, 0] + 1) / 2 * 3).long().clamp(max=2)
        if self.never is not None:
            drawn = torch.where(drawn == self.never, (drawn + 1) % 3, drawn)
        images = torch.zeros(len(latents), 256)
        images[:, 0], images[:, 1] = drawn * 10 / 255, asked * 10 / 255
        return images


class Seen(nn.Module):
    """Sees the first pixel."""

    def forward(self, images: Tensor) -> Tensor:
        return -(images.flatten(1)[:, :1] * 25.5 - torch.arange(3.0)).abs()


def drawn(spec: GeneratorSpec, network: Network, wanted: Tensor) -> tuple[Tensor, Tensor, object]:
    images, how = labelled_images(network, spec, wanted, torch.Generator().manual_seed(0))
    pixels = (images[:, :2] * 25.5).round().long()
    return pixels[:, 0], pixels[:, 1], how


@pytest.mark.parametrize("agree", [True, False])
def test_every_image_shows_the_wanted_class_and_was_asked_for_it_where_they_must_agree(agree: bool) -> None:
    wanted = torch.arange(300) % 3
    spec = replace(SPEC, labeller=replace(SPEC.labeller, agree=agree))  # type: ignore[type-var]
    seen, asked, how = drawn(spec, Network(), wanted)
    assert torch.equal(seen, wanted)
    assert torch.equal(asked, wanted) == agree
    assert how.drawn >= how.accepted == 300  # type: ignore[attr-defined]
    assert how.forced == 0  # type: ignore[attr-defined]


def test_a_class_that_is_never_seen_ends_after_all_turns_with_the_nearest() -> None:
    spec = replace(SPEC, labeller=replace(SPEC.labeller, agree=False))  # type: ignore[type-var]
    seen, _, how = drawn(spec, Network(never=0), torch.tensor([0] * 20 + [2] * 20))
    assert how.forced == 20  # type: ignore[attr-defined]
    assert how.drawn == 40 * TURNS  # type: ignore[attr-defined]
    assert set(seen[:20].tolist()) == {1}  # the class beside it
    assert set(seen[20:].tolist()) == {2}


class Shades(nn.Module):
    """Draws grey images, the brightest first and in the first turn; the labeller sees class 0 nowhere, but in the brighter ones more."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.labeller, self.shown = nn.Parameter(torch.zeros(1)), Brightness(), list[Tensor]()

    def forward(self, latents: Tensor, asked: Tensor) -> Tensor:
        images = ((latents[:, :1] + 1) / 2).sort(0, descending=True).values.expand(-1, 256)
        images = 0.6 * images if self.shown else images
        self.shown.append(images[:, 0])
        return images


class Brightness(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        bright = images.flatten(1)[:, :1]
        return torch.cat([bright - 5, (bright > 0.5).float(), (bright <= 0.5).float()], 1)


@pytest.mark.parametrize("agree", [True, False])
def test_those_taken_as_the_nearest_are_the_nearest_of_all_drawn_and_no_others_image(agree: bool) -> None:
    spec = replace(SPEC, labeller=replace(SPEC.labeller, agree=agree))  # type: ignore[type-var]
    network, wanted = Shades(), torch.tensor([1] * 20 + [0] * 20)
    images, how = labelled_images(network, spec, wanted, torch.Generator().manual_seed(0))
    assert (how.accepted, how.forced) == (20, 20)
    shades = (torch.cat(network.shown) * 255).round()
    got = (images[:, 0] * 255).round()
    accepted = got[:20]
    rest = shades.sort(descending=True).values.tolist()
    for shade in accepted.tolist():
        rest.remove(shade)
    assert sorted(got[20:].tolist(), reverse=True) == rest[:20]
