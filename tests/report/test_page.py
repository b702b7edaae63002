"""The page as text: what is in it, what can never be in it, and what it says when something is missing."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from gpate import BudgetBook, Synthesizer
from gpate.boundary import FastNoise
from gpate.datasets import benchmark_of
from gpate.errors import InvalidValue, ReleaseCorrupt, ReleaseNotFound, ReleaseRefused
from gpate.evaluation.results import Score
from gpate.report import page, write_report
from gpate.report.page import render
from gpate.schema import ImageSchema, PrivacyUnit, Schema
from tests.methods import small
from tests.releases import IMAGES, TABLE, make_release
from tests.report.fixtures import HOSTILE, evaluation, hostile_schema, membership, real_table, wide_schema


@pytest.fixture(autouse=True)
def few_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page says hardly depends on how many records it draws; `test_look` and the command's tests draw them all."""
    monkeypatch.setattr(page, "RECORDS", 1_500)
    monkeypatch.setattr(page, "PER_CLASS", 12)


@pytest.fixture(scope="module")
def table_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table-run")
    make_release(folder / "release")
    return folder


@pytest.fixture(scope="module")
def image_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("image-run")
    make_release(folder / "release", IMAGES)
    return folder


def real_images(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, 8, 8)).astype(np.uint8), np.array(IMAGES.classes, dtype=object)[
        np.arange(count) % 3
    ]


