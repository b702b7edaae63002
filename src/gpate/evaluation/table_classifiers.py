"""The classifiers that measure a table's utility: trained on it, tested on real records.

| family | name | settings |
|---|---|---|
| modern | LR | L2 |
| modern | random forest | 100 trees, each grown on at most 32,768 rows |
| modern | HistGB | 100 rounds, no early stopping, L2 of 10: without it a rare class makes it diverge |
| modern | XGBoost | 200 rounds of depth 6, if it is installed; not part of the mean |

Plug-ins add further families (`gpate.plugins`), such as the paper's (in research/). Rows are encoded by
the public schema (`gpate.schema.codec`): one-hot by the declared categories, numbers by the declared bounds and scale. Linear
models and networks then centre and scale numbers by the rows they are trained on, as any user would; a spread below a
thousandth of the declared range counts as that.

    >>> [c.name for c in MODERN_CLASSIFIERS]
    ['LR', 'random forest', 'HistGB', 'XGBoost']
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpate.errors import PluginError, SchemaError
from gpate.evaluation.logistic import LogisticRegression
from gpate.plugins import CLASSIFIER_PLUGINS, plugins

if TYPE_CHECKING:
    import pandas as pd

    from gpate.schema import TableSchema

Floats = NDArray[Any]

METRICS = ("auroc", "auprc", "f1", "accuracy")
TREE_ROWS = 32_768

_TREES = 100
"""Of the random forest, and rounds of boosting: scikit-learn's own numbers."""
LEAST_SPREAD = 1e-3
"""Of the declared range."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a classifier is built from.

    Attributes:
        classes: how many.
        rows: to train on; filled in by `score`.
        benchmark: name of the data, if they are a known benchmark.
        seed: of everything random in it.
    """

    classes: int
    rows: int = 0
    benchmark: str | None = None
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A classifier by name.

    Attributes:
        name: in scores.
        family: whose mean it belongs to: `modern`, or that of a plug-in.
        build: an untrained one; a function of a module, for it travels between processes by its name.
        seeded: whether its seed matters; if not it is trained once.
        scaled: whether it wants centred numbers.
        in_mean: whether it counts in the mean of its family.
        quick: whether the quick mode trains it.
        needs: a package that must be installed.
        cost: the larger, the longer it takes: long ones are started first.
    """

    name: str
    family: str
    build: Callable[[Setting], Any]
    seeded: bool = False
    scaled: bool = True
    in_mean: bool = True
    quick: bool = False
    needs: str | None = None
    cost: int = 0

    @property
    def installed(self) -> bool:
        """Whether it can be built here."""
        return self.needs is None or importlib.util.find_spec(self.needs) is not None


def _lr(s: Setting) -> LogisticRegression:
    return LogisticRegression(classes=s.classes)


def _forest(s: Setting) -> Any:
    from sklearn.ensemble import RandomForestClassifier  # type: ignore[import-untyped,unused-ignore]

    most = TREE_ROWS if s.rows > TREE_ROWS else None
    return RandomForestClassifier(_TREES, max_samples=most, random_state=s.seed)


def _histgb(s: Setting) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier  # type: ignore[import-untyped,unused-ignore]

    return HistGradientBoostingClassifier(max_iter=_TREES, early_stopping=False, l2_regularization=10.0, random_state=0)


def _xgboost(s: Setting) -> Any:
    from xgboost import XGBClassifier  # type: ignore[import-not-found,import-untyped,unused-ignore]

    return XGBClassifier(n_estimators=200, max_depth=6, tree_method="hist", n_jobs=1, random_state=s.seed)


MODERN_CLASSIFIERS = (
    Classifier(name="LR", family="modern", build=_lr, quick=True),
    Classifier(name="random forest", family="modern", build=_forest, seeded=True, scaled=False, quick=True, cost=7),
    Classifier(name="HistGB", family="modern", build=_histgb, scaled=False, quick=True, cost=4),
    Classifier(name="XGBoost", family="modern", build=_xgboost, scaled=False, in_mean=False, needs="xgboost"),
)


def registered_classifiers() -> tuple[Classifier, ...]:
    """All that an evaluation of a table trains: those of plug-ins (`gpate.plugins`), then our own."""
    found: list[Classifier] = []
    for name, classifiers in plugins(CLASSIFIER_PLUGINS).items():
        if not all(isinstance(one, Classifier) for one in classifiers):
            raise PluginError(
                CLASSIFIER_PLUGINS, name, "must be a sequence of gpate.evaluation.table_classifiers.Classifier"
            )
        found += classifiers
    return (*found, *MODERN_CLASSIFIERS)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Rows:
    """Encoded rows.

    Attributes:
        features: float32 [n, slots].
        labels: int64 [n], numbers of the classes.
        numbers: slots that hold numbers, as against flags and one-hot categories.
        onehot: slots of one-hot categories.
    """

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    numbers: tuple[int, ...] = ()
    onehot: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of(cls, frame: pd.DataFrame, schema: TableSchema) -> Rows:
        """Rows as the schema encodes them; without classes all labels are 0."""
        from gpate.schema.codec import TableCodec  # loads torch

        codec = TableCodec(schema)
        encoded = codec.encode(frame)
        if bool(encoded.dropped.any()):
            names = [
                c.name for c, bad in zip(schema.columns, encoded.repaired[encoded.dropped].any(0), strict=True) if bad
            ]
            raise SchemaError(
                f"The table holds values that the schema has no place for, in {', '.join(names)}. Fix: correct or leave out those "
                "records, or declare what they hold."
            )
        slots = {
            kind: tuple(i for block in codec.blocks if block.kind == kind for i in range(block.start, block.stop))
            for kind in ("number", "onehot")
        }
        return cls(
            features=encoded.features.numpy(),
            labels=np.zeros(len(frame), dtype=np.int64) if encoded.labels is None else encoded.labels.numpy(),
            numbers=slots["number"],
            onehot=slots["onehot"],
        )


def scaled(train: Rows, test: Rows) -> tuple[Floats, Floats]:
    """Features of both, with numbers centred and scaled by the first."""
    slots = list(train.numbers)
    middle = train.features[:, slots].mean(axis=0, dtype=np.float64)
    spread = np.maximum(train.features[:, slots].std(axis=0, dtype=np.float64), LEAST_SPREAD)
    out = []
    for rows in (train, test):
        features = rows.features.copy()
        features[:, slots] = (features[:, slots] - middle) / spread
        out.append(features)
    return out[0], out[1]


def class_reason(train: Rows, test: Rows, names: Sequence[Any], metric: str) -> str | None:
    """Why this metric cannot be computed from these rows; None if it can."""
    counts, tested = (np.bincount(rows.labels, minlength=len(names)) for rows in (train, test))
    absent = [str(name) for name, count in zip(names, counts, strict=True) if count == 0]
    untested = [str(name) for name, count in zip(names, tested, strict=True) if count == 0]
    if np.count_nonzero(counts) < 2:
        return "not computable, because the records it would be trained on are all of one class"
    if metric in ("auroc", "auprc") and absent:
        return f"not computable, because no record it would be trained on has the class {', '.join(absent)}"
    if metric in ("auroc", "auprc") and untested:
        return f"not computable, because no test record has the class {', '.join(untested)}"
    return None


def score(classifier: Classifier, train: Rows, test: Rows, setting: Setting) -> dict[str, float] | str:
    """Trains on one set, tests on the other. Gives the metrics, or the reason why there are none."""
    if not classifier.installed:
        return f"not computable, because {classifier.needs} is not installed"
    features = scaled(train, test) if classifier.scaled else (train.features, test.features)
    present, labels = np.unique(train.labels, return_inverse=True)  # libraries want numbers without gaps
    own = replace(setting, classes=len(present), rows=len(train))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the MLP's "not converged yet": epochs are fixed
            model = classifier.build(own)
            model.fit(features[0], labels)
            found = np.zeros((len(test), setting.classes))
            found[:, present] = model.predict_proba(features[1])
    except (ValueError, ArithmeticError, np.linalg.LinAlgError, MemoryError) as problem:
        return f"not computable, because training failed ({type(problem).__name__})"
    return _metrics(found, test.labels, setting.classes)


def _metrics(found: Floats, labels: Floats, classes: int) -> dict[str, float]:
    """All metrics; for several classes the mean over one against the rest. NaN where there is nothing to compute."""
    from sklearn.metrics import (  # type: ignore[import-untyped,unused-ignore]
        average_precision_score,
        f1_score,
        roc_auc_score,
    )

    predicted = found.argmax(axis=1)
    targets = [1] if classes == 2 else list(range(classes))
    chances = {"auroc": math.nan, "auprc": math.nan}
    if all(0 < np.count_nonzero(labels == c) < len(labels) for c in targets):
        one = [(labels == c, found[:, c]) for c in targets]
        chances["auroc"] = float(np.mean([roc_auc_score(*pair) for pair in one]))
        chances["auprc"] = float(np.mean([average_precision_score(*pair) for pair in one]))
    average = "binary" if classes == 2 else "macro"
    f1 = f1_score(labels, predicted, average=average, zero_division=0.0, labels=targets if classes > 2 else None)
    return {**chances, "f1": float(f1), "accuracy": float(np.mean(predicted == labels))}
