"""A release is written whole, holds nothing else, and gives the same records for the same seed."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open

from gpate.accounting import Budget, DiscreteGaussian, Gaussian, Ledger, read_ledger
from gpate.accounting.ledger import Header
from gpate.boundary import FastNoise
from gpate.errors import (
    BudgetBookMismatch,
    ConditionTooRare,
    InvalidValue,
    LedgerSealed,
    OutputExists,
    OutputFailed,
    ReleaseCorrupt,
    ReleaseNotFound,
    ReleaseRefused,
    ReleaseVersion,
    ReleaseWriteFailed,
    UnknownClass,
)
from gpate.release import Certificate, Release, load, verify, write_release
from gpate.release import release_files as files
from gpate.release.conditions import class_number, parse_condition
from gpate.release.generator_file import Config
from gpate.release.output_files import class_folders, write_records
from gpate.schema import ImageSchema, Schema
from tests.processes import LIMIT
from tests.releases import IMAGES, TABLE, make_release, paid_gate, spec_for, student_for

NAMES = {"ledger.jsonl", "generator.safetensors", "schema.yaml", "config.json", "certificate.json"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Release:
    folder = tmp_path_factory.mktemp("table") / "release"
    make_release(folder)
    return Release.load(folder)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Release:
    folder = tmp_path_factory.mktemp("images") / "release"
    make_release(folder, IMAGES)
    return Release.load(folder)


# --- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [TABLE, IMAGES], ids=["table", "image"])
def test_a_release_is_five_files_of_public_things(tmp_path: Path, schema: Any) -> None:
    settings = {"recipe": "test", "clip": float("inf"), "steps": (1, 2)}
    certificate = make_release(tmp_path / "r", schema, settings=settings)
    assert set(os.listdir(tmp_path / "r")) == NAMES
    expected = student_for(schema).network.state_dict()
    with safe_open(tmp_path / "r" / "generator.safetensors", "pt") as file:
        assert set(file.keys()) == set(expected)
        assert all(torch.equal(file.get_tensor(name), tensor) for name, tensor in expected.items())
        assert file.metadata() is None
    ledger = read_ledger(tmp_path / "r" / "ledger.jsonl")
    assert ledger.sealed
    assert certificate.spend == ledger.spend < certificate.epsilon == 1.0
    assert certificate.head == ledger.head
    assert certificate.releasable
    config = json.loads((tmp_path / "r" / "config.json").read_text(), parse_constant=pytest.fail)
    assert config["settings"] == {"recipe": "test", "clip": "inf", "steps": [1, 2]}
    assert Schema.load(tmp_path / "r" / "schema.yaml") == schema
    assert Release.load(tmp_path / "r").certificate == certificate


def test_notes_are_read_back_and_older_releases_have_none(tmp_path: Path) -> None:
    make_release(tmp_path / "r", notes=["Mostly <noise>.", "Little."])
    assert Release.load(tmp_path / "r").notes == ("Mostly <noise>.", "Little.")
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    del config["notes"]
    assert Config.from_bytes(files.to_json(config)).notes == ()
    for hostile in ("text", [1], {"a": "b"}, None, [["nested"]]):
        with pytest.raises(ReleaseCorrupt, match="does not describe a generator"):
            Config.from_bytes(files.to_json({**config, "notes": hostile}))


@pytest.mark.parametrize("canary", ["teachers.0.weight", "optimiser.0.exp_avg", "dense1.weight.private"])
def test_no_tensor_but_the_generators_gets_in(tmp_path: Path, canary: str) -> None:
    weights = {**student_for(TABLE).network.state_dict(), canary: torch.ones(3)}
    with pytest.raises(ReleaseRefused, match=canary):
        make_release(tmp_path / "r", weights=weights)
    assert os.listdir(tmp_path / "r") == ["ledger.jsonl"]
    assert not read_ledger(tmp_path / "r" / "ledger.jsonl").sealed  # refused before anything was closed


def test_weights_that_are_missing_misshapen_or_not_finite_are_refused(tmp_path: Path) -> None:
    whole = dict(student_for(TABLE).network.state_dict())
    name = "dense1.weight"
    broken = {
        "missing": {k: v for k, v in whole.items() if k != name},
        r"instead of float32\[": {**whole, name: whole[name][1:]},
        "float64": {**whole, name: whole[name].double()},
        "not finite": {**whole, name: whole[name] * math.nan},
    }
    for i, (message, weights) in enumerate(broken.items()):
        with pytest.raises(ReleaseRefused, match=message):
            make_release(tmp_path / str(i), weights=weights)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shares": [0.5, 0.6]}, "sum to 1"),
        ({"shares": [1.0]}, "2 numbers"),
        ({"shares": [math.nan, 0.5]}, "sum to 1"),
        ({"spec": spec_for(IMAGES)}, "kind is 'image'"),
        ({"settings": {"loss": math.nan}}, "plain data"),
        ({"settings": {"tensor": torch.ones(2)}}, "plain data"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ReleaseRefused, match=message):
        make_release(tmp_path / "r", **changes)
    assert os.listdir(tmp_path / "r") == ["ledger.jsonl"]


def test_a_folder_with_anything_else_is_refused(tmp_path: Path) -> None:
    for i, stranger in enumerate(["checkpoint.safetensors", ".hidden", "private"]):
        folder = tmp_path / str(i)
        folder.mkdir()
        (folder / stranger).touch()
        with pytest.raises(ReleaseRefused, match="do not belong"):
            _write(folder)
    (tmp_path / "elsewhere").touch()
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "schema.yaml").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ReleaseRefused, match="plain file"):
        _write(tmp_path / "link")


def test_the_ledger_must_be_the_one_in_the_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with paid_gate(tmp_path / "a") as gate, pytest.raises(ReleaseRefused, match="The ledger of this run is"):
        _write(tmp_path / "b", ledger=gate.ledger)


def test_a_budget_book_that_refuses_leaves_no_generator(tmp_path: Path) -> None:
    def refuse(_: Any) -> Any:
        raise BudgetBookMismatch("no such run")

    with pytest.raises(BudgetBookMismatch):
        _write(tmp_path, settle=refuse)
    assert {path.name for path in tmp_path.iterdir()} <= {"ledger.jsonl"}


def _write(folder: Path, **changes: Any) -> Certificate:
    student = student_for(TABLE)
    ledger = changes.pop("ledger", None) or paid_gate(folder).ledger
    arguments: dict[str, Any] = {"not_for_release": (), "settings": {}, "schema": TABLE, "shares": [0.5, 0.5]}
    arguments |= {"spec": student.spec, "weights": student.network.state_dict(), "ledger": ledger}
    return write_release(folder, **{**arguments, **changes})


def test_writing_again_gives_the_same_and_clears_half_written_files(tmp_path: Path) -> None:
    with paid_gate(tmp_path) as gate:
        first = _write(tmp_path, ledger=gate.ledger)
        before = {name: (tmp_path / name).read_bytes() for name in NAMES}
        (tmp_path / "config.json.partial").write_bytes(b"{")
        (tmp_path / "certificate.json").unlink()  # as after a crash before the last step
        with pytest.raises(ReleaseNotFound, match="not finished"):
            Release.load(tmp_path)
        assert _write(tmp_path, ledger=gate.ledger) == first
        assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before
        with pytest.raises(LedgerSealed):
            gate.pay(DiscreteGaussian(sigma=40.0, grid=gate.grid(40.0)), purpose="after the end")


def test_a_run_that_is_not_for_release_must_be_stamped(tmp_path: Path) -> None:
    with pytest.raises(ReleaseRefused, match="noise is fast"):
        make_release(tmp_path / "fast", noise=FastNoise(), not_for_release=())
    with pytest.raises(ReleaseRefused, match="infinite"):
        make_release(tmp_path / "infinite", epsilon=math.inf, not_for_release=())
    with pytest.raises(ReleaseRefused, match="memory"):
        make_release(tmp_path / "memory", memory=True, not_for_release=())
    stamped = make_release(tmp_path / "stamped", noise=FastNoise(seed=1))
    assert stamped.not_for_release == ("noise is fast, fixed seed, not exact",)
    assert verify(tmp_path / "stamped").passed
    assert not verify(tmp_path / "stamped").releasable


def test_a_ledger_kept_in_memory_is_written_out(tmp_path: Path) -> None:
    certificate = make_release(tmp_path / "r", memory=True)
    assert "memory" in certificate.not_for_release[0]
    assert verify(tmp_path / "r").passed
    with paid_gate(tmp_path) as gate:
        gate.ledger.seal()
        assert gate.ledger.to_bytes() == (tmp_path / "ledger.jsonl").read_bytes()
        header = Header(budget=gate.budget, noise="exact")
    same = Ledger.in_memory(header)
    assert same.to_bytes() == (tmp_path / "ledger.jsonl").read_bytes().splitlines(keepends=True)[0]


def test_an_infinite_epsilon_is_plain_json_and_comes_back(tmp_path: Path) -> None:
    certificate = make_release(tmp_path / "r", epsilon=math.inf)
    data = json.loads((tmp_path / "r" / "certificate.json").read_text(), parse_constant=pytest.fail)
    assert data["epsilon"] == "inf"
    assert Certificate.from_json(data) == certificate
    assert "There is no privacy guarantee" in certificate.statement()
    assert verify(tmp_path / "r").passed


@pytest.fixture
def small_disk() -> Iterator[None]:
    """A process that may write 6,000 bytes to a file: what a full disk does, in miniature."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_no_release(tmp_path: Path, small_disk: None) -> None:
    with pytest.raises(ReleaseWriteFailed, match=r"generator\.safetensors could not be written .*free disk space"):
        make_release(tmp_path / "r")
    assert os.listdir(tmp_path / "r") == ["ledger.jsonl"]


