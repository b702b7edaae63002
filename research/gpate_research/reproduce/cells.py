"""Cells: one figure of one table, and which run of ours stands beside it.

A cell names a system, a data set, a budget, a changed setting and a metric. Ours come in two kinds: `published`, the paper's
recipe and accountant (for the others, the recipe of their name), and `default`, what `gpate fit` does without further options.
Each is a `Fit`, and cells that ask for the same fit share it: one fit is evaluated once, by all metrics.

    >>> cell = next(c for c in CELLS if c.id == "table1c/g-pate/mnist/eps1")
    >>> cell.paper, cell.fit("published").id
    ('0.5880', 'mnist/eps1/paper,accountant=rdp-paper')
    >>> cell.fit("default").id
    'mnist/eps1/default'
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal

from gpate.datasets import DATASETS
from gpate.errors import InvalidValue
from gpate.evaluation.results import HEADLINE_CLASSIFIERS
from gpate_research.errors import PeerMissing
from gpate_research.reproduce.paper_tables import TABLES, PaperTable

Kind = Literal["published", "default"]
KINDS: tuple[Kind, ...] = ("published", "default")
Task = Literal["fit", "accounting", "agreement", "peer"]

DELTA = 1e-5
_ACCOUNTANT = ("accountant", "rdp-paper")


@dataclass(frozen=True, kw_only=True)
class System:
    """Who made the synthetic records.

    Attributes:
        title: as the paper writes it.
        recipe: of the kind `published`.
        private: whether it has an epsilon.
        peer: whether it is somebody else's program (`gpate_research.peers`); its recipe is then its name there.
    """

    title: str
    recipe: str
    private: bool = True
    peer: bool = False


SYSTEMS: dict[str, System] = {
    "real": System(title="real records", recipe="default", private=False),
    "dcgan": System(title="DC-GAN", recipe="dcgan", private=False),
    "nonprivate": System(title="nonprivate G-PATE", recipe="nonprivate", private=False),
    "dpgan": System(title="DP-GAN", recipe="dpgan"),
    "dpgan-large": System(title="DP-GAN, large samples", recipe="dpgan-large"),
    "dpgan-projected": System(title="DP-GAN + projection", recipe="dpgan-projected"),
    "pategan": System(title="PATE-GAN", recipe="pategan"),
    "gswgan": System(title="GS-WGAN", recipe="gswgan"),
    "gswgan-tuned": System(title="GS-WGAN, tuned", recipe="gswgan-tuned"),
    "dpmerf": System(title="DP-MERF", recipe="dpmerf"),
    "g-pate": System(title="G-PATE", recipe="paper"),
    "g-pate-tuned": System(title="G-PATE, tuned", recipe="paper-tuned"),
    "dpmm-privbayes": System(title="dpmm, PrivBayes", recipe="dpmm-privbayes", peer=True),
    "dpmm-mst": System(title="dpmm, MST", recipe="dpmm-mst", peer=True),
    "dpmm-aim": System(title="dpmm, AIM", recipe="dpmm-aim", peer=True),
    "smartnoise-mst": System(title="SmartNoise, MST", recipe="smartnoise-mst", peer=True),
    "smartnoise-pategan": System(title="SmartNoise, PATE-GAN", recipe="smartnoise-pategan", peer=True),
}


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What is read off a result.

    Attributes:
        title: for people.
        score: the name of a score of the evaluation, or of a figure of the run itself.
        subject: of the score; None takes any.
        lower_of: instead of one subject, those of which the one with the lower mean counts.
        task: what has to be done to get it.
        decimals: that are shown.
        larger_is_better: the direction; None where there is none.
        missing: why no run has it, if none does.
    """

    title: str
    score: str
    subject: str | None = None
    lower_of: tuple[str, ...] = ()
    task: Task = "fit"
    decimals: int = 4
    larger_is_better: bool | None = True
    missing: str = ""


_CLASSIFIERS = {"lr": "LR-L1", "adaboost": "AdaBoost", "bagging": "bagging", "mlp": "MLP", "mean": "paper mean"}
_TITLES = {"lr": "LR", "adaboost": "AdaBoost", "bagging": "bagging", "mlp": "MLP", "mean": "mean"}
_NO_PARTS = "`gpate fit` does not time its parts: `python -m benchmarks.teachers` does"

