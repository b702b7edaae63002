"""Features of patches: what they see, and that no photograph is needed for them."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.features.patches import PATCH, Patches, dead_leaves, patch_bank, pooled
from gpate.torch_utils import has_triton


def test_a_flat_image_has_no_features_and_brightness_does_not_matter() -> None:
    phi = Patches((3, 32, 32), patch_bank(3, filters=16), grid=2)
    assert float(phi(torch.full((1, 3, 32, 32), 0.4)).abs().max()) < 1e-5
    image = 0.5 * dead_leaves(1, torch.Generator().manual_seed(3))
    assert torch.allclose(phi(image), phi(image + 0.3), atol=1e-3)


def test_responses_are_products_with_normalised_patches() -> None:
    """Against a slow loop over patches."""
    bank = patch_bank(1, filters=4)
    image = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    found = Patches((1, 8, 8), bank, grid=1)(image)[0]
    threshold = 0.075 * PATCH
    total = torch.zeros(8)
    for row in range(3):
        for column in range(3):
            patch = image[0, :, row : row + PATCH, column : column + PATCH]
            patch = (patch - patch.mean()) / (patch.var() + 10 / 255).sqrt()
            response = (bank * patch).sum((1, 2, 3))
            total += torch.cat([F.relu(response - threshold), F.relu(-response - threshold)]) / 9
    assert torch.allclose(found, total, atol=1e-4)


def test_large_images_are_halved_and_the_bank_is_always_the_same() -> None:
    assert Patches((3, 64, 64), patch_bank(3, filters=2), grid=2).halvings == 1
    assert Patches((1, 28, 28), patch_bank(1, filters=2), grid=2).halvings == 0
    again = patch_bank.__wrapped__(1, filters=2)
    assert torch.equal(again, patch_bank(1, filters=2))
    assert patch_bank(3, filters=0).shape == (0, 3, PATCH, PATCH)


@pytest.mark.skipif(not torch.cuda.is_available() or not has_triton(), reason="needs a GPU with Triton")
@pytest.mark.parametrize(("filters", "size", "grid"), [(256, 27, 4), (40, 9, 4), (33, 23, 8)])
def test_the_kernels_pool_as_torch_does(filters: int, size: int, grid: int) -> None:
    """Values and gradients, in double precision as the reference; and a record's are the same in any batch."""
    stream = torch.Generator().manual_seed(0)
    each = torch.eye(size**2).view(-1, 1, size, size)
    fields = F.adaptive_avg_pool2d(each, grid).flatten(1)
    responses = torch.randn(5, filters, size**2, generator=stream)
    contrast = torch.rand(5, size**2, generator=stream) + 0.2
    towards = torch.randn(5, 2 * filters, grid**2, generator=stream)

    def found(device: str, dtype: torch.dtype) -> list[torch.Tensor]:
        leaves = [part.to(device, dtype).requires_grad_() for part in (responses, contrast)]
        out = pooled(leaves[0], leaves[1], fields.to(device, dtype), 0.3)
        slopes = torch.autograd.grad((out * towards.to(device, dtype)).sum(), leaves)
        return [part.detach().cpu().double() for part in (out, *slopes)]

    for kernels, slow in zip(found("cuda", torch.float32), found("cpu", torch.float64), strict=True):
        assert (kernels - slow).norm() <= 1e-3 * slow.norm()
    with torch.no_grad():
        parts = [responses.cuda(), contrast.cuda()]
        together = pooled(*parts, fields.cuda(), 0.3)
        alone = torch.cat([pooled(*(part[i : i + 1] for part in parts), fields.cuda(), 0.3) for i in range(5)])
    assert torch.equal(together, alone)