# --- reading ----------------------------------------------------------------------------------------------------------


def test_the_statement_says_how_much_for_whom_and_what_not(table: Release) -> None:
    words = table.certificate.statement()
    for part in ("epsilon = 1 ", "delta = 1e-05", "one record", "e^1 = 2.72", "Not covered", "several records"):
        assert part in words
    assert "NOT FOR RELEASE" not in words


def test_newer_versions_are_named(table: Release) -> None:
    with pytest.raises(ReleaseVersion, match="upgrade"):
        Certificate.from_json({**table.certificate.to_json(), "gpate_certificate": 2})


def test_loading_checks_hashes_unless_told_not_to(tmp_path: Path) -> None:
    make_release(tmp_path / "r")
    path = tmp_path / "r" / "generator.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ReleaseCorrupt, match=r"generator\.safetensors: its SHA-256"):
        Release.load(tmp_path / "r")
    assert len(Release.load(tmp_path / "r", check=False).sample(3)) == 3
    (tmp_path / "r" / "extra.py").write_text("print('code')")
    with pytest.raises(ReleaseCorrupt, match=r"'extra\.py' does not belong"):
        Release.load(tmp_path / "r")
    with pytest.raises(ReleaseNotFound):
        Release.load(tmp_path / "nowhere")
    with pytest.raises(ReleaseNotFound):
        Release.load(tmp_path)


