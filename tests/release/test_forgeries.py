"""Forged releases whose chain, hashes and fingerprint are right: `gpate.verify` finds them by what their method implies.

Each takes a release that passes, of a table, of images, of votes or of DP-SGD, and changes one thing to make its guarantee look
stronger than it is. What cannot be found without a signature: settings, ledger and budget that together describe another run.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpate import Synthesizer, verify
from gpate.neighbours import RECORD
from gpate.release import Verification
from gpate.schema import Cost, Schema, TableSchema
from tests.methods.small import IMAGES, images
from tests.release.forger import Lines, changed, forge, raised

FIXTURES = Path(__file__).parents[1] / "fixtures"
UNTOUCHED = {"files", "certificate", "ledger.jsonl", "schema.yaml", "config.json", "ledger chain", "ledger seal"}
"""Checks that a thorough forger passes."""

TABLE_LINES = ("tally", "class counts", "one-way tables", "two-way mean", "two-way scale", "two-way moments")
SMALL_GAN = {"iterations": 3, "samples": 4, "critic_steps": 2, "batch": 8, "accountant": "rdp"}


@pytest.fixture(scope="module")
def dpgan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("dpgan") / "run"
    model = Synthesizer(epsilon=2.0, recipe="dpgan", settings=SMALL_GAN, seed=3)
    model.fit(*images(), schema=IMAGES, out=run)
    return run / "release"


@pytest.fixture
def copy(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Path]:
    def copied(name: str) -> Path:
        source = request.getfixturevalue("dpgan") if name == "dpgan" else FIXTURES / f"0.1.0-{name}" / "release"
        return Path(shutil.copytree(source, tmp_path / "release"))

    return copied


def failed(found: Verification) -> set[str]:
    return {check.name for check in found.checks if not check.passed}


def without(*numbers: int) -> Callable[[Lines], Lines]:
    return lambda lines: [line for i, line in enumerate(lines) if i not in numbers]


def at(number: int, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Lines], Lines]:
    return lambda lines: [change(line) if i == number else line for i, line in enumerate(lines)]


def every(change: Callable[[dict[str, Any]], dict[str, Any]], *, frm: int = 0) -> Callable[[Lines], Lines]:
    return lambda lines: [change(line) if i >= frm else line for i, line in enumerate(lines)]


def swapped(a: int, b: int) -> Callable[[Lines], Lines]:
    def exchange(lines: Lines) -> Lines:
        lines[a]["event"], lines[b]["event"] = lines[b]["event"], lines[a]["event"]
        return lines

    return exchange


def budget(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda header: header["budget"].update(changes)


def header(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda found: found.update(changes)


def setting(group: str, **changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda config: config["settings"][group].update(changes)


def with_line(event: dict[str, Any], purpose: str) -> Callable[[Lines], Lines]:
    return lambda lines: [*lines, {"event": event, "purpose": purpose}]


NONPRIVATE = {"kind": "NonPrivate", "count": 1, "reason": "a look"}
HIDDEN = {"kind": "DiscreteGaussian", "count": 1, "sigma": 1e9, "grid": 0.25, "sensitivity": 1.0, "dimension": 9}

FORGERIES: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"table, no {name}": ("table", {"lines": without(i)}) for i, name in enumerate(TABLE_LINES)},
    **{f"table, {n} noisier": ("table", {"lines": at(i, lambda x: raised(x, 1.01))}) for i, n in enumerate(TABLE_LINES)},
    **{f"image, no {n}": ("image", {"lines": without(i)}) for i, n in enumerate(("class counts", "sum"))},
    **{f"image, {n} noisier": ("image", {"lines": at(i, lambda x: raised(x, 1.01))}) for i, n in enumerate(("counts", "sum"))},
    "table, empty ledger": ("table", {"lines": lambda _: []}),
    "image, empty ledger": ("image", {"lines": lambda _: []}),
    "votes, empty ledger": ("paper", {"lines": lambda _: []}),
    "table, empty ledger of a small budget": ("table", {"lines": lambda _: [], "header": budget(epsilon=0.01)}),
    "table, smaller epsilon in the certificate": ("table", {"epsilon": 0.5}),
    "table, smaller spend": ("table", {"spend": 0.5}),
    "image, smaller epsilon in the header": ("image", {"header": budget(epsilon=0.5), "lines": every(lambda x: raised(x, 3.0))}),
    "image, larger epsilon in the header": ("image", {"header": budget(epsilon=8.0), "epsilon": 1.0}),
    "table, other neighbours": ("table", {"header": header(neighbours="one value of one record changed")}),
    "table, other neighbours in the certificate": ("table", {"neighbours": "one value of one record changed"}),
    "image, no neighbours": ("image", {"header": header(neighbours="")}),
    "table, tally of lower sensitivity": ("table", {"lines": at(0, lambda x: changed(x, sensitivity=1.0))}),
    "table, one-way of lower sensitivity": ("table", {"lines": at(2, lambda x: changed(x, sensitivity=0.5))}),
    "table, two-way of lower sensitivity": ("table", {"lines": at(4, lambda x: changed(x, sensitivity=0.9))}),
    "image, sum of lower sensitivity": ("image", {"lines": at(1, lambda x: changed(x, sensitivity=0.5))}),
    "table, fewer counts": ("table", {"lines": at(1, lambda x: changed(x, dimension=1))}),
    "table, fewer cells": ("table", {"lines": at(2, lambda x: changed(x, dimension=200))}),
    "table, fewer moments": ("table", {"lines": at(3, lambda x: changed(x, dimension=2))}),
    "image, fewer features": ("image", {"lines": at(1, lambda x: changed(x, dimension=164))}),
    "table, events of two purposes exchanged": ("table", {"lines": swapped(1, 2)}),
    "image, events of two purposes exchanged": ("image", {"lines": swapped(0, 1)}),
    "table, a line renamed": ("table", {"lines": at(2, lambda x: {**x, "purpose": "class counts"})}),
    "table, another accountant": ("table", {"header": budget(accountant="rdp"), "lines": every(lambda x: raised(x, 1.2))}),
    "table, smaller delta": ("table", {"header": budget(delta=1e-7), "lines": every(lambda x: raised(x, 1.5))}),
    "table, larger delta": ("table", {"header": budget(delta=1e-3)}),
    "table, a part set aside for pure DP": ("table", {"header": budget(pure=0.1), "lines": every(lambda x: raised(x, 1.3))}),
    "table, a coarser grid": ("table", {"lines": at(2, lambda x: changed(x, grid=1.0))}),
    "table, fast noise called exact": ("table", {"lines": every(lambda x: changed(x, kind="Gaussian", grid=None))}),
    "table, a release without noise": ("table", {"lines": with_line(NONPRIVATE, "two-way tables, rare moments")}),
    "table, a release of another purpose": ("table", {"lines": with_line(HIDDEN, "moments")}),
    "table, called a run of images": ("table", {"config": lambda c: c["settings"].update(method="embedding")}),
    "table, called a run of an unknown method": ("table", {"config": lambda c: c["settings"].update(method="mine")}),
    "table, other fractions": ("table", {"config": setting("marginals", crude_share=0.4)}),
    "table, no report of values outside the domain": ("table", {"config": setting("marginals", outside_share=0.0)}),
    "image, other fractions": ("image", {"config": setting("embedding", counts_share=0.02)}),
    "image, more rounds": ("image", {"config": setting("embedding", shares=[0.5, 0.5])}),
    "votes, an iteration less": ("paper", {"lines": without(3, 4)}),
    "votes, no threshold": ("paper", {"lines": without(1)}),
    "votes, noisier thresholds": ("paper", {"lines": at(1, lambda x: raised(x, 2.0))}),
    "votes, noisier votes": ("paper", {"lines": at(2, lambda x: raised(x, 2.0))}),
    "votes, fewer thresholds": ("paper", {"lines": at(1, lambda x: changed(x, count=6))}),
    "votes, more votes than thresholds": ("paper", {"lines": at(2, lambda x: changed(x, count=13))}),
    "votes, fewer bins": ("paper", {"lines": at(2, lambda x: changed(x, bins=2))}),
    "votes, votes before thresholds": ("paper", {"lines": lambda x: [x[0], x[2], x[1], *x[3:]]}),
    "votes, votes charged as thresholds": ("paper", {"lines": lambda x: [*x[:2], {**x[1], "purpose": "vote"}, *x[3:]]}),
    "votes, no count of values outside the domain": ("paper", {"lines": without(0)}),
    "votes, said to go on until the budget is spent": ("paper", {"config": setting("training", iterations=None)}),
    "DP-SGD, half of the steps": ("dpgan", {"lines": without(2, 3, 4)}),
    "DP-SGD, more noise": ("dpgan", {"lines": every(lambda x: raised(x, 1.1), frm=2)}),
    "DP-SGD, smaller samples": ("dpgan", {"lines": every(lambda x: changed(x, sampling_probability=0.01), frm=2)}),
    "DP-SGD, smaller gradients": ("dpgan", {"lines": every(lambda x: changed(x, sensitivity=0.5), frm=2)}),
    "DP-SGD, fewer weights": ("dpgan", {"lines": every(lambda x: changed(x, dimension=10), frm=2)}),
    "DP-SGD, no class counts": ("dpgan", {"lines": without(1)}),
    "DP-SGD, noisier class counts": ("dpgan", {"lines": at(1, lambda x: raised(x, 2.0))}),
    "DP-SGD, a smaller part set aside": ("dpgan", {"header": budget(pure=0.001)}),
}  # fmt: skip


@pytest.mark.parametrize("name", ["table", "image", "paper", "dpgan"])
def test_the_forger_alone_changes_nothing(copy: Callable[[str], Path], name: str) -> None:
    folder = copy(name)
    assert verify(folder).passed
    forge(folder)
    found = verify(folder)
    assert found.passed, found


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_release_does_not_pass(copy: Callable[[str], Path], forgery: str) -> None:
    name, changes = FORGERIES[forgery]
    folder = copy(name)
    forge(folder, **changes)
    found = failed(verify(folder))
    assert found
    assert not found & UNTOUCHED, "the forger was not thorough"


def test_there_are_thirty_and_most_are_seen_by_their_events_alone(copy: Callable[[str], Path]) -> None:
    assert len(FORGERIES) >= 30
    folder = copy("table")
    forge(folder, lines=lambda _: [], header=budget(epsilon=0.01))
    assert failed(verify(folder)) == {"events"}, "what passed before: an empty ledger, and a small epsilon"


def test_the_cost_of_a_schema_is_part_of_the_claim(copy: Callable[[str], Path]) -> None:
    folder = copy("table")
    schema = Schema.from_text((folder / "schema.yaml").read_text())
    assert isinstance(schema, TableSchema)
    charged = replace(schema, cost=Cost(epsilon=0.5, delta=1e-6)).to_text()
    forge(folder, schema=lambda _: charged)
    assert verify(folder).passed
    forge(folder, schema=lambda text: text, epsilon=1.0)
    assert failed(verify(folder)) == {"claim"}
    of_a_person = charged.replace(
        "cost: {", "cost: {neighbours: 'all records of one unit added or removed: unit person', "
    )
    assert of_a_person != charged
    forge(folder, schema=lambda _: of_a_person, epsilon=1.5)
    assert any("do not add up" in check.detail for check in verify(folder).checks if not check.passed)
    forge(folder, schema=lambda _: charged)
    assert RECORD in next(check.detail for check in verify(folder).checks if check.name == "neighbours")
