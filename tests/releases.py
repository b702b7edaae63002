"""Small releases for tests, as a run of the paper's method writes them: a student, a gate on disk, a few paid events."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from gpate.accounting import Budget, NoisyMaxThreshold
from gpate.boundary import ExactNoise, Gate, Noise
from gpate.generators import GeneratorSpec, Student
from gpate.methods.pate import Mechanism, Training
from gpate.methods.settings import Settings
from gpate.release import Certificate, write_release
from gpate.schema import ImageSchema, Schema, TableSchema
from gpate.schema.codec import TableCodec
from gpate.streams import Streams
from tests.processes import FEW_LATENTS

IMAGES = ImageSchema(height=8, width=8, classes=("cat", "dog", "../../etc"))
TABLE = Schema.from_dict(
    {
        "kind": "table",
        "target": "income",
        "columns": {
            "age": {"type": "integer", "bounds": [17, 90]},
            "fare": {"type": "numeric", "bounds": [0.5, 512], "scale": "log", "missing": True},
            "job": {"type": "categorical", "categories": ["Clerk", "Cook", 'a "b", c'], "missing": True},
            "grade": {"type": "categorical", "categories": [1, 2, 3]},
            "married": {"type": "boolean", "missing": True},
            "joined": {"type": "datetime", "bounds": ["2001-01-01", "2024-12-31"], "unit": "day"},
            "seen": {"type": "datetime", "bounds": ["2024-01-01", "2024-01-31"]},
            "income": {"type": "categorical", "categories": ["<=50K", ">50K"]},
        },
    }
)


ASKED = 2
"""Coordinates that are voted on in an iteration."""

SETTINGS = Settings(
    recipe="test",
    source="tests",
    method="votes",
    groups={
        "mechanism": Mechanism(
            teachers=8, samples=ASKED, projected_dims=1, threshold_sigma=40.0, vote_sigma=40.0, outside_share=0.0
        ),
        "training": Training(latent=6, iterations=3),
    },
).to_json()
"""Three iterations; in none of them did a coordinate pass."""


def spec_for(schema: TableSchema | ImageSchema) -> GeneratorSpec:
    classes = max(1, len(schema.classes))
    if isinstance(schema, ImageSchema):
        size = {"channels": schema.channels, "height": schema.height, "width": schema.width}
        return GeneratorSpec(kind="image", classes=classes, latent=6, **size)
    codec = TableCodec(schema)
    softmax = tuple((block.start, block.stop) for block in codec.blocks if block.kind == "onehot")
    return GeneratorSpec(kind="table", classes=classes, width=codec.width, latent=6, softmax=softmax)


def student_for(schema: TableSchema | ImageSchema, **settings: Any) -> Student:
    made = Student(spec_for(schema), init=Streams(0).torch("init"), **settings)
    if schema.kind == "image":  # the paper's start gives grey images only; a release should show its classes apart
        for parameter in made.network.parameters():
            parameter.data.mul_(6.0 if parameter.ndim > 1 else 1.0)
    with mock.patch("gpate.generators.student._REFRESH", FEW_LATENTS):
        made.finish(Streams(0).torch("finish"))
    return made


def paid_gate(folder: Path, *, noise: Noise | None = None, epsilon: float = 1.0, memory: bool = False) -> Gate:
    budget = Budget(epsilon=epsilon, delta=1e-5)
    gate = Gate.in_memory(budget, noise) if memory else Gate.create(folder / "ledger.jsonl", budget, noise)
    for _ in range(3):
        event = NoisyMaxThreshold(sigma=40.0, grid=gate.grid(40.0), count=ASKED)
        gate.pay(event, purpose="threshold").perturb(np.zeros(ASKED, dtype=np.int64))
    return gate


def make_release(
    folder: Path, schema: TableSchema | ImageSchema = TABLE, *, noise: Noise | None = None, **changes: Any
) -> Certificate:
    """A finished release in a new folder."""
    folder.mkdir(parents=True)
    memory, epsilon = changes.pop("memory", False), changes.pop("epsilon", 1.0)
    student = student_for(schema)
    with paid_gate(folder, noise=noise or ExactNoise(), epsilon=epsilon, memory=memory) as gate:
        arguments: dict[str, Any] = {
            "spec": student.spec,
            "weights": student.network.state_dict(),
            "shares": student.proportions.tolist(),
            "schema": schema,
            "ledger": gate.ledger,
            "settings": SETTINGS,
            "not_for_release": gate.not_for_release,
        }
        return write_release(folder, **{**arguments, **changes})
