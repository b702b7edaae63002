"""What every method must do, as functions: `test_conformance.py` puts all recipes through them, and so can a new method.

A `System` is a recipe with settings small enough for a second. A check takes a system, a kind of records and a folder.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from gpate import Monitor, Synthesizer, verify
from gpate.accounting import read_ledger
from gpate.errors import GpateError, InvalidValue, LedgerMismatch
from gpate.methods import recipes
from gpate.methods.base import settings_of
from gpate.run.progress import Interrupted, Progress
from tests.methods.small import IMAGES, TABLE, images, table

EPSILON = 2.0
FILES = ["certificate.json", "config.json", "generator.safetensors", "ledger.jsonl", "schema.yaml"]


@dataclass(frozen=True, kw_only=True)
class System:
    """A recipe under test.

    Attributes:
        recipe: its name.
        settings: that make it small.
        events: kinds of events in its ledger, beside the counts of repairs.
        kinds: of records.
        private: whether it guarantees anything.
        planned: whether its noise is planned so that the whole budget is spent.
        iterates: whether it has iterations to be stopped in; else it releases everything before it learns.
        bad: settings that must be refused, beside those that every system refuses.
    """

    recipe: str
    settings: dict[str, Any]
    events: set[str]
    kinds: tuple[str, ...] = ("image", "table")
    private: bool = True
    planned: bool = True
    iterates: bool = True
    bad: list[dict[str, Any]] = field(default_factory=list)

    def model(self, **changes: Any) -> Synthesizer:
        settings = {**self.settings, **changes.pop("settings", {})}
        options = {"epsilon": EPSILON, "seed": 3, "recipe": self.recipe, "settings": settings, "noise": "fast"}
        return Synthesizer(**{**options, **changes})

    def fit(self, kind: str, out: Path, monitor: Monitor | None = None, **changes: Any) -> Synthesizer:
        schema = IMAGES if kind == "image" else TABLE
        return self.model(**changes).fit(*data(kind), schema=schema, out=out, monitor=monitor or Monitor())


Check = Callable[[System, str, Path], None]


def data(kind: str, seed: int = 0) -> tuple[Any, Any]:
    return images(seed=seed) if kind == "image" else (table(seed=seed), None)


def weights(run: Path) -> torch.Tensor:
    tensors = load_file(run / "release" / "generator.safetensors")
    return torch.cat([tensors[name].flatten().double() for name in sorted(tensors)])


def stopping(after: int) -> Monitor:
    """Stops after so many iterations."""
    steps: list[Progress] = []
    return Monitor(on_progress=steps.append, stop=lambda: len(steps) >= after)


def stopping_at_question(number: int) -> Monitor:
    """Stops when it is asked for the n-th time whether to."""
    asked = iter(range(1, 10**9))
    return Monitor(stop=lambda: next(asked) >= number)


def tally(run: Path) -> dict[Any, int]:
    return read_ledger(run / "release" / "ledger.jsonl").tally


def check_fit_sample_save_load_verify(system: System, kind: str, folder: Path) -> None:
    """With exact noise: every claim holds, the budget is kept at every step, a copy of the release gives the same samples."""
    steps: list[Progress] = []
    made = system.fit(kind, folder / "run", Monitor(on_progress=steps.append), noise="exact")
    report = verify(folder / "run" / "release")
    assert report.passed, report
    repairs = {"DiscreteGaussian"} if system.private else set()
    assert set(made.privacy.events) == system.events | repairs
    if not system.private:
        assert made.privacy.epsilon == made.privacy.spend == float("inf")
        assert made.privacy.not_for_release
    else:
        assert 0 < made.privacy.spend <= made.privacy.epsilon == EPSILON
        assert made.privacy.exact_noise
        assert made.privacy.not_for_release == ()
        spends = [step.spend for step in steps]
        assert spends == sorted(spends)
        assert all(spend <= EPSILON for spend in spends)
        if system.planned:
            assert made.privacy.spend > 0.97 * EPSILON
    assert all(0 <= step.fraction <= 1 for step in steps)
    shown = {"iteration", "spend", "epsilon", "answered", "seconds", "fraction", "replayed", "stage"}
    assert set(vars(steps[0])) == shown
    contents = read_ledger(folder / "run" / "release" / "ledger.jsonl")
    assert contents.sealed
    assert (folder / "run" / "private").stat().st_mode & 0o777 == 0o700
    assert not list((folder / "run" / "private").rglob("*checkpoint*.safetensors")), "no teacher outlives the run"
    assert sorted(path.name for path in (folder / "run" / "release").iterdir()) == FILES
    made.save(folder / "copy")
    loaded = Synthesizer.load(folder / "copy" / "release")
    if kind == "image":
        pictures, labels = made.sample(20, seed=1)
        assert pictures.shape == (20, 8, 8)
        assert pictures.dtype == np.uint8
        assert np.array_equal(pictures, loaded.sample(20, seed=1)[0])
        assert set(labels) <= {"bar", "dot"}
        assert set(made.sample(5, where={"class": "dot"})[1]) == {"dot"}
    else:
        frame = made.sample(30, seed=1)
        assert list(frame.columns) == list(table().columns)
        assert frame["age"].between(0, 100).all()
        pd.testing.assert_frame_equal(frame, loaded.sample(30, seed=1))
        assert set(made.sample(20, where={"ill": "yes"})["ill"]) == {"yes"}


def check_a_value_of_one_record_occurs_nowhere_in_the_release(system: System, kind: str, folder: Path) -> None:
    """Nor does the partition key; and a run with fast noise is stamped."""
    if kind == "image":
        return
    frame = table()
    frame.loc[0, "pay"] = 7351.629
    frame.loc[1, "job"] = "zebra-keeper"
    made = system.model().fit(frame, schema=TABLE, out=folder / "run")
    key = json.loads((folder / "run" / "private" / "run.json").read_text())["partition_key"]
    canaries = (b"7351.629", b"7351629", b"zebra", key.encode(), bytes.fromhex(key), b"%d records" % len(frame))
    for path in (folder / "run" / "release").iterdir():
        raw = path.read_bytes()
        assert not any(canary in raw for canary in canaries), path.name
    assert any("fast" in reason for reason in made.privacy.not_for_release)
    assert "NOT FOR RELEASE" in made.certificate_.statement()


def check_other_records_cannot_resume_a_run(system: System, kind: str, folder: Path) -> None:
    """A run goes on with the records it began with."""
    with pytest.raises(Interrupted):
        system.fit(kind, folder / "run", Monitor(stop=lambda: True))
    with pytest.raises(LedgerMismatch, match="not the records"):
        Synthesizer.resume(folder / "run", *data(kind, seed=9))


def check_bad_input_is_named_and_leaves_no_folder(system: System, kind: str, folder: Path) -> None:
    """Every refusal comes before anything is spent."""
    bad: list[dict[str, Any]] = [
        {"delta": 2.0},
        {"noise": "none"},
        {"settings": {"iterashuns": 3}},
        {"settings": {"device": "abacus"}},
        *({"settings": settings} for settings in system.bad),
    ]
    if system.private:
        bad.append({"epsilon": 0.0})
    if system.private and system.planned:
        bad.append({"epsilon": float("inf")})
    for changes in bad:
        with pytest.raises((InvalidValue, GpateError), match="must be"):
            system.fit(kind, folder / "run", **changes)
        assert not (folder / "run").exists(), changes
    pictures, _ = images()
    with pytest.raises(GpateError):
        system.model().fit(pictures[:, :4], np.full(len(pictures), 0), schema=IMAGES, out=folder / "run")
    with pytest.raises(GpateError):
        system.model().fit(table().drop(columns="pay"), schema=TABLE, out=folder / "run")
    assert not (folder / "run").exists()


def check_settings_are_read_back_and_quick_ones_can_be_run(system: System, kind: str, folder: Path) -> None:
    """Settings survive JSON, as in a release or a run folder."""
    schema = IMAGES if kind == "image" else TABLE
    settings = recipes.resolve(system.recipe, schema=schema, dataset=None, epsilon=EPSILON)
    for named in (settings, recipes.quick(settings)):
        read = settings_of(json.loads(json.dumps(named.to_json())))
        assert read == dataclasses.replace(named, kinds=read.kinds)
        recipes.check(named)


def check_a_stopped_run_ends_like_one_that_was_not(system: System, kind: str, folder: Path) -> None:
    """The same ledger and, to the last bit, the same generator; also when the checkpoint is lost and answers are replayed.

    Needs the fixture `repeatable`: without noise, two runs with one seed are the same.
    """
    warm = (
        "warm_steps" in system.settings
    )  # before the first iteration: asked once before the class counts, then after each step
    system.fit(kind, folder / "whole")
    cases = (
        (("run", False), ("lost", True)) if system.private else (("run", False),)
    )  # without a gate there is no transcript
    for name, lost in cases:
        monitor = stopping_at_question(3) if not system.iterates or (warm and not lost) else stopping(2)
        with pytest.raises(Interrupted, match="--resume" if system.iterates else "kept"):
            system.fit(kind, folder / name, monitor)
        if lost and system.iterates:
            (kept,) = (folder / name / "private").glob("checkpoint-*.safetensors")
            kept.unlink()
        steps: list[Progress] = []
        Synthesizer.resume(folder / name, *data(kind), monitor=Monitor(on_progress=steps.append))
        if lost and system.iterates:
            assert [step.replayed for step in steps] == [True, True, False]
        assert tally(folder / name) == tally(folder / "whole")
        assert torch.equal(weights(folder / "whole"), weights(folder / name))
        assert verify(folder / name / "release").passed


def check_no_records_and_one_class_are_enough_for_a_release(system: System, kind: str, folder: Path) -> None:
    """What records contain, and whether there are any, does not decide whether there is a release."""
    whole, labels = data(kind)
    one_class = np.asarray(whole["ill"] == "no") if kind == "table" else labels == 0
    for name, rows in (("none", np.zeros(len(whole), dtype=bool)), ("one", one_class)):
        made = system.model().fit(
            whole[rows],
            None if labels is None else labels[rows],
            schema=IMAGES if kind == "image" else TABLE,
            out=folder / name,
        )
        drawn = made.sample(2)
        assert len(drawn[0] if kind == "image" else drawn) == 2


CHECKS: list[Check] = [
    check_fit_sample_save_load_verify,
    check_a_value_of_one_record_occurs_nowhere_in_the_release,
    check_other_records_cannot_resume_a_run,
    check_bad_input_is_named_and_leaves_no_folder,
    check_settings_are_read_back_and_quick_ones_can_be_run,
    check_no_records_and_one_class_are_enough_for_a_release,
]
