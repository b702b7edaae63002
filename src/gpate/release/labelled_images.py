"""Images of given classes from a generator with a labeller (`gpate.generators.labeller`).

Images are drawn until the labeller sees the wanted class in as many as are needed: of the images asked for that class where
the two must agree, else of images asked for any class. After `TURNS` turns the images in which it sees the class most clearly
are taken. All of it is post-processing of the release.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gpate.generators import GeneratorSpec, draw
from gpate.torch_utils import matmul_precision

TURNS = 50
"""Draws of a block before the best of what was drawn is taken."""


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """How the images of a sample got their labels: counts of synthetic images, free to publish.

    Attributes:
        drawn: images that were looked at.
        accepted: in which the labeller saw a class that was wanted.
        forced: taken after all turns, because it saw the wanted class in too few.
    """

    drawn: int = 0
    accepted: int = 0
    forced: int = 0

    def __add__(self, other: Labelled) -> Labelled:
        return Labelled(
            drawn=self.drawn + other.drawn, accepted=self.accepted + other.accepted, forced=self.forced + other.forced
        )

    def __str__(self) -> str:
        kept = max(self.accepted + self.forced, 1)
        forced = f"; {self.forced / kept:.1%} of those kept are only the nearest" if self.forced else ""
        return f"{self.accepted / max(self.drawn, 1):.1%} of the images drawn were accepted{forced}"


@torch.no_grad()
def labelled_images(
    network: nn.Module, spec: GeneratorSpec, wanted: Tensor, stream: torch.Generator
) -> tuple[Tensor, Labelled]:
    """One image for each wanted label, [m, dims], as bytes / 255.

    Args:
        network: the generator, with its labeller.
        spec: of both.
        wanted: the class of each image.
        stream: of latents and of the classes that are asked for.
    """
    assert spec.labeller is not None
    labeller = network.get_submodule("labeller")
    device = next(network.parameters()).device
    made = torch.zeros(len(wanted), spec.dims)
    open_ = torch.ones(len(wanted), dtype=torch.bool)
    nearest: dict[int, tuple[Tensor, Tensor]] = {}  # of each class that lacks images: how clearly it is seen in which
    drawn = 0
    for _ in range(TURNS):
        asked = wanted[open_]
        if not spec.labeller.agree:
            asked = torch.randint(spec.classes, (len(wanted),), generator=stream)
        images = (draw(network, spec, asked, stream) * 255).round() / 255
        with matmul_precision("highest"):
            likely = torch.log_softmax(labeller(images.to(device)), 1).cpu()
        seen = likely.argmax(1)
        drawn += len(asked)
        used = torch.zeros(len(asked), dtype=torch.bool)
        for c in sorted(set(wanted[open_].tolist())):
            free = torch.nonzero(open_ & (wanted == c))[:, 0]
            fits = (seen == c) & (asked == c) if spec.labeller.agree else seen == c
            found = torch.nonzero(fits)[:, 0][: len(free)]
            filled = free[: len(found)]
            made[filled], open_[filled], used[found] = images[found], False, True
        lacking = wanted[open_].bincount(minlength=spec.classes)
        for c in torch.nonzero(lacking)[:, 0].tolist():
            before, shown = nearest.get(c, (likely.new_empty(0), images[:0]))
            clear, shown = torch.cat([before, likely[~used, c]]), torch.cat([shown, images[~used]])
            best = clear.topk(min(int(lacking[c]), len(clear)))
            nearest[c] = best.values, shown[best.indices]
        if not open_.any():
            break
    for c in set(wanted[open_].tolist()):
        made[open_ & (wanted == c)] = nearest[c][1]
    forced = int(open_.sum())
    return made, Labelled(drawn=drawn, accepted=len(wanted) - forced, forced=forced)
