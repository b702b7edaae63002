"""Generators that learn from released values only. Nothing here can see `gpate.records`.

Two kinds behind one interface: networks (images, and tables after the paper), and mixtures of products (tables). A spec
says which; `build_generator` makes it, `draw` makes records with it.
"""

from gpate.generators.interface import Spec, build_generator, draw, spec_for, spec_from_json, spec_to_json
from gpate.generators.mixture import MixtureSpec
from gpate.generators.networks import GeneratorSpec
from gpate.generators.student import Student

__all__ = [
    "GeneratorSpec",
    "MixtureSpec",
    "Spec",
    "Student",
    "build_generator",
    "draw",
    "spec_for",
    "spec_from_json",
    "spec_to_json",
]
