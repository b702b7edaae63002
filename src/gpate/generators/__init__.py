"""Generators, trained on released values only. Does not import `gpate.records`.

Two kinds with one interface: networks (images, and tables as in the paper), and mixtures of products (tables). A spec
describes a generator; `build_generator` builds it, `draw` samples records.
"""

from gpate.generators.generator_spec import GeneratorSpec
from gpate.generators.interface import Spec, build_generator, draw, spec_for, spec_from_json, spec_to_json
from gpate.generators.mixture import MixtureSpec
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
