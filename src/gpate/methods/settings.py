"""Settings of a run, in groups: what defines mechanism and student, by method, and what only affects speed.

`Settings.changed` applies `--set key=value`. Which settings suit which records is for `gpate.methods.recipes` to say.

    >>> Settings(recipe="own", source="here").changed({"teachers": "200"}).mechanism.teachers
    200
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpate.accounting import Event, GNMax, NoisyMaxThreshold
from gpate.boundary import DPGradAgg
from gpate.errors import InvalidValue
from gpate.methods.baselines.dpgan import DPGAN
from gpate.methods.baselines.gswgan import GSWGAN
from gpate.methods.baselines.pategan import PATEGAN
from gpate.methods.baselines.shared import Adversarial
from gpate.methods.embedding.method import Embedding
from gpate.methods.marginals.method import Marginals
from gpate.methods.pate.refinement import Refinement


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """What defines the mechanism: everything the guarantee depends on, and what is asked.

    Attributes:
        teachers: n; None lets the recipe choose it from the noisy number of records.
        samples: m, records of the student voted on in one iteration.
        projected_dims: k; None votes on every coordinate.
        clip: c.
        bins: B.
        threshold: T, as a share of the teachers.
        threshold_sigma: sigma_1.
        vote_sigma: sigma_2.
        counts_epsilon: pure epsilon for the noisy class counts, out of the total; 0 takes all classes as equally
            likely.
        outside_share: share of the budget (of its mu^2) for telling how many values of each column of a table lay outside
            the declared domain; 0 does not tell.
        accountant: decides when the budget is spent; `auto` is exact, `rdp-paper` is the paper's.
        noiseless: no votes and no noise at all: epsilon is infinite, and the release is stamped so.
    """

    teachers: int | None = 4000
    samples: int = 15
    projected_dims: int | None = 10
    clip: float = 1e-4
    bins: int = 10
    threshold: float = 0.5
    threshold_sigma: float = 3000.0
    vote_sigma: float = 1000.0
    counts_epsilon: float = 0.0
    outside_share: float = 0.001
    accountant: str = "auto"
    noiseless: bool = False

    def aggregator(self) -> DPGradAgg:
        """The paper's Algorithm 2 with these numbers."""
        if self.teachers is None:
            raise InvalidValue("teachers", None, "chosen before the vote")
        return DPGradAgg(
            teachers=self.teachers,
            projected_dims=self.projected_dims,
            clip=self.clip,
            bins=self.bins,
            threshold=self.threshold,
            threshold_sigma=self.threshold_sigma,
            vote_sigma=self.vote_sigma,
        )

    def iteration(self, dims: int) -> list[Event]:
        """The most that one iteration can cost."""
        queries = self.samples * (self.projected_dims or dims)
        return [
            NoisyMaxThreshold(sigma=self.threshold_sigma, count=queries),
            GNMax(sigma=self.vote_sigma, bins=self.bins, count=queries),
        ]