def test_nothing_in_a_release_is_run_and_nothing_private_is_imported(tmp_path: Path) -> None:
    make_release(tmp_path / "r")
    code = (
        "import sys\nfrom gpate.release import Release, verify\n"
        f"assert verify({str(tmp_path / 'r')!r}).passed\nRelease.load({str(tmp_path / 'r')!r}).sample(3)\n"
        "assert not [m for m in sys.modules if m.startswith(('gpate.records', 'gpate.methods', 'gpate.boundary', 'opendp'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LIMIT)


# --- sampling ---------------------------------------------------------------------------------------------------------


def test_a_table_has_the_schemas_columns_and_types(table: Release) -> None:
    frame = table.sample(2_000, seed=0)
    assert list(frame.columns) == TABLE.names
    assert len(frame) == 2_000
    assert frame.index.equals(pd.RangeIndex(2_000))
    assert frame.age.between(17, 90).all()
    assert set(frame.income) == {"<=50K", ">50K"}
    assert frame.job.isna().any()
    assert set(frame.job.dropna()) == {"Clerk", "Cook", 'a "b", c'}


def test_images_are_uint8_with_their_classes(images: Release) -> None:
    pixels, labels = images.sample(300, seed=0)
    assert pixels.shape == (300, 8, 8)
    assert pixels.dtype == np.uint8
    assert set(labels) == set(IMAGES.classes)


@pytest.mark.parametrize("chunk", [1, 100, 256, 5_000])
def test_chunks_do_not_change_the_records(table: Release, images: Release, chunk: int) -> None:
    n = 300 if chunk == 1 else 9_000
    parts = list(table.sample_chunks(n, seed=3, chunk=chunk))
    assert {len(part) for part in parts[:-1]} <= {chunk}
    pd.testing.assert_frame_equal(pd.concat(parts), table.sample(n, seed=3))
    pd.testing.assert_frame_equal(table.sample(50, seed=3), table.sample(n, seed=3).iloc[:50])
    whole, labels = images.sample(600, seed=3)
    made = list(images.sample_chunks(600, seed=3, chunk=chunk))
    assert np.array_equal(np.concatenate([part[0] for part in made]), whole)
    assert np.array_equal(np.concatenate([part[1] for part in made]), labels)


def test_the_same_seed_is_the_same_and_another_is_not(table: Release) -> None:
    again = Release.load(table.folder)
    torch.manual_seed(99)  # global state has no part in it
    state = torch.get_rng_state()
    pd.testing.assert_frame_equal(table.sample(100, seed=5), again.sample(100, seed=5))
    assert torch.equal(state, torch.get_rng_state())
    assert not table.sample(100, seed=5).equals(table.sample(100, seed=6))
    assert not table.sample(100).equals(table.sample(100))


def test_none_at_all_is_an_empty_table_of_the_same_types(table: Release) -> None:
    assert (table.sample(0).dtypes == table.sample(5).dtypes).all()
    assert table.sample(0).empty


def test_classes_follow_their_shares(tmp_path: Path) -> None:
    make_release(tmp_path / "r", shares=[0.9, 0.1])
    frame = Release.load(tmp_path / "r").sample(4_000, seed=0)
    assert abs((frame.income == ">50K").mean() - 0.1) < 0.03


def test_a_class_by_name_or_number_and_all_in_turn(table: Release, images: Release) -> None:
    for value in (">50K", 1, "1"):
        assert set(table.sample(50, where={"income": value}).income) == {">50K"}
    assert set(images.sample(20, where={"class": "dog"})[1]) == {"dog"}
    _, labels = images.sample(9, balanced=True)
    assert list(labels) == list(IMAGES.classes) * 3
    for value in ("rich", 2, "-1", None, "²"):
        with pytest.raises(UnknownClass, match="The classes are: <=50K, >50K"):
            table.sample(1, where={"income": value})
    with pytest.raises(InvalidValue, match="balanced"):
        table.sample(1, where={"income": 1}, balanced=True)


def test_class_names_win_over_numbers() -> None:
    assert class_number(("1", "0"), 1) == 0
    assert class_number((10, 20), "20") == 1
    assert class_number((False, True), "true") == class_number((False, True), 1) == 1
    with pytest.raises(UnknownClass):
        class_number((10, 20), 1)  # a number among numbers is a name


def test_conditions_on_other_columns(table: Release) -> None:
    where = {"income": "<=50K", "job": "Cook", "age": (40, 60), "grade": 2, "seen": "2024-01-05..2024-01-25"}
    frame = table.sample(40, where=where, seed=0)
    assert len(frame) == 40
    assert set(frame.income) == {"<=50K"}
    assert set(frame.job) == {"Cook"}
    assert frame.age.between(40, 60).all()
    assert set(frame.grade) == {2}
    assert frame.seen.between(datetime(2024, 1, 5), datetime(2024, 1, 25)).all()
    pd.testing.assert_frame_equal(frame, pd.concat(list(table.sample_chunks(40, where=where, seed=0, chunk=7))))
    assert table.sample(5, where={"fare": None}).fare.isna().all()
    assert table.sample(5, where={"married": "true"}).married.all()


def test_rare_conditions_end_with_an_error(table: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "PATIENCE", 10_000)
    with pytest.raises(ConditionTooRare, match=r"Only 0 of .* meet fare = 0\.5, income = 1.*loosen"):
        table.sample(5, where={"fare": 0.5, "income": 1})


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"age": "60..40"}, "lower end first"),
        ({"age": "40.2..40.8"}, "a whole number"),
        ({"age": "old"}, "such as '17..90'"),
        ({"age": "900..1000"}, "declared bounds 17..90"),
        ({"seen": "yesterday"}, "such as '20"),
        ({"seen": "1950-01-01..1950-02-01"}, "declared bounds"),
    ],
)
def test_conditions_are_refused_with_the_words_of_their_column(
    table: Release, where: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidValue, match=re.escape(said)):
        table.sample(1, where=where)


