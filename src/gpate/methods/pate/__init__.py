"""The paper's method: teachers vote on how the generator should change; and votes that refine an embedding."""

from gpate.methods.pate.method import PateMethod
from gpate.methods.pate.refinement import RefinedMethod, Refinement
from gpate.methods.pate.settings import Following, Mechanism, Training
from gpate.methods.pate.tuned import TunedMethod

__all__ = ["Following", "Mechanism", "PateMethod", "RefinedMethod", "Refinement", "Training", "TunedMethod"]