METRICS: dict[str, Metric] = {
    **{
        f"{score}-{key}": Metric(title=f"{score.upper()}, {_TITLES[key]}", score=score, subject=subject)
        for score in ("auroc", "auprc")
        for key, subject in _CLASSIFIERS.items()
    },
    "auroc-modern": Metric(title="AUROC", score="auroc", subject="modern mean"),
    "accuracy": Metric(title="accuracy", score="accuracy", lower_of=HEADLINE_CLASSIFIERS),
    "inception-score": Metric(title="IS", score="inception_score", decimals=2),
    "fid": Metric(title="FID", score="fid", decimals=2, larger_is_better=False),
    "agreement-first": Metric(title="first bin", score="first", task="agreement", larger_is_better=None),
    "agreement-second": Metric(title="second bin", score="second", task="agreement", larger_is_better=None),
    "iterations-bought": Metric(
        title="iterations", score="iterations", task="accounting", decimals=0, larger_is_better=None
    ),
    "seconds-teachers": Metric(
        title="s an iteration, teachers", score="-", decimals=2, larger_is_better=False, missing=_NO_PARTS
    ),
    "seconds-aggregation": Metric(
        title="s an iteration, aggregation", score="-", decimals=2, larger_is_better=False, missing=_NO_PARTS
    ),
    "seconds-per-iteration": Metric(
        title="s an iteration", score="seconds_per_iteration", decimals=3, larger_is_better=False
    ),
    "iterations": Metric(title="iterations", score="iterations", decimals=0, larger_is_better=None),
    "fit-seconds": Metric(title="s to fit", score="fit_seconds", decimals=1, larger_is_better=False),
    "hours": Metric(title="hours in all", score="hours", decimals=3, larger_is_better=False),
}

SHORT = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "celeba-gender-s": "CelebA-Gender(S)",
    "celeba-gender-l": "CelebA-Gender(L)",
    "celeba-hair": "CelebA-Hair",
    "cifar10": "CIFAR-10",
    "credit": "Kaggle Credit",
    "adult": "UCI Adult",
}
"""Data sets, as the paper calls them."""

_SETTINGS = {"k": "projected_dims", "n": "teachers", "c": "clip", "B": "bins"}


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What is run, apart from its seed.

    Attributes:
        recipe: as `gpate fit --recipe` takes it.
        dataset: a benchmark's name.
        epsilon: the budget; infinite without privacy.
        delta: of the budget.
        changes: to the recipe's settings, by name.
        task: `fit` it and evaluate what it makes; or only its `accounting`, or the `agreement` of its teachers; or fit and
            evaluate a `peer`, whose name is then the recipe.
    """

    recipe: str
    dataset: str
    epsilon: float
    delta: float = DELTA
    changes: tuple[tuple[str, Any], ...] = ()
    task: Task = "fit"

    @property
    def id(self) -> str:
        """Names the fit in a results file: it must never change its meaning."""
        settings = ",".join((self.recipe, *(f"{name}={value}" for name, value in self.changes)))
        task = "" if self.task == "fit" else f"/{self.task}"
        return f"{self.dataset}/eps{self.epsilon:g}/{settings}{task}"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One figure of one table.

    Attributes:
        table: its id.
        system: a name in SYSTEMS.
        dataset: a benchmark's name.
        epsilon: infinite without privacy.
        metric: a name in METRICS.
        setting: that is changed, such as `k=5`; empty for none.
        paper: the figure, as printed; None if the paper has none.
        id: unique, and stable between versions.
    """

    table: str
    system: str
    dataset: str
    epsilon: float
    metric: str
    setting: str
    paper: str | None
    id: str

    @property
    def source(self) -> Literal["synthetic", "real"]:
        """Which records are evaluated."""
        return "real" if self.system == "real" else "synthetic"

    def fit(self, kind: Kind) -> Fit | None:
        """The run of ours that stands beside it; None if there is none of this kind.

        Real records are evaluated with every synthetic set, as its ceiling: the default fit brings them.
        """
        task = METRICS[self.metric].task
        if self.system == "real":
            return Fit(recipe="default", dataset=self.dataset, epsilon=1.0) if kind == "default" else None
        if self.system != "g-pate":
            system = SYSTEMS[self.system]
            fit = Fit(
                recipe=system.recipe,
                dataset=self.dataset,
                epsilon=self.epsilon,
                task="peer" if system.peer else task,
            )
            return fit if kind == "published" else None
        if kind == "published":
            if self.table in ("beyond", "cifar10", "peers"):  # the paper's numbers are not for this data set
                return None
            changes = (_ACCOUNTANT, *_changes(self.setting, self.dataset, self.epsilon))
            return Fit(recipe="paper", dataset=self.dataset, epsilon=self.epsilon, changes=changes, task=task)
        if task == "accounting":  # the same noise under our accountant
            return Fit(recipe="paper", dataset=self.dataset, epsilon=self.epsilon, task=task)
        by_votes = self.metric == "iterations" or self.metric.startswith("seconds-")  # of what the default does not do
        if self.setting or task == "agreement" or by_votes:
            return None
        return Fit(recipe="default", dataset=self.dataset, epsilon=self.epsilon)


def _changes(setting: str, dataset: str, epsilon: float) -> tuple[tuple[str, Any], ...]:
    """The change that a setting such as `k=5` stands for; none where the recipe has that value anyway."""
    if not setting:
        return ()
    key, _, text = setting.partition("=")
    name = _SETTINGS[key]
    value = None if text == "none" else float(text) if key == "c" else int(text)
    return () if getattr(_paper(dataset, epsilon), name) == value else ((name, value),)