@pytest.mark.parametrize(
    "where", [{"nobody": 1}, {"job": "Pilot"}, {"age": "old"}, {"age": (3, 2)}, {"age": (1, 2, 3)}, {"age": None}]
)
def test_conditions_that_cannot_be_met_are_named(table: Release, where: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(where))):
        table.sample(1, where=where)


def test_a_condition_on_a_command_line(table: Release, images: Release) -> None:
    assert parse_condition(TABLE, "income=>50K") == ("income", ">50K")
    odd = Schema.from_dict({"kind": "table", "columns": {"a": {"type": "boolean"}, "a=b": {"type": "boolean"}}})
    assert parse_condition(odd, "a=b=true") == ("a=b", "true")
    with pytest.raises(InvalidValue, match="among age, fare"):
        parse_condition(TABLE, "income")


# --- output -----------------------------------------------------------------------------------------------------------


def _save(release: Release, path: Path, n: int = 150, **settings: Any) -> Path:
    chunks = release.sample_chunks(n, seed=0, chunk=64)
    return write_records(path, chunks, n=n, schema=release.schema, **settings)


def test_parquet_and_csv_hold_the_sample(table: Release, tmp_path: Path) -> None:
    frame = table.sample(150, seed=0)
    read = pd.read_parquet(_save(table, tmp_path / "a.parquet"))
    pd.testing.assert_frame_equal(read, frame)
    text = pd.read_csv(_save(table, tmp_path / "a.csv"), dtype={"job": object}, parse_dates=["joined", "seen"])
    for name in ("age", "grade", "income", "joined", "seen"):
        assert list(text[name]) == list(frame[name])
    assert list(text.job.fillna("-")) == list(frame.job.astype(object).fillna("-"))
    np.testing.assert_array_equal(text.fare, frame.fare)
    assert set(os.listdir(tmp_path)) == {"a.parquet", "a.csv"}
    assert oct((tmp_path / "a.csv").stat().st_mode)[-3:] == oct(0o666 & ~_umask())[-3:]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_npz_grid_and_folder_hold_the_images(images: Release, tmp_path: Path) -> None:
    from PIL import Image

    pixels, labels = images.sample(150, seed=0)
    with np.load(_save(images, tmp_path / "a.npz"), allow_pickle=False) as arrays:
        assert np.array_equal(arrays["images"], pixels)
        assert np.array_equal(arrays["labels"], labels)
    first = (tmp_path / "a.npz").read_bytes()
    assert _save(images, tmp_path / "b.npz").read_bytes() == first
    grid = np.asarray(Image.open(_save(images, tmp_path / "a.png", columns=3)))
    assert grid.shape == (50 * 9 - 1, 3 * 9 - 1)
    assert np.array_equal(grid[9:17, 18:26], pixels[5])
    folder = _save(images, tmp_path / "pictures")
    assert sorted(os.listdir(folder)) == ["cat", "class-2", "dog"]
    found = sorted(folder.rglob("*.png"), key=lambda path: path.name)
    assert len(found) == 150
    assert np.array_equal(np.asarray(Image.open(found[7])), pixels[7])


