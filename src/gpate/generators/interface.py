"""The interface of all generators: a spec of public numbers, a module with weights, and `draw`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import torch
from torch import Tensor, nn

from gpate.errors import InvalidValue
from gpate.generators.generator_spec import GeneratorSpec
from gpate.generators.mixture import Mixture, MixtureSpec
from gpate.generators.moves import moved_in_margins
from gpate.generators.networks import build_network
from gpate.schema import ImageSchema, TableSchema
from gpate.schema.codec import TableCodec
from gpate.torch_utils import matmul_precision

Spec = GeneratorSpec | MixtureSpec


def build_generator(spec: Spec) -> nn.Module:
    """Build the generator of a spec, without trained weights."""
    return Mixture(spec) if isinstance(spec, MixtureSpec) else build_network(spec)


@torch.no_grad()
def draw(
    generator: nn.Module, spec: Spec, labels: Tensor, stream: torch.Generator, *, points: Tensor | None = None
) -> Tensor:
    """Sample encoded records, one for each label, [m, width]; a mixture takes points (`gpate.generators.points`).

    A network on a GPU computes in full single precision: its records are those of a CPU up to rounding.
    """
    if isinstance(generator, Mixture):
        return generator.draw(labels, stream, points=points)
    assert isinstance(spec, GeneratorSpec)
    device = next(generator.parameters()).device
    with matmul_precision("highest"), torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        records: Tensor = generator(spec.latents(len(labels), stream).to(device), labels.to(device))
        if spec.margin_moves:
            records = moved_in_margins(records.view(-1, *spec.shape), spec.margin_moves, stream).flatten(1)
    return records.cpu()


def spec_to_json(spec: Spec) -> dict[str, Any]:
    """Plain data; `kind` is `mixture`, or for a network the kind of its records."""
    return {"kind": "mixture", **spec.to_json()} if isinstance(spec, MixtureSpec) else spec.to_json()


def spec_from_json(data: Mapping[str, Any]) -> Spec:
    """The inverse of `spec_to_json`.

    Raises:
        KeyError: a field is missing or unknown.
        TypeError, ValueError: a field is invalid.
    """
    mixture = data["kind"] == "mixture"
    known: type[Any] = MixtureSpec if mixture else GeneratorSpec
    given = {name: value for name, value in data.items() if not (mixture and name == "kind")}
    names = {f.name for f in fields(known)}
    needed = {f.name for f in fields(known) if f.default is MISSING}
    if not needed <= set(given) <= names:
        raise KeyError("kind")
    spec: Spec = known(**given)
    return spec


def spec_for(schema: TableSchema | ImageSchema, *, latent: int) -> GeneratorSpec:
    """The network that generates such records: the schema alone decides it.

    Raises:
        InvalidValue: there is none, so that no method can be fitted to them.
    """
    classes = max(1, len(schema.classes))
    if isinstance(schema, ImageSchema):
        channels, height, width = schema.channels, schema.height, schema.width
        return GeneratorSpec(
            kind="image", classes=classes, latent=latent, channels=channels, height=height, width=width
        )
    if not schema.features:
        raise InvalidValue("columns", schema.names, "at least one beside the target", "There is nothing else to learn.")
    table = TableCodec(schema)
    softmax = tuple((block.start, block.stop) for block in table.blocks if block.kind == "onehot")
    return GeneratorSpec(kind="table", classes=classes, latent=latent, width=table.width, softmax=softmax)
