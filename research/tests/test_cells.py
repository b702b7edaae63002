"""Cells: unique and stable ids, the right run beside each, and one fit for all cells that ask for it."""

from __future__ import annotations

import hashlib
import math

import pytest

from gpate.datasets import DATASETS
from gpate.errors import InvalidValue
from gpate.methods.pate import Mechanism
from gpate.methods.recipes import recipes, resolve
from gpate.schema import Schema
from gpate_research.reproduce.cells import CELLS, KINDS, METRICS, SYSTEMS, Fit, cells_of, select, unavailable
from gpate_research.reproduce.paper_tables import TABLES, PaperTable
from gpate_research.reproduce.units import Unit, asked, is_of_today, units_of

BY_ID = {cell.id: cell for cell in CELLS}


def test_ids_are_unique_and_every_table_has_cells() -> None:
    assert len(BY_ID) == len(CELLS) == 311
    assert {cell.table for cell in CELLS} == set(TABLES)
    for cell in CELLS:
        assert cell.system in SYSTEMS
        assert cell.dataset in DATASETS
        assert cell.metric in METRICS
        assert math.isinf(cell.epsilon) != SYSTEMS[cell.system].private


def test_ids_do_not_change() -> None:
    """Results files name fits and users name cells: a changed id loses what was run. Adding some needs a new checksum here."""
    ids = "\n".join([*sorted(BY_ID), *sorted({fit.id for cell in CELLS for k in KINDS if (fit := cell.fit(k))})])
    assert hashlib.sha256(ids.encode()).hexdigest()[:16] == "894001ef16e4dfd4"


@pytest.mark.parametrize(
    ("cell", "paper", "published", "default"),
    [
        ("table1c/g-pate/mnist/eps1", "0.5880", "mnist/eps1/paper,accountant=rdp-paper", "mnist/eps1/default"),
        ("table1c/gswgan/celeba-hair/eps10", "0.3725", "celeba-hair/eps10/gswgan", None),
        ("table1c/dcgan/fashion-mnist", "0.8032", "fashion-mnist/epsinf/dcgan", None),
        ("table2/pategan/mnist/eps0.6", "0.3484", "mnist/eps0.6/pategan", None),
        (
            "table4/g-pate/mnist/eps1/k=none",
            "0.1141",
            "mnist/eps1/paper,accountant=rdp-paper,projected_dims=None",
            None,
        ),
        ("table4/g-pate/fashion-mnist/eps1/c=5e-5", "0.5812", "fashion-mnist/eps1/paper,accountant=rdp-paper", None),
        ("table6/real/credit/auprc-mlp", "0.8223", None, "credit/eps1/default"),
        ("table7/nonprivate/credit/auroc-lr", "0.9455", "credit/epsinf/nonprivate", None),
        ("table8/real/mnist/fid", "1.04", None, "mnist/eps1/default"),
        ("beyond/g-pate/adult/eps10/auroc-modern", None, None, "adult/eps10/default"),
        (
            "data-independent/g-pate/mnist/eps10/iterations-bought",
            None,
            "mnist/eps10/paper,accountant=rdp-paper/accounting",
            "mnist/eps10/paper/accounting",
        ),
    ],
)
def test_what_stands_beside_a_figure(cell: str, paper: str | None, published: str | None, default: str | None) -> None:
    found = BY_ID[cell]
    assert found.paper == paper
    assert [None if (fit := found.fit(kind)) is None else fit.id for kind in KINDS] == [published, default]


def test_a_fit_is_named_by_all_that_defines_it() -> None:
    fits = {fit for cell in CELLS for kind in KINDS if (fit := cell.fit(kind)) is not None}
    assert len({fit.id for fit in fits}) == len(fits)


def test_ablations_change_one_setting_of_the_recipe() -> None:
    for cell in select("table4"):
        fit = cell.fit("published")
        assert fit is not None
        schema = Schema.load(DATASETS[cell.dataset].schema_path)
        base = resolve("paper", schema=schema, dataset=cell.dataset, epsilon=1.0)  # type: ignore[arg-type]
        changed = base.changed(dict(fit.changes)).of(Mechanism)
        key, text = cell.setting.split("=")
        name = {"k": "projected_dims", "n": "teachers", "c": "clip", "B": "bins"}[key]
        assert getattr(changed, name) == (None if text == "none" else float(text))
        others = {"projected_dims", "teachers", "clip", "bins", "samples", "vote_sigma", "threshold_sigma"} - {name}
        assert all(getattr(changed, other) == getattr(base.of(Mechanism), other) for other in others)
        assert changed.accountant == "rdp-paper"


def test_several_patterns_are_taken_in_their_order_and_each_must_fit() -> None:
    late, early = "table1c/g-pate/mnist/eps10", "table1c/g-pate/mnist/eps1"
    assert [cell.id for cell in select("all", late, early)] == [late, early]
    several = [cell.id for cell in select("table1c", late, "*/mnist/*", late)]
    assert several[0] == late
    assert sorted(several) == sorted(cell.id for cell in select("table1c", "*/mnist/*"))
    with pytest.raises(InvalidValue, match="table2/nothing"):
        select("all", late, "table2/nothing")