class Reader(HTMLParser):
    """Elements with their attributes, headings in order, and text outside of style."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.parts: list[str] = []
        self.feed(page)
        self.text = "".join(self.parts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    def every(self, *tags: str) -> list[tuple[str, dict[str, str | None]]]:
        return [element for element in self.elements if element[0] in tags]


def check_form(page: str) -> Reader:
    """What every page must be: closed to the network, and readable without eyes or mouse."""
    found = Reader(page)
    assert page.startswith("<!doctype html>")
    assert found.every("html")[0][1]["lang"] == "en"
    policy = next(a["content"] for _, a in found.every("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert not found.every("script", "iframe", "object", "embed", "form", "base", "video", "audio")
    for tag, attributes in found.elements:
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        for name in ("src", "href", "xlink:href", "action", "srcset"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:")), (tag, target)
    for _, attributes in found.every("img"):
        assert attributes["alt"]
    for _, attributes in found.every("svg"):
        assert attributes.get("aria-label") or attributes.get("aria-hidden") == "true"
    levels = [int(tag[1]) for tag, _ in found.every("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [(attributes["href"] or "")[1:] for _, attributes in found.every("a")]
    assert set(links) <= set(ids)
    return found


def test_a_table_with_everything(table_run: Path) -> None:
    page = render(table_run, real=real_table(), evaluations=[evaluation()])
    found = check_form(page)
    assert "Confidential: do not pass on." in found.text
    assert "May be released" in found.text
    assert "right at most 73% of the time" in found.text
    assert "Models trained on synthetic records reach AUROC 0.817, against 0.911 with real ones." in found.text
    assert "Low coverage" in found.text  # the fixture's coverage is 0.31
    assert "not computable, because one class is missing" in found.text
    assert "0.82 ± 0.01" in page
    for column in TABLE.names:
        assert column in found.text
    assert "missing" in found.text
    assert "Synthetic minus real" in found.text
    assert "To add it" not in found.text
    assert render(table_run, real=real_table(), evaluations=[evaluation()]) == page  # the same input, the same page


def test_images_with_everything(image_run: Path) -> None:
    record = evaluation("image")
    page = render(image_run, real=real_images(), evaluations=[record])
    found = check_form(page)
    assert len(found.every("img")) == 6
    assert found.every("img")[0][1]["alt"] == "8 real images, class cat"
    assert "../../etc" in found.text
    assert "Real against synthetic" in found.text


def test_the_page_for_release_does_not_depend_on_anything_real(table_run: Path, image_run: Path) -> None:
    """Byte by byte the page that is made where there is nothing real at all."""
    for run, kind, real in ((table_run, "table", real_table()), (image_run, "image", real_images())):
        bare = render(run, release=True)
        assert render(run, real=real, evaluations=[evaluation(kind)], release=True) == bare
        found = check_form(bare)
        assert "What was left out" in found.text
        assert "Safe to publish" in found.text
        assert "Internal" not in found.text
        assert "Confidential" not in found.text
        inside = render(run, real=real, evaluations=[evaluation(kind)])
        for secret in (
            "7,654,321",
            "9,876",
            "false alarms",
            "AUROC 0.817",
            *(["differs by", "19 in 20 real samples", "far off", "median"] if kind == "table" else ["8 real images"]),
        ):
            assert secret in inside  # so that the next line can fail
            assert secret not in bare


def test_the_page_of_a_run_for_persons_names_the_unit_and_the_book(tmp_path: Path) -> None:
    schema = replace(small.TABLE, unit=PrivacyUnit(column="person", max_records=3))
    book = BudgetBook.create(tmp_path / "clinic.budget", epsilon=4.0, delta=1e-5)
    data = small.table().assign(person=[i // 2 for i in range(80)])
    Synthesizer(delta=1e-6, quick=True).fit(data, schema=schema, out=tmp_path / "run", budget=book)
    text = " ".join(check_form(render(tmp_path / "run", release=True)).text.split())
    assert "guesses whether the records of one given unit were used is right at most 73%" in text
    assert (
        "for all records of each unit (neighbours: all records of one unit added or removed: unit person, at most 3"
        in text
    )
    assert "budget book of these records guarantee ε = 4 and δ = 0.00001 together. This is entry 2." in text
    assert f"entry 2 of {book.fingerprint}" in text
    assert "one given record" not in text


def test_a_stamped_run_has_no_page_for_release_and_a_red_one_for_inside(tmp_path: Path) -> None:
    make_release(tmp_path / "release", noise=FastNoise(seed=1))
    with pytest.raises(ReleaseRefused, match=r"may not be released.*leave out --release"):
        render(tmp_path, release=True)
    found = check_form(render(tmp_path))
    assert "Must not be released" in found.text
    assert "Stamped not for release" in found.text
    assert "May be released" not in found.text


def test_infinite_epsilon(tmp_path: Path) -> None:
    make_release(tmp_path / "release", epsilon=float("inf"), not_for_release=("nothing is guaranteed",))
    found = check_form(render(tmp_path))
    assert "No guarantee" in found.text
    assert "Must not be released" in found.text


def test_hostile_names_are_text_and_nothing_else(tmp_path: Path) -> None:
    make_release(tmp_path / "release", hostile_schema())
    record = evaluation(dataset=HOSTILE, subject=HOSTILE, notes=(HOSTILE,), protocol=HOSTILE, created=HOSTILE)
    page = render(tmp_path, evaluations=[record])
    found = check_form(page)  # no script, no handler, no address, whatever the names are
    assert page.count("</style>") == 1
    assert "<script" not in page
    assert "<img" not in page
    assert HOSTILE in found.text  # a note is shown in full
    assert "{{ 7*191 }}" in page
    assert "1337" not in re.sub(r"sha256-\S+|[0-9a-f]{64}", "", page)
    assert "\u202e" not in page


@pytest.mark.parametrize("columns", [1, 2, 200])
def test_any_number_of_columns_without_a_target(tmp_path: Path, columns: int) -> None:
    make_release(tmp_path / "release", wide_schema(columns))
    found = check_form(render(tmp_path))
    assert "no class proportions" in found.text
    assert f"column {columns - 1}" in found.text
    if columns == 1:
        assert "A single column has no associations" in found.text
    if columns == 200:
        assert "188 more columns" in found.text
        assert "180 of 200 columns are not in these maps" in found.text


def test_images_without_classes_and_many_classes(tmp_path: Path) -> None:
    make_release(tmp_path / "none" / "release", ImageSchema(height=8, width=8, channels=3))
    found = check_form(render(tmp_path / "none"))
    assert "all images" in found.text
    make_release(tmp_path / "many" / "release", ImageSchema(height=8, width=8, classes=tuple(range(30))))
    assert "10 further classes are not shown" in check_form(render(tmp_path / "many")).text


def test_what_is_missing_is_said_with_the_command_that_adds_it(table_run: Path, tmp_path: Path) -> None:
    text = check_form(render(table_run)).text
    assert f"gpate report {table_run} --real DATA -o report.html" in text
    assert "No evaluation was given." in text
    assert "gpate evaluate" in text
    assert "holds no figure computed without noise" in text
    digits = Schema.load(Path(__file__).parents[2] / "src/gpate/datasets/schemas/digits.yaml")
    assert benchmark_of(digits) == "digits"
    make_release(tmp_path / "release", digits)
    assert "--real digits" in check_form(render(tmp_path)).text


def test_an_attack_that_fails_stands_beside_the_guarantee(table_run: Path) -> None:
    text = check_form(render(table_run, evaluations=[evaluation()])).text
    assert "The attack found nothing" in text
    assert "May be released" in text
    # at epsilon 1 with Gaussian noise alone: Phi(Phi^-1(0.01) + 0.268) = 0.0198
    assert re.search(r"The guarantee allows, at most\s*2%\s*0.24%\s*1\s", text)


def test_an_attack_that_succeeds_is_the_first_thing_to_see(table_run: Path) -> None:
    """The release folder is as sound as before: what is wrong shows only in the attack."""
    found = check_form(render(table_run, evaluations=[evaluation(membership=membership(0.5))]))
    assert "Must not be released" in found.text
    assert "The guarantee is refuted" in found.text
    assert "May be released" not in found.text
    assert "right at most 73% of the time" not in found.text
    assert re.search(r"Refuted\s+claimed: ε = 1", found.text)
    # but not if so much was claimed
    loud = evaluation(membership=membership(0.5), privacy={"epsilon": 8.0, "delta": 1e-5})
    assert "none of this release" in check_form(render(table_run, evaluations=[loud])).text


def test_the_last_attack_counts_even_if_a_later_evaluation_had_none(table_run: Path) -> None:
    both = [evaluation(membership=membership(0.5)), evaluation(membership=None)]
    assert "The guarantee is refuted" in render(table_run, evaluations=both)
    assert "The guarantee is refuted" not in render(table_run, evaluations=[*both, evaluation()])


def test_no_guarantee_cannot_be_refuted(tmp_path: Path) -> None:
    make_release(tmp_path / "release", epsilon=float("inf"), not_for_release=("nothing is guaranteed",))
    record = evaluation(membership=membership(0.5), privacy={"epsilon": "inf", "delta": 1e-5})
    text = check_form(render(tmp_path, evaluations=[record])).text
    assert "There is no guarantee to refute" in text
    assert "The guarantee allows" not in text


def test_repeated_training_records_stop_a_release(table_run: Path) -> None:
    copied = Score(group="memorisation", metric="memorised", values=(1.0,), larger_is_better=False)
    text = check_form(render(table_run, evaluations=[evaluation(scores=(copied,))])).text
    assert "Training records are repeated" in text
    assert "Must not be released" in text


def test_a_split_that_is_not_random_is_warned_of(table_run: Path) -> None:
    told = membership()
    apart = replace(told, blind=replace(told.blind, auc=0.7, auc_low=0.65, auc_high=0.75))
    assert "Not a random split" in render(table_run, evaluations=[evaluation(membership=apart)])
    assert "Not a random split" not in render(table_run, evaluations=[evaluation()])


def test_an_evaluation_of_another_release_is_not_shown(table_run: Path) -> None:
    other = evaluation(privacy={"epsilon": 8.0, "delta": 1e-5})
    text = check_form(render(table_run, evaluations=[other])).text
    assert "none of this release" in text
    assert "0.817" not in text
    both = check_form(render(table_run, evaluations=[evaluation(quick=True), other])).text
    assert "0.817" in both
    assert "1 record of the evaluation file left out" in both
    assert "A quick evaluation" in both


def test_small_classes_and_gaps_are_warned_of(tmp_path: Path) -> None:
    make_release(tmp_path / "release", shares=[0.995, 0.005])
    text = check_form(render(tmp_path)).text
    assert "A small class >50K (0.5%)" in " ".join(text.split())


@pytest.mark.parametrize("release", [False, True], ids=["inside", "for release"])
def test_what_the_run_said_stands_among_the_warnings(table_run: Path, tmp_path: Path, release: bool) -> None:
    said = f"Votes are mostly noise. {HOSTILE}"
    make_release(tmp_path / "release", settings={"recipe": "test", "quick": True}, notes=[said])
    text = check_form(render(tmp_path, release=release)).text
    assert f"Reported by the run {said}" in text
    assert "A fast, lower-quality run It was fitted with --quick" in text
    other = render(table_run, release=release)
    assert "Reported by the run" not in other
    assert "A fast, lower-quality run" not in other


def test_a_reason_is_given_once_for_all_scores_that_share_it(table_run: Path) -> None:
    why, other = "not computable, because the quick mode leaves out LR", "not computable, because training failed"
    sides = ("synthetic", "real")
    missing = [
        Score(group="utility", metric=metric, subject="paper mean", source=source, reason=why)
        for metric in ("auroc", "f1", "accuracy")
        for source in sides
    ]
    missing += [Score(group="utility", metric=metric, subject="MLP", reason=other) for metric in ("auroc", "f1")]
    missing += [
        Score(group="utility", metric="f1", subject="MLP", source="real", values=(0.5,)),
        Score(group="utility", metric="auroc", subject="LR", values=(0.7,)),
        Score(group="memorisation", metric="nearer to train", reason=why),
        Score(group="memorisation", metric="memorised", reason=why),
        Score(group="memorisation", metric="exact copies", values=(0.25,)),
        Score(group="memorisation", metric="exact copies", source="real", reason=other),
    ]
    text = check_form(render(table_run, evaluations=[evaluation(scores=tuple(missing))])).text
    assert f"AUROC, F1 and Accuracy (paper mean): {why}\n" in text
    assert f"AUROC (MLP); F1 of synthetic records (MLP): {other}\n" in text  # real records have an F1
    assert f"Nearer to train and Memorised: {why}\n" in text
    assert f"Exact copies of real records: {other}\n" in text
    assert text.count("not computable") == 4
    assert re.search(r"Exact copies.*\s*whole\s*0.25\s*\N{EN DASH}", text)


def test_no_zero_has_a_sign(table_run: Path) -> None:
    """Among them, of a map of differences, those that round to zero from below."""
    below = Score(group="fidelity", metric="kid", values=(-0.00001,), larger_is_better=False)
    found = check_form(render(table_run, real=real_table(), evaluations=[evaluation(scores=(below,))]))
    signed = re.compile(r"(?<![\w/])[-\N{MINUS SIGN}]0(?![.\d])")  # not in the name of a folder, such as pytest-0
    assert "0" in found.parts  # the score, which rounds to zero
    assert [part for part in found.parts if signed.search(part)] == []


def test_refusals(table_run: Path, image_run: Path, tmp_path: Path) -> None:
    with pytest.raises(ReleaseNotFound):
        write_report(tmp_path / "nowhere", tmp_path / "a.html")
    with pytest.raises(InvalidValue, match="outside of the release folder"):
        write_report(table_run, table_run / "release" / "a.html", release=True)
    with pytest.raises(InvalidValue, match="a data frame"):
        render(table_run, real=real_images())
    with pytest.raises(InvalidValue, match="images"):
        render(image_run, real=real_table())
    with pytest.raises(InvalidValue, match="every column of the schema"):
        render(table_run, real=real_table().drop(columns="age"))
    make_release(tmp_path / "release")
    (tmp_path / "release" / "config.json").write_text("{}")
    with pytest.raises(ReleaseCorrupt):
        render(tmp_path)


def test_who_may_read_the_file(table_run: Path, tmp_path: Path) -> None:
    inside = write_report(table_run, tmp_path / "inside.html", real=real_table(200))
    outside = write_report(table_run / "release", tmp_path / "outside.html", release=True)
    assert inside.stat().st_mode & 0o777 == 0o600
    assert outside.stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside.html", "outside.html"]