def test_colour_images_without_classes(tmp_path: Path) -> None:
    make_release(tmp_path / "r", ImageSchema(height=8, width=12, channels=3))
    release = Release.load(tmp_path / "r")
    pixels, labels = release.sample(5, seed=0)
    assert pixels.shape == (5, 8, 12, 3)
    assert labels is None
    with np.load(_save(release, tmp_path / "a.npz", 5), allow_pickle=False) as arrays:
        assert arrays.files == ["images"]
        assert np.array_equal(arrays["images"], pixels)
    _save(release, tmp_path / "a.png", 5)
    assert len(list(_save(release, tmp_path / "flat", 5).glob("*.png"))) == 5
    with pytest.raises(InvalidValue, match="where"):
        release.sample(1, where={"class": 0})


@pytest.mark.parametrize(
    "classes",
    [
        ("..", ".", "/", "/etc/passwd", "a/b", "a\\b", "", "\0", "C:", "x" * 300),
        ("Cat", "cat", "class-0", "dog"),
        ("class-0", "../x", "class-x-1"),
        (1.5, 2.0),
    ],
)
def test_class_folders_stay_inside(classes: tuple[Any, ...], tmp_path: Path) -> None:
    names = class_folders(classes)
    assert len({name.lower() for name in names}) == len(classes)
    for name in names:
        assert (tmp_path / name).resolve().parent == tmp_path.resolve()
        (tmp_path / name).mkdir()


