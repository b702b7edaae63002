"""Methods: each turns private records into a generator, behind one protocol (`gpate.methods.base`) and one registry."""

from gpate.methods.base import Method, method_named, methods, register
from gpate.methods.baselines import DPGANMethod, GSWGANMethod, PATEGANMethod, TunedPATEGANMethod
from gpate.methods.embedding import EmbeddingMethod
from gpate.methods.marginals import MarginalsMethod
from gpate.methods.pate import PateMethod, RefinedMethod, TunedMethod

for _method in (
    PateMethod(),
    EmbeddingMethod(),
    MarginalsMethod(),
    RefinedMethod(),
    TunedMethod(),
    DPGANMethod(),
    PATEGANMethod(),
    TunedPATEGANMethod(),
    GSWGANMethod(),
):
    register(_method)

__all__ = ["Method", "method_named", "methods", "register"]
