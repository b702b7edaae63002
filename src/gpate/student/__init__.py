"""The student: generators that are trained on released signals only. Nothing here can see `gpate.private`."""

from gpate.student.networks import GeneratorSpec, build_generator
from gpate.student.student import Student

__all__ = ["GeneratorSpec", "Student", "build_generator"]
