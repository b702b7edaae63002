"""The paper's method: teachers vote on how the generator should change; and votes that refine an embedding."""

from gpate.methods.pate.method import PateMethod
from gpate.methods.pate.refinement import RefinedMethod, Refinement
from gpate.methods.pate.settings import Mechanism, Training

__all__ = ["Mechanism", "PateMethod", "RefinedMethod", "Refinement", "Training"]
