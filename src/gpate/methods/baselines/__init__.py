"""Other authors' systems, under the same accounting: DP-GAN, PATE-GAN, GS-WGAN. (DP-MERF is a recipe of the embedding.)"""

from gpate.methods.baselines.dpgan import DPGAN, DPGANMethod
from gpate.methods.baselines.gswgan import GSWGAN, GSWGANMethod
from gpate.methods.baselines.pategan import PATEGAN, PATEGANMethod
from gpate.methods.baselines.pategan_tuned import TunedPATEGAN, TunedPATEGANMethod

__all__ = [
    "DPGAN",
    "GSWGAN",
    "PATEGAN",
    "DPGANMethod",
    "GSWGANMethod",
    "PATEGANMethod",
    "TunedPATEGAN",
    "TunedPATEGANMethod",
]
