"""The generator of a release: its spec, class proportions and weights, checked against each other and the schema.

**Guarantee.** The weights are exactly those of the spec's network: the same names, shapes and types, and finite numbers.
A teacher's tensor, an optimiser's state or a stray buffer cannot be written. Shapes come from the network on torch's
`meta` device: an untrusted spec is checked before any memory is allocated for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from gpate.errors import GpateError, ReleaseCorrupt, ReleaseRefused, ReleaseVersion
from gpate.features.table_cells import TableCells
from gpate.generators import MixtureSpec, Spec, build_generator, spec_from_json, spec_to_json
from gpate.generators.generator_spec import SINCE_0_1_0, SINCE_0_2_0
from gpate.release import release_files as files
from gpate.safe_parsing import attempt
from gpate.schema import ImageSchema, TableSchema
from gpate.schema.codec import TableCodec

CONFIG_VERSION = 3
"""The latest. A file has the lowest that its generator allows, so that older versions of the library read it."""
_PARTS = {2: (*SINCE_0_1_0, "by_value"), 3: SINCE_0_2_0}
"""Of a generator, by the version that they need."""
_SHARES_TOLERANCE = 1e-6
_MOST_HEADER = 2**21
"""Bytes of names and shapes of the tensors: some hundred for each."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Content of `config.json`.

    Attributes:
        spec: the generator's spec.
        shares: class proportions, for sampling labels.
        settings: the recipe, as its method wrote it. Public.
        notes: warnings of the run, computed from settings and released values. Public.
    """

    spec: Spec
    shares: tuple[float, ...]
    settings: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """The file."""
        generator = spec_to_json(self.spec)
        used = {name for part in (generator, generator.get("labeller") or {}) for name, value in part.items() if value}
        content = {
            "gpate_config": max((v for v, parts in _PARTS.items() if used.intersection(parts)), default=1),
            "generator": generator,
            "shares": self.shares,
            "settings": self.settings,
            "notes": self.notes,
        }
        return files.to_json(content)

    @classmethod
    def from_bytes(cls, content: bytes) -> Config:
        """The inverse of `to_bytes`."""
        data = files.from_json(content, files.CONFIG)
        version = data.get("gpate_config")
        if isinstance(version, int) and version > CONFIG_VERSION:
            raise ReleaseVersion(
                f"{files.CONFIG} is of version {version}; this gpate reads up to {CONFIG_VERSION}. Fix: upgrade gpate."
            )

        def made() -> Config:
            if not isinstance(data["generator"], dict) or not isinstance(data["settings"], dict):
                raise KeyError
            shares = tuple(float(share) for share in data["shares"])
            notes = data.get("notes", [])  # absent in old releases
            if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
                raise TypeError
            spec = spec_from_json(data["generator"])
            return cls(spec=spec, shares=shares, settings=data["settings"], notes=tuple(notes))

        try:
            config = attempt(made)
        except GpateError as problem:
            raise ReleaseCorrupt(f"{files.CONFIG} does not describe a generator: {problem}") from problem
        if config is None:
            raise ReleaseCorrupt(
                f"{files.CONFIG} does not describe a generator: an entry is missing, or of another type."
            )
        return config


def fit_problems(config: Config, schema: TableSchema | ImageSchema) -> list[str]:
    """Contradictions between spec, class proportions and schema; empty if they agree."""
    spec, shares = config.spec, config.shares
    problems = _layout_problems(spec, schema)
    if spec.classes != max(1, len(schema.classes)):
        problems.append(f"the generator has {spec.classes} classes, the schema {max(1, len(schema.classes))}")
    valid = all(math.isfinite(share) and share >= 0 for share in shares)
    if len(shares) != spec.classes or not valid or abs(math.fsum(shares) - 1) > _SHARES_TOLERANCE:
        problems.append(f"class proportions must be {spec.classes} numbers that sum to 1, and are {list(shares)}")
    return problems


def _layout_problems(spec: Spec, schema: TableSchema | ImageSchema) -> list[str]:
    """Differences between the layout of generated records and the schema's."""
    if isinstance(schema, ImageSchema):
        expected: dict[str, object] = {
            "kind": "image",
            "channels": schema.channels,
            "height": schema.height,
            "width": schema.width,
            "softmax": (),
        }
    else:
        codec = TableCodec(schema)
        if isinstance(spec, MixtureSpec) and spec.by_value:
            parts = [(c.kind, c.start, c.missing, None if c.kind == "number" else c.cells) for c in spec.columns]
            cells = TableCells(schema)
            wanted_parts = [
                (c.kind, c.place, c.missing, None if c.kind == "number" else c.cells) for c in cells.columns
            ]
            same = spec.width == cells.width and parts == wanted_parts
            return [] if same else ["the mixture's columns are not the schema's"]
        if isinstance(spec, MixtureSpec):
            found = [(c.kind, c.start, c.cells if c.kind == "onehot" else None) for c in spec.columns]
            wanted = [
                (b.kind, b.start, b.size if b.kind == "onehot" else None) for b in codec.blocks if b.kind != "missing"
            ]
            gaps = {block.start - 1 for block in codec.blocks if block.kind == "missing"}
            agree = all(c.kind == "onehot" or c.missing == (c.start in gaps) for c in spec.columns)
            same = spec.width == codec.width and found == wanted and agree
            return [] if same else ["the mixture's columns are not the schema's"]
        onehot = tuple((block.start, block.stop) for block in codec.blocks if block.kind == "onehot")
        expected = {"kind": "table", "channels": 1, "height": 1, "width": codec.width, "softmax": onehot}
    if isinstance(spec, MixtureSpec):
        return [f"the generator is a mixture of columns, the schema is of a {schema.kind}"]
    return [
        f"the generator's {name} is {getattr(spec, name)!r}, the schema's {value!r}"
        for name, value in expected.items()
        if getattr(spec, name) != value
    ]


