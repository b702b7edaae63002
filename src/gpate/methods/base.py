"""The protocol of a method, and the registry.

A method turns private records into a generator. It is one class: which groups of settings it has (`groups`), what it asks of
the budget before any record is read (`plan`), how it fits (`fit`), and which events a finished run must have paid for
(`ledger_problems`). CONTRIBUTING.md shows how to add one.

    class MyMethod(Method):
        name = "mine"
        groups = {"mine": MySettings}

        def plan(self, settings, schema, epsilon): ...
        def fit(self, run): ...
        def ledger_problems(self, run): ...

    register(MyMethod())

`fit` is given a `Run`: records that answer public queries with `Sensitive` values, the gate that alone turns those into
`Released` ones, and the transcript through which each release is made once. What it returns, `Fitted`, is public.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import nn

from gpate.accounting import Budget
from gpate.accounting.gaussian import mu_for
from gpate.boundary import ALONE, Gate, NoisyCounts, NoisyTally, Ranks, Released
from gpate.errors import InvalidValue, PluginError
from gpate.generators import GeneratorSpec, Spec
from gpate.methods.settings import Settings, settings_from_json
from gpate.plugins import METHOD_PLUGINS, plugins
from gpate.records import PrivateRecords
from gpate.run.folder import RunFolder
from gpate.run.progress import SILENT, Monitor
from gpate.run.transcript import Transcript
from gpate.schema import ImageSchema, TableSchema
from gpate.streams import Streams
from gpate.torch_utils import chosen_device

if TYPE_CHECKING:
    from gpate.methods.finished_run import FinishedRun

AnySchema = TableSchema | ImageSchema


def chunk_for(dims: int) -> int:
    """Records of so many numbers that are computed at a time: 1,000 of 32x32 colour images, fewer of larger ones."""
    return max(16, min(1000, 1000 * 3072 // dims))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a method needs before any record is read: all of it public.

    Attributes:
        spec: of the generator network for such records.
        chunk: records computed at a time; by their size if not given.
        pure: epsilon set aside for pure-DP releases.
        accountant: decides when the budget is spent.
        outside_fraction: of the budget's mu^2, for reporting how many values and records were repaired or left out; 0 for none.
        noiseless: whether epsilon is infinite.
        by_value: whether records are encoded with a table's columns in their own units, instead of as rows for a network.
    """

    spec: GeneratorSpec
    chunk: int = 0
    pure: float = 0.0
    accountant: str = "auto"
    outside_fraction: float = 0.001
    noiseless: bool = False
    by_value: bool = False

    def __post_init__(self) -> None:
        if not self.chunk:
            object.__setattr__(self, "chunk", chunk_for(self.spec.dims))

    def budget(self, epsilon: float, delta: float) -> Budget:
        """The whole budget of a run."""
        return Budget(
            epsilon=math.inf if self.noiseless else epsilon, delta=delta, pure=self.pure, accountant=self.accountant
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class Run:
    """One run: private records, what was asked for, and the monitor it reports to."""

    records: PrivateRecords
    schema: AnySchema
    settings: Settings
    plan: Plan
    gate: Gate
    folder: RunFolder
    transcript: Transcript
    streams: Streams
    monitor: Monitor = SILENT
    ranks: Ranks = ALONE

    @property
    def spec(self) -> GeneratorSpec:
        """The generator network of such records."""
        return self.plan.spec

    @property
    def device(self) -> torch.device:
        """Where to compute."""
        return chosen_device(self.settings.speed.device)

    def class_counts(self, epsilon: float) -> Released[np.ndarray]:
        """Class counts with Laplace noise of a pure epsilon, paid for once."""
        mechanism = NoisyCounts(
            classes=self.spec.classes, epsilon=epsilon, records_per_unit=self.schema.records_per_unit
        )
        counts = self.transcript.ask(
            "class counts", self.records.class_counts, lambda total: mechanism.release(total, self.gate)
        )
        warn_of_delta(self, math.fsum(counts.value))
        return counts


class Fitted(NamedTuple):
    """What a method gives back: all of it public.

    Attributes:
        generator: the network or mixture.
        spec: its layout.
        proportions: of the classes.
        settings: with what was filled in from released values.
    """

    generator: nn.Module
    spec: Spec
    proportions: np.ndarray
    settings: Settings


class Method(ABC):
    """One way to turn private records into a generator.

    Attributes:
        name: as settings, releases and run folders have it.
        groups: its settings: frozen dataclasses whose fields have defaults and check themselves.
        sharded: whether several ranks can divide its records.
        batched: whether it can read records batch by batch, so that they need not fit in memory; those of ranks can.
        not_asked: settings of its groups that follow from others here, and that nobody can ask for.
        samples_in_secret: whether it draws records in secret, so that a transcript says more than an attacker knows.
    """

    name: ClassVar[str]
    groups: ClassVar[Mapping[str, type[Any]]]
    sharded: ClassVar[bool] = False
    batched: ClassVar[bool] = False
    samples_in_secret: ClassVar[bool] = False
    not_asked: ClassVar[frozenset[str]] = frozenset()

    def recipes(self) -> list[Settings]:
        """Its named settings."""
        return []

    def default_recipe(self, schema: AnySchema) -> str | None:
        """The recipe that `default` means for such records, if it is one of this method's."""
        return None

    def resolved(self, settings: Settings, *, schema: AnySchema, dataset: str | None, epsilon: float) -> Settings:
        """A recipe with what depends on the schema, on a benchmark's name or on epsilon filled in."""
        return settings

    def check(self, settings: Settings) -> None:
        """Raises for settings that no run could have, beyond what the groups check themselves."""
        _ = settings

    def quick(self, settings: Settings) -> Mapping[str, Any]:
        """Changes that make a fast, lower-quality run. The guarantee is the same."""
        return {}

    def smallest(self, settings: Settings) -> Mapping[str, Any]:
        """Further changes that spare work after the releases, for audits that look at releases only."""
        return {}

    def check_budget(self, settings: Settings, *, budget: Budget, dims: int) -> None:
        """Raises if the budget buys nothing with these settings: what it would release is a generator that learnt nothing."""
        if math.isinf(budget.epsilon):
            fix = "The noise is planned from it. Fix: a finite one, or --recipe nonprivate."
            raise InvalidValue("epsilon", budget.epsilon, "finite", fix)

    def check_ranks(self, ranks: Ranks) -> None:
        """Raises unless so many ranks can divide its records."""
        if ranks.size > 1 and not self.sharded:
            sharded = ", ".join(sorted(method.name for method in methods() if method.sharded))
            raise InvalidValue("ranks", ranks.size, f"1 for {self.name}; several can share {sharded}")

    @abstractmethod
    def plan(self, settings: Settings, schema: AnySchema, epsilon: float) -> Plan:
        """What the method needs of budget and records."""

    @abstractmethod
    def fit(self, run: Run) -> Fitted:
        """Releases what it needs through the gate, and fits the generator to that."""

    def ledger_problems(self, run: FinishedRun) -> list[str]:
        """How the events of a finished run differ from those that `fit` pays for with such settings; empty if they do not.

        Without a list of its own a method's releases cannot be verified: nobody else knows what it should have paid for.
        """
        _ = run
        return [f"the method {self.name!r} does not say which events it implies, so they cannot be checked"]

    def accountants(self, settings: Settings) -> Sequence[str]:
        """Accountants, beside the plan's own, that the plan may have had on another machine."""
        _ = settings
        return ()


_METHODS: dict[str, Method] = {}


def register(method: Method) -> Method:
    """Makes a method known by its name; one of the same name is refused."""
    if method.name in _METHODS:
        raise InvalidValue("method", method.name, "a name that is not taken yet")
    _METHODS[method.name] = method
    return method


def unregister(name: str) -> None:
    """Forgets a method."""
    del _METHODS[name]


def method_named(name: str) -> Method:
    """The registered method of that name."""
    known = {method.name: method for method in methods()}
    if name not in known:
        raise InvalidValue("method", name, f"one of {', '.join(known)}")
    return known[name]


def methods() -> list[Method]:
    """All registered methods, those of plug-ins last."""
    _register_plugins()
    return list(_METHODS.values())


@cache
def _register_plugins() -> None:
    for name, method in plugins(METHOD_PLUGINS).items():
        if not isinstance(method, Method):
            raise PluginError(METHOD_PLUGINS, name, "must be an instance of gpate.methods.Method")
        register(method)


def settings_of(data: Mapping[str, Any]) -> Settings:
    """Settings from the plain data of a release or a run folder."""
    return settings_from_json(data, method_named(data["method"]).groups)


def execute(run: Run) -> Fitted:
    """One run of a method: reports repairs of records, then fits."""
    report_repairs(run)
    return method_named(run.settings.method).fit(run)


def report_repairs(run: Run) -> None:
    """Reports, with noise, columns of which many values did not fit the declared domain, records left out, and constraints that many
    records violate. Paid for once.

    **Guarantee.** A record adds at most one to each count: one Gaussian event of sensitivity sqrt(counts), `NoisyTally`. Nothing is
    paid where nothing can be repaired: for images without labels that were decoded before.
    """
    repairs, fraction, gate = run.records.repairs(), run.plan.outside_fraction, run.gate
    if repairs is None or not fraction or math.isinf(gate.budget.epsilon):
        return
    schema, name = run.schema, "values outside the domain"
    columns = schema.columns if isinstance(schema, TableSchema) else ()
    tally = repairs_tally(run.schema, fraction, gate.budget)
    sigma = run.transcript.sigma(name) or tally.sigma
    tally = replace(tally, sigma=sigma)
    counts = run.transcript.ask(name, lambda: repairs, lambda total: tally(total, gate), sigma=sigma).value
    about = f"(+-{2 * sigma:,.0f}, two standard deviations)"
    for column, count in zip(columns, counts, strict=False):
        if count > 4 * sigma:
            strays = f"{column.misfit}. They are computed from others in synthetic records. Fix: {column.fix}"
            if isinstance(schema, TableSchema) and column.name not in schema.derived:
                strays = column.strays
            run.monitor.on_warning(
                f"About {count:,.0f} values of column {column.name!r} {about} {strays} if that matters."
            )
    for count in counts[len(columns) : len(columns) + 1]:  # a run that 0.1.0 began has none of these
        if count > 4 * sigma:
            run.monitor.on_warning(
                f"About {count:,.0f} records {about} could not be kept and were left out. Fix: {_fix_of_records(schema)}."
            )
    constrained = schema.constrained if isinstance(schema, TableSchema) else None
    for constraint, count in zip(
        () if constrained is None else constrained.constraints, counts[len(columns) + 1 :], strict=True
    ):
        if count > 4 * sigma:
            run.monitor.on_warning(
                f"About {count:,.0f} records {about} violate the constraint `{constraint.text}`. They were learned from as they are; all "
                "synthetic records satisfy it. Fix: correct the records or the constraint if that matters."
            )


def parts_for(records: float, *, each: int, most: int) -> int:
    """Into how many parts so many records are divided, one for each teacher: `each` in a part, 10 parts at least."""
    return int(min(most, max(10, round(max(records, 1.0) / each))))


def _fix_of_records(schema: AnySchema) -> str:
    """What to do about records that are left out, from the schema alone."""
    if isinstance(schema, TableSchema):
        return "correct them, or declare in the schema what they hold"
    size = f"8 bits per channel and {schema.height} x {schema.width} pixels (height x width), as declared"
    named = "; and that the folders right below the folder given, or the labels, are named exactly as the classes"
    return f"check that all images have {size}{named if schema.classes else ''}"


def warn_of_delta(run: Run, records: float) -> None:
    """Warns, from a number of records that was released already, if delta is not far below one over it."""
    delta = run.gate.budget.delta
    if records > 0 and delta * records > 0.1 and math.isfinite(run.gate.budget.epsilon):
        run.monitor.on_warning(
            f"Delta {delta:g} is more than a tenth of 1/N for about {records:,.0f} records: the guarantee would also hold for a release "
            f"that publishes each record in full with probability delta, about {delta * records:.2g} records in all. "
            f"Fix: fit with delta at most {0.1 / records:.1g}."
        )


def few_records(records: float, sigma: float, what: str) -> str | None:
    """What to say where the noise on a released number of records is of its own size; None where it is not."""
    if records >= 10 * sigma:
        return None
    return (
        f"The number of records is small beside its noise (+-{2 * sigma:,.0f}, two standard deviations): the synthetic {what} may say "
        "little. Fix: a larger epsilon, or more records."
    )


def repairs_tally(schema: AnySchema, fraction: float, budget: Budget, *, dropped: bool = True) -> NoisyTally:
    """The noisy counts of repairs and of violated constraints, with their fraction of the budget's mu^2; 0.1.0 did not count records that
    are left out.
    """
    properties = schema.record_checks + dropped
    whole = mu_for(budget.epsilon - budget.pure, delta=budget.delta)
    most = schema.records_per_unit
    return NoisyTally(
        sigma=most * math.sqrt(properties / fraction) / whole, properties=properties, records_per_unit=most
    )


def proportions(counts: np.ndarray) -> np.ndarray:
    """Class proportions from noisy counts: no class is left out."""
    positive = np.clip(counts, 1.0, None)
    return positive / positive.sum()