def test_cells_that_ask_for_the_same_fit_share_it() -> None:
    credit = units_of([*select("table1a", "*g-pate*"), *select("table5", "*g-pate*"), *select("table6")], seeds=2)
    assert sorted(unit.id for unit in credit) == [
        "credit/eps1/default/seed0",
        "credit/eps1/default/seed1",
        "credit/eps1/paper,accountant=rdp-paper/seed0",
        "credit/eps1/paper,accountant=rdp-paper/seed1",
    ]
    assert [unit.seed for unit in credit] == [0, 0, 1, 1], "all of the first seed come first"


def test_accounting_has_one_seed_and_unmeasured_parts_have_no_unit() -> None:
    assert {unit.seed for unit in units_of(select("data-independent", "*bought*"), seeds=3)} == {0}
    assert units_of(select("running-time", "*seconds-teachers"), seeds=3) == []


def test_folders_of_units_do_not_clash() -> None:
    units = [unit for quick in (False, True) for unit in units_of(CELLS, seeds=2, quick=quick)]
    assert len({unit.slug for unit in units}) == len({unit.id for unit in units}) == len(units)
    assert all("/" not in unit.slug and len(unit.slug) < 200 for unit in units)


def test_a_recipe_that_is_not_here_is_named() -> None:
    why = unavailable(Fit(recipe="from-elsewhere", dataset="mnist", epsilon=1.0))
    assert why is not None
    assert "from-elsewhere" in why
    assert unavailable(Fit(recipe="default", dataset="digits", epsilon=1.0)) is None


def test_celeba_that_is_not_here_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("GPATE_DATA", str(tmp_path))
    assert "CelebA" in str(unavailable(Fit(recipe="default", dataset="celeba-hair", epsilon=1.0)))


def test_selection() -> None:
    assert {cell.dataset for cell in select("table1c", "*/mnist*")} == {"mnist"}
    assert len(select("all")) == len(CELLS)
    with pytest.raises(InvalidValue, match="table"):
        select("table9")
    with pytest.raises(InvalidValue, match="--cell"):
        select("table1c", "nothing-like-it")


def test_a_grid_that_contradicts_itself_is_refused() -> None:
    grid = "dataset epsilon real\nmnist 1 9.86\nmnist 10 9.87"
    table = PaperTable(id="t", title="", source="", fixed="inception-score", grid=grid)
    with pytest.raises(InvalidValue, match="one mind"):
        list(cells_of(table))
    with pytest.raises(InvalidValue, match="word of a grid"):
        list(cells_of(PaperTable(id="t", title="", source="", fixed="accuracy", grid="epsilon mnits\n1 0.5")))


def test_what_is_asked_is_the_recipe_and_not_its_speed() -> None:
    fit = Fit(recipe="paper", dataset="mnist", epsilon=1.0)
    plain = asked(Unit(fit=fit, seed=0))
    assert plain["mechanism"]["teachers"] == recipes()["paper-mnist-eps1"].of(Mechanism).teachers
    assert "speed" not in plain
    assert plain == asked(Unit(fit=fit, seed=7))
    assert plain != asked(Unit(fit=fit, seed=0, quick=True))


def test_a_result_from_before_a_setting_was_there_has_its_default() -> None:
    unit = Unit(fit=Fit(recipe="paper", dataset="mnist", epsilon=1.0), seed=0)
    recorded = asked(unit)
    assert is_of_today(recorded, unit)
    training = {name: value for name, value in recorded["training"].items() if name != "balanced"}
    assert is_of_today({**recorded, "training": training}, unit)
    assert not is_of_today({**recorded, "training": {**training, "balanced": True}}, unit)
    assert not is_of_today({**recorded, "training": {**training, "no such setting": 1}}, unit)
    assert not is_of_today({"method": "votes"}, unit)
    assert not is_of_today({**recorded, "no such group": {}}, unit)
    balanced = Unit(fit=Fit(recipe="dcgan", dataset="mnist", epsilon=float("inf")), seed=0)
    earlier = asked(balanced)
    del earlier["training"]["balanced"]  # that recipe's is not the default
    assert not is_of_today(earlier, balanced)
    images = Unit(fit=Fit(recipe="default", dataset="mnist", epsilon=1.0), seed=0)
    before = asked(images)
    before["embedding"]["first"]["colours"] = 0.0  # a setting that is no more, with which nothing was done
    assert is_of_today(before, images)
    before["embedding"]["first"]["colours"] = 0.1
    assert not is_of_today(before, images)
    peer = Unit(fit=Fit(recipe="dpmm-mst", dataset="adult", epsilon=1.0, task="peer"), seed=0)
    assert is_of_today({"peer": "dpmm-mst"}, peer)
    assert not is_of_today({"peer": "dpmm-aim"}, peer)