def _skeleton(spec: Spec) -> nn.Module:
    """The network without memory for its weights; does not use torch's global random state."""
    with torch.device("meta"):
        return build_generator(spec)


def weight_problems(spec: Spec, weights: Mapping[str, Tensor]) -> list[str]:
    """Names, shapes and types that differ from the spec's network; empty if none does."""
    expected = attempt(lambda: _skeleton(spec).state_dict())
    if expected is None:  # sizes beyond what a tensor can have
        return ["no network has this spec"]
    problems = [f"{name} is missing" for name in expected if name not in weights]
    problems += [f"{name!r} is not part of the generator" for name in weights if name not in expected]
    for name, tensor in weights.items():
        if (model := expected.get(name)) is None:
            continue
        if tensor.shape != model.shape or tensor.dtype != model.dtype:
            found, wanted = (f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in (tensor, model))
            problems.append(f"{name} is {found} instead of {wanted}")
    return problems


def mixture_problems(spec: MixtureSpec, weights: Mapping[str, Tensor]) -> list[str]:
    """Invalid numbers of a mixture: negative or all-zero weights, cells without a group, ends out of order."""
    problems = []
    for c, sizes in enumerate(spec.groups):
        for name in ("weights", "tables", "inside"):
            if bool((weights[f"{c}.{name}"] < 0).any()):
                problems.append(f"{c}.{name} contains a negative weight")
        parts = torch.split(weights[f"{c}.tables"], list(sizes), 1) if sizes else ()
        if not all(bool((part.sum(1) > 0).all()) for part in (weights[f"{c}.weights"][None], *parts)):
            problems.append(f"class {c} has weights that are all zero")
        own = torch.split(weights[f"{c}.group_of"], [column.cells for column in spec.columns])
        if any(sorted(set(groups.tolist())) != list(range(size)) for groups, size in zip(own, sizes, strict=True)):
            problems.append(f"{c}.group_of does not put every cell into a group")
    low, high = weights["low"], weights["high"]
    if not bool((low <= high).all()) or not (spec.by_value or bool(((low >= 0) & (high <= 1)).all())):
        problems.append("low and high are not the ends of cells")
    if spec.by_value and not bool((weights["tilt"].abs() <= 1).all()):
        problems.append("tilt is not between -1 and 1")
    return problems


def infinite_weights(weights: Mapping[str, Tensor]) -> list[str]:
    """Names of tensors that contain NaN or infinity."""
    return [name for name, tensor in weights.items() if not bool(torch.isfinite(tensor).all())]


def weights_to_bytes(spec: Spec, weights: Mapping[str, Tensor]) -> bytes:
    """The bytes of the weights file.

    Raises:
        ReleaseRefused: the weights are not exactly the generator's, or not finite.
    """
    problems = weight_problems(spec, weights)
    if problems:
        raise ReleaseRefused(
            f"The weights are not exactly the generator's: {shortened(problems)}. "
            "Fix: pass student.network.state_dict() and nothing else."
        )
    if broken := infinite_weights(weights):
        raise ReleaseRefused(f"The generator has weights that are not finite: {shortened(broken)}. Fix: train again.")
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}
    return safetensors.torch.save(own)


def weights_from_bytes(content: bytes) -> dict[str, Tensor]:
    """The inverse of `weights_to_bytes`, unchecked against any spec."""
    if int.from_bytes(content[:8], "little") > _MOST_HEADER:
        raise ReleaseCorrupt(
            f"{files.WEIGHTS} lists more tensors than a generator has, in more than {_MOST_HEADER:,} bytes."
        )
    weights = attempt(lambda: safetensors.torch.load(content))
    if weights is None:
        raise ReleaseCorrupt(f"{files.WEIGHTS} is not a safetensors file that torch can read.")
    return weights


def network_from(spec: Spec, weights: Mapping[str, Tensor]) -> nn.Module:
    """The generator, ready for sampling."""
    if problems := weight_problems(spec, weights):
        raise ReleaseCorrupt(f"{files.WEIGHTS} does not fit {files.CONFIG}: {shortened(problems)}.")
    if isinstance(spec, MixtureSpec) and (problems := mixture_problems(spec, weights)):
        raise ReleaseCorrupt(f"{files.WEIGHTS} is not a valid mixture: {shortened(problems)}.")
    network = _skeleton(spec)
    network.load_state_dict(dict(weights), assign=True)
    return network.requires_grad_(False).eval()


def shortened(names: Sequence[str], most: int = 5) -> str:
    """The first few items of a list, and the number of others."""
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more
