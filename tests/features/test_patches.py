"""Features of patches: what they see, and that no photograph is needed for them."""

from __future__ import annotations

import torch
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.features.patches import PATCH, Patches, dead_leaves, patch_bank


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