def test_nothing_is_overwritten_unless_asked(table: Release, images: Release, tmp_path: Path) -> None:
    path = _save(table, tmp_path / "a.csv")
    before = path.read_bytes()
    with pytest.raises(OutputExists, match="--force"):
        _save(table, path, 10)
    assert path.read_bytes() == before
    _save(table, path, 10, force=True)
    assert len(pd.read_csv(path)) == 10
    mine = tmp_path / "thesis"
    mine.mkdir()
    (mine / "chapter.tex").touch()
    with pytest.raises(OutputExists, match="was not written by gpate"):
        _save(images, mine, force=True)
    assert (mine / "chapter.tex").exists()
    folder = _save(images, tmp_path / "pictures", 30)
    _save(images, folder, 5, force=True)
    assert len(list(folder.rglob("*.png"))) == 5
    with pytest.raises(InvalidValue, match="folder that exists"):
        _save(table, tmp_path / "no" / "a.csv")


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.npz", "a.png", "folder"])
def test_a_full_disk_is_named_and_nothing_is_left(
    table: Release, images: Release, tmp_path: Path, small_disk: None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "folder":
        monkeypatch.setattr("PIL.Image.Image.save", _no_room)
    release = table if name in ("a.csv", "a.parquet") else images
    with pytest.raises(OutputFailed, match="partial output is removed"):
        _save(release, tmp_path / name, 500)
    assert not os.listdir(tmp_path)


def _no_room(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_fault_while_sampling_leaves_nothing(table: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "PATIENCE", 5_000)
    chunks = table.sample_chunks(9, where={"fare": 0.5})
    with pytest.raises(ConditionTooRare):
        write_records(tmp_path / "a.csv", chunks, n=9, schema=TABLE)
    assert not os.listdir(tmp_path)


def test_formats_are_named(table: Release, images: Release, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"\.parquet, \.csv"):
        _save(table, tmp_path / "a.npz")
    with pytest.raises(InvalidValue, match=r"\.npz, \.png, a folder"):
        _save(images, tmp_path / "a.pkl")


def test_events_and_spec_are_as_the_tests_suppose() -> None:
    assert Budget(epsilon=1.0, delta=1e-5).allows([Gaussian(sigma=40.0, count=3)])
    assert spec_for(TABLE).softmax == ((3, 7), (7, 10))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_on_a_gpu_the_same_images_up_to_rounding(tmp_path: Path) -> None:
    make_release(tmp_path / "r", IMAGES)
    before, labels = Release.load(tmp_path / "r").sample(300, seed=3)
    moved, same = Release.load(tmp_path / "r").to("cuda").sample(300, seed=3)
    assert labels.tolist() == same.tolist()
    assert np.abs(before.astype(int) - moved.astype(int)).max() <= 2
