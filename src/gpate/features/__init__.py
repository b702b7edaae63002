"""Public feature maps with bounded norm: summed by the gate and matched by the generator."""

from gpate.features.feature_map import Combined, Composed, FeatureMap, Pixels, Transform, Unit
from gpate.features.fourier import FourierFeatures, fourier_features, typical_distance
from gpate.features.learned import LearnedFeatures, Learner, Stacked, learn_features
from gpate.features.scattering import LumaScattering, Scattering, scales_for

__all__ = [
    "Combined",
    "Composed",
    "FeatureMap",
    "FourierFeatures",
    "LearnedFeatures",
    "Learner",
    "LumaScattering",
    "Pixels",
    "Scattering",
    "Stacked",
    "Transform",
    "Unit",
    "fourier_features",
    "learn_features",
    "scales_for",
    "typical_distance",
]