@lru_cache
def _paper(dataset: str, epsilon: float) -> Any:
    from gpate.methods.pate import Mechanism
    from gpate.methods.recipes import resolve

    schema = DATASETS[dataset].schema
    return resolve("paper", schema=schema, dataset=dataset, epsilon=epsilon).of(Mechanism)  # type: ignore[arg-type]


def _meaning(word: str) -> dict[str, Any]:
    """What a word of a grid says about its cells."""
    found: dict[str, Any] = {}
    for part in word.split("/"):
        if part in SYSTEMS:
            found["system"] = part
        elif part in DATASETS:
            found["dataset"] = part
        elif part in METRICS or part in ("auroc", "auprc"):
            found["metric"] = part
        elif part in _CLASSIFIERS:
            found["classifier"] = part
        elif part.startswith("epsilon="):
            found["epsilon"] = float(part.removeprefix("epsilon="))
        elif part.partition("=")[0] in _SETTINGS and "=" in part:
            found["setting"] = part
        else:
            raise InvalidValue("word of a grid", part, "a system, data set, metric, classifier or setting")
    return found


def cells_of(table: PaperTable) -> Iterator[Cell]:
    """The cells of a table, row by row."""
    fixed: dict[str, Any] = {}
    for word in table.fixed.split():
        fixed |= _meaning(word)
    header, *rows = [line.split() for line in table.grid.strip().splitlines()]
    keys = sum(name in ("dataset", "epsilon", "metric") for name in header)
    metrics = {word for row in rows for word in row[:keys] if word in METRICS}
    seen: dict[str, str | None] = {}
    for row in rows:
        left: dict[str, Any] = {}
        for name, word in zip(header[:keys], row[:keys], strict=True):
            left |= {"epsilon": float(word)} if name == "epsilon" else _meaning(word)
        for name, figure in zip(header[keys:], row[keys:], strict=True):
            if figure == "-":
                continue
            facts: dict[str, Any] = {"setting": "", "epsilon": math.inf} | fixed | left | _meaning(name)
            several = len(metrics) > 1 or "classifier" in facts
            if "classifier" in facts:
                facts["metric"] += f"-{facts.pop('classifier')}"
            if not SYSTEMS[facts["system"]].private:
                facts["epsilon"] = math.inf
            budget = f"eps{facts['epsilon']:g}" if math.isfinite(facts["epsilon"]) else ""
            parts = (table.id, facts["system"], facts["dataset"], budget, facts["setting"])
            name_of = "/".join(part for part in (*parts, facts["metric"] if several else "") if part)
            cell = Cell(table=table.id, paper=None if figure == "?" else figure, id=name_of, **facts)
            if cell.id not in seen:  # a figure of real records stands in a table once for every epsilon
                yield cell
            elif seen[cell.id] != cell.paper:
                raise InvalidValue("grid", table.id, f"of one mind about {cell.id}")
            seen[cell.id] = cell.paper


CELLS: tuple[Cell, ...] = tuple(cell for table in TABLES.values() for cell in cells_of(table))


def select(table: str = "all", *patterns: str) -> tuple[Cell, ...]:
    """The cells of a table, or of all; with patterns such as `*/mnist/*` those whose id fits one, in the patterns' order."""
    if table != "all" and table not in TABLES:
        raise InvalidValue("table", table, f"all, {', '.join(TABLES)}")
    cells = [cell for cell in CELLS if table in ("all", cell.table)]
    if not patterns:
        return tuple(cells)
    chosen: dict[str, Cell] = {}
    for pattern in patterns:
        fitting = [cell for cell in cells if fnmatchcase(cell.id, pattern) or cell.id == pattern]
        if not fitting:
            fix = "`gpate reproduce list` shows them."
            raise InvalidValue("--cell", pattern, "a pattern that a cell's id fits", fix)
        chosen |= {cell.id: cell for cell in fitting if cell.id not in chosen}
    return tuple(chosen.values())


def unavailable(fit: Fit) -> str | None:
    """Why this cannot be run here; None if it can, as far as can be seen without reading data."""
    from gpate.methods.recipes import recipes
    from gpate_research.datasets.lookup import find

    if fit.task == "peer":
        from gpate_research.peers import PEERS

        peer = PEERS[fit.recipe]
        try:
            peer.python()
        except PeerMissing:
            return f"{peer.package} is not here: docs/reference/evaluation.md, section Peers; then set {peer.variable}"
        return None
    if fit.recipe not in ("default", *recipes()):
        return f"this version has no recipe {fit.recipe}"
    if fit.dataset.startswith("celeba") and fit.task != "accounting":
        if find("img_align_celeba") or find("celeba-attributes.parquet"):
            return None
        return "CelebA is not in GPATE_DATA"
    if fit.dataset == "cifar10" and fit.task != "accounting" and not find("cifar10.npz"):
        return "CIFAR-10 is not in GPATE_DATA"
    return None