@dataclass(frozen=True, kw_only=True)
class Training:
    """What defines the student and its teachers.

    Attributes:
        teacher: `paper` (appendix E), `official` (the authors' code) or another of `gpate.records.teachers.networks.TEACHERS`.
        teacher_batch: real records per teacher and iteration.
        saturating: the paper's equation 1; otherwise the usual non-saturating loss.
        learning_rate: Adam's, of student and teachers.
        latent: length of the latent vector.
        iterations: at most this many; None until the budget is spent.
        balanced: all classes equally often, in what the student proposes and in a teacher's minibatches as far as it holds them.
            A rare class is hardly learnt otherwise. What is sampled in the end follows the class counts, if they were released.
    """

    teacher: str = "official"
    teacher_batch: int = 15
    saturating: bool = True
    learning_rate: float = 1e-3
    latent: int = 50
    iterations: int | None = None
    balanced: bool = False


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What changes speed only.

    Attributes:
        device: `auto`, `cpu` or `cuda`.
        chunk: teachers at a time; None plans it from the memory there is.
        checkpoint_seconds: how often the private state is written, so that a resumed run has less to do again.
    """

    device: str = "auto"
    chunk: int | None = None
    checkpoint_seconds: float = 300.0


METHODS: dict[str, tuple[str, ...]] = {
    "votes": ("mechanism", "training", "speed"),
    "embedding": ("embedding", "speed"),
    "marginals": ("marginals", "speed"),
    "refined": ("mechanism", "training", "embedding", "refinement", "speed"),
    "dpgan": ("dpgan", "speed"),
    "pategan": ("pategan", "speed"),
    "gswgan": ("gswgan", "speed"),
}
"""Methods, and the groups of settings that each has."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A recipe: all settings of a run, by name.

    Attributes:
        recipe: its name.
        source: where its numbers are from.
        method: one of METHODS; the groups of other methods mean nothing.
        quick: whether it is a try-out, with less work than the recipe asks for.
        mechanism: of votes: what the guarantee depends on.
        training: of votes: student and teachers.
        embedding: of embedding.
        marginals: of marginals.
        refinement: of refined, which has those of votes and of embedding too.
        dpgan: of dpgan.
        pategan: of pategan.
        gswgan: of gswgan.
        speed: nothing but speed.
    """

    recipe: str
    source: str
    method: str = "votes"
    quick: bool = False
    mechanism: Mechanism = field(default_factory=Mechanism)
    training: Training = field(default_factory=Training)
    embedding: Embedding = field(default_factory=Embedding)
    marginals: Marginals = field(default_factory=Marginals)
    refinement: Refinement = field(default_factory=Refinement)
    dpgan: DPGAN = field(default_factory=DPGAN)
    pategan: PATEGAN = field(default_factory=PATEGAN)
    gswgan: GSWGAN = field(default_factory=GSWGAN)
    speed: Speed = field(default_factory=Speed)

    @property
    def noiseless(self) -> bool:
        """Whether epsilon is infinite."""
        return self.method == "votes" and self.mechanism.noiseless

    @property
    def adversarial(self) -> Adversarial | None:
        """The settings of a baseline; None for other methods."""
        own = getattr(self, METHODS[self.method][0])
        return own if isinstance(own, Adversarial) else None

    def pure(self, epsilon: float) -> float:
        """Pure epsilon to be set aside, for class counts."""
        if self.adversarial is not None:
            return self.adversarial.counts_share * epsilon if math.isfinite(epsilon) else 0.0
        return self.mechanism.counts_epsilon if self.method == "votes" else 0.0

    @property
    def accountant(self) -> str:
        """Decides when the budget is spent."""
        if self.adversarial is not None:
            return self.adversarial.accountant_here()
        return self.mechanism.accountant if self.method == "votes" else "auto"

    @property
    def outside_share(self) -> float:
        """Of the budget, for telling how many values of a table lay outside the declared domain."""
        if self.adversarial is not None:
            return self.adversarial.outside_share
        return self.marginals.outside_share if self.method == "marginals" else self.mechanism.outside_share

    @property
    def latent(self) -> int:
        """Length of the student's latent vector."""
        if self.adversarial is not None:
            return self.adversarial.latent
        return self.training.latent if self.method == "votes" else self.embedding.latent

    def changed(self, changes: Mapping[str, Any]) -> Settings:
        """With some settings changed by their name; a text is read as JSON where it is JSON.

        A setting inside a setting is named with a dot: `matching.steps`.
        """
        new: dict[str, Any] = {}
        for name, value in changes.items():
            group = self._group_of(name)
            given = _read(value) if isinstance(value, str) else value
            new[group] = _with(new.get(group, getattr(self, group)), name.split("."), given, name)
        name = self.recipe + (", changed" if changes and not self.recipe.endswith("changed") else "")
        return dataclasses.replace(self, recipe=name, **new)

    def _group_of(self, name: str) -> str:
        known = {f.name: group for group in METHODS[self.method] for f in dataclasses.fields(getattr(self, group))}
        if name.partition(".")[0] not in known:
            raise InvalidValue("setting", name, f"one of {', '.join(known)}")
        return known[name.partition(".")[0]]

    def to_json(self) -> dict[str, Any]:
        """Plain data: the method's own groups."""
        groups = {group: dataclasses.asdict(getattr(self, group)) for group in METHODS[self.method]}
        return {"recipe": self.recipe, "source": self.source, "method": self.method, "quick": self.quick, **groups}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        """The inverse of `to_json`."""
        plain = cls(recipe=data["recipe"], source=data["source"], method=data["method"], quick=data.get("quick", False))
        groups = {group: _from_plain(type(getattr(plain, group)), data[group]) for group in METHODS[plain.method]}
        return dataclasses.replace(plain, **groups)


def _with(settings: Any, path: list[str], value: Any, name: str) -> Any:
    """A frozen dataclass with one field, or one inside a field, replaced."""
    first, rest = path[0], path[1:]
    fields = [f.name for f in dataclasses.fields(settings)] if dataclasses.is_dataclass(settings) else []
    if first not in fields:
        raise InvalidValue("setting", name, f"one of {', '.join(fields)} after its dot" if fields else "without a dot")
    if rest:
        value = _with(getattr(settings, first), rest, value, name)
    elif dataclasses.is_dataclass(getattr(settings, first)):
        raise InvalidValue(
            "setting", name, f"named in full, e.g. {name}.{dataclasses.fields(getattr(settings, first))[0].name}"
        )
    return dataclasses.replace(settings, **{first: value})


def _from_plain(kind: type[Any], data: Mapping[str, Any]) -> Any:
    """A dataclass from plain data, dataclasses within it included. What the data does not tell is as the class has it, whatever
    the class around it would choose: a recipe may change, and a setting's own default was what held before there was one.
    """
    model = kind()
    values = {
        name: _from_plain(type(inner), value) if dataclasses.is_dataclass(inner := getattr(model, name)) else value
        for name, value in data.items()
    }
    return kind(**values)


def _read(text: str) -> Any:
    try:
        return json.loads(text.lower() if text in ("True", "False", "None") else text) if text != "None" else None
    except json.JSONDecodeError:
        return text
