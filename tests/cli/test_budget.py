"""One budget for a data set, as a custodian uses it: fits, a paid schema, failures, kills, a moved or edited book, verification."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpate import BudgetBook, Synthesizer
from gpate.accounting import BookContents, Budget, DiscreteGaussian, Header, Ledger, grid_for, read_ledger
from gpate.accounting.book_charges import cost_of
from gpate.boundary import Gate
from gpate.cli import app, main
from gpate.errors import BudgetBookExceeded, BudgetBookMismatch, GpateError, InvalidValue, LedgerBusy
from gpate.release import verify
from gpate.run.folder import RunFolder
from gpate.run.progress import Interrupted, Monitor
from gpate.run.reservation import Reservation, settle_run
from gpate.schema import PrivacyUnit
from tests.command import gpate
from tests.methods.small import FAST, TABLE, table
from tests.processes import run as run_process


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table, its schema and a book of epsilon 2, to work in."""
    monkeypatch.chdir(tmp_path)
    table().to_csv("table.csv", index=False)
    TABLE.save(tmp_path / "schema.yaml")
    assert gpate("budget", "create", "clinic.budget", "--epsilon", 2, "--delta", "1e-6", "--schema", "schema.yaml") == 0
    return tmp_path


def fit(out: str, *options: object, epsilon: float = 1.0, book: str = "clinic.budget") -> int:
    source = ("table.csv", "--schema", "schema.yaml", "--quick", "--quiet")
    return gpate("fit", *source, "--epsilon", epsilon, "--out", out, "--budget", book, *options)


def facts(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    capsys.readouterr()
    assert gpate("budget", "show", "clinic.budget", "--json") == 0
    return dict(json.loads(capsys.readouterr().out))


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """What was written to the standard error since the last look, in one line."""
    return " ".join(capsys.readouterr().err.split())


def contents() -> BookContents:
    return BudgetBook("clinic.budget").contents()


# --- runs that succeed or are refused ----------------------------------------------------------------------------------


def test_runs_add_up_until_one_is_refused_with_what_is_left(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit("one") == fit("two", "--noise", "fast") == 0  # fast noise is charged too
    shown = facts(capsys)
    assert 1.4 < float(str(shown["epsilon_spent_or_reserved"])) < 2.0
    before = Path("clinic.budget").read_bytes()
    assert fit("three", epsilon=1.8) == 2
    told = said(capsys)
    assert "BudgetBookExceeded: A run with epsilon 1.8 and delta 1e-05 does not fit" in told
    left = told.split("Left is epsilon ")[1].split()[0]
    assert Path("clinic.budget").read_bytes() == before
    assert not Path("three").exists()  # nothing is left behind
    assert fit("three", epsilon=float(left)) == 0
    assert facts(capsys)["open_reservations"] == 0
    assert contents().spend <= 2.0


def test_a_release_names_its_entry_and_verifies_against_the_book(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit("one") == fit("two") == 0
    assert gpate("verify", "one/release", "--budget", "clinic.budget") == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "this one is entry 2 of the book with the fingerprint" in shown
    found = verify("one/release", budget="clinic.budget")
    assert found.passed
    assert found.certificate is not None
    assert found.certificate.book is not None
    entry = contents().entries[found.certificate.book.entry - 1]
    assert entry.head == found.certificate.head
    assert verify("one/release").passed
    # another book, a book without the entry, an edited one, no book at all, and a release without an entry
    gpate("budget", "create", "other.budget", "--epsilon", 2, "--delta", "1e-6")
    lines = Path("clinic.budget").read_bytes().splitlines(keepends=True)
    Path("cut.budget").write_bytes(b"".join(lines[:2]))
    Path("edited.budget").write_bytes(b"".join(lines).replace(b'"fit"', b'"fat"', 1))
    for wrong in ("other.budget", "cut.budget", "edited.budget", "missing.budget"):
        checks = {check.name: check.passed for check in verify("one/release", budget=wrong).checks}
        assert not checks.pop("budget book"), wrong
        assert all(checks.values())
    assert gpate("fit", "table.csv", "--schema", "schema.yaml", "--quick", "--out", "free") == 0
    assert "other runs on the same records add up" in " ".join(capsys.readouterr().out.split())
    assert "budget_book" not in Path("free/release/certificate.json").read_text()
    assert gpate("verify", "free/release", "--budget", "clinic.budget") == 1
    assert "Fix: give the book that its run was charged to" in " ".join(capsys.readouterr().out.split())
    assert gpate("verify", "free/release") == 0


def test_runs_for_persons_verify_against_their_book_whatever_number_of_records_counts(place: Path) -> None:
    """A book is about the unit: guarantees with another number are about the same neighbours."""
    people = table().assign(person=[i // 2 for i in range(80)])
    for most in (2, 3):
        schema = replace(TABLE, unit=PrivacyUnit(column="person", max_records=most))
        schema.save(f"{most}.yaml")
        if most == 2:
            gpate("budget", "create", "people.budget", "--epsilon", 2, "--delta", "1e-6", "--schema", "2.yaml")
        Synthesizer(quick=True).fit(people, schema=schema, out=f"run-{most}", budget="people.budget")
    for most in (2, 3):
        assert verify(f"run-{most}/release", budget="people.budget").passed
    with pytest.raises(BudgetBookMismatch, match="the two do not add up"):
        Synthesizer(epsilon=0.1, quick=True).fit(table(), schema=TABLE, out="rows", budget="people.budget")
    assert not Path("rows").exists()


def test_an_entry_of_another_run_does_not_verify(place: Path) -> None:
    assert fit("one") == fit("two") == 0
    book = contents()
    from gpate.release.certificate import Certificate

    one = Certificate.from_bytes(Path("one/release/certificate.json").read_bytes())
    for number in (1, 3, 4):  # the reservations, and the other run
        forged = Certificate(**{**one.__dict__, "book": book.position(number)})
        Path("one/release/certificate.json").write_bytes(forged.to_bytes())
        failed = [check.name for check in verify("one/release", budget="clinic.budget").checks if not check.passed]
        assert failed == ["budget book"]


def test_a_run_without_noise_and_a_missing_book_are_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit("run", "--recipe", "nonprivate") == 2
    assert "epsilon must be finite for a run with a budget book" in said(capsys)
    assert fit("run", book="missing") == 2
    assert "There is no budget book" in capsys.readouterr().err
    assert not Path("run").exists()


RENYI = {**FAST, "threshold_sigma": 90.0, "vote_sigma": 60.0, "iterations": 1, "accountant": "rdp"}


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        pytest.param("paper-mnist-eps1", RENYI, id="renyi"),
        pytest.param("dpgan", {"iterations": 2, "samples": 8}, id="sampled", marks=pytest.mark.slow),
    ],
)
def test_a_run_whose_cost_is_not_known_when_it_begins_is_charged_as_a_whole(
    recipe: str, changes: dict[str, object], place: Path
) -> None:
    gpate("budget", "create", "b", "--epsilon", 3, "--delta", "2e-5", "--other-epsilon", 1, "--other-delta", "1e-5")
    few = [part for name, value in changes.items() for part in ("--set", f"{name}={value}")]
    assert fit("run", "--recipe", recipe, *few, book="b") == 0
    (entry,) = BudgetBook("b").contents().runs.values()
    assert (entry.charge.epsilon, entry.charge.delta, entry.charge.mu_squared) == (1.0, 1e-5, 0.0)
    with pytest.raises(BudgetBookExceeded, match="sample records in secret"):
        Synthesizer(recipe="dpgan", quick=True).fit(table(), schema=TABLE, budget="b")
    assert fit("rest", book="b") == 0


def test_a_paid_schema_is_charged(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draft = ("schema", "init", "table.csv", "-o", "draft.yaml", "--schema-epsilon", 1, "--delta", "1e-6")
    for declared in ("age=integer", "pay=numeric", "job=categorical", "ill=categorical"):
        draft += ("--type", declared)  # a vote on types would be charged as a whole
    assert gpate(*draft, "--ledger", "ledger.jsonl", "--budget", "clinic.budget") == 0
    ledger = read_ledger("ledger.jsonl")
    assert ledger.sealed
    book = contents()
    (entry,) = book.runs.values()
    assert (entry.purpose, entry.head, entry.open) == ("schema init", ledger.head, False)
    assert entry.charge == cost_of(ledger.tally, pure_as_mu=False)
    assert book.spend == pytest.approx(1.0, rel=1e-3)
    assert fit("run") == 0
    # what does not fit is not released, and its ledger is gone
    too_much = ("schema", "init", "table.csv", "--schema-epsilon", 1.9, "--delta", "1e-6", "--ledger", "second.jsonl")
    capsys.readouterr()
    assert gpate(*too_much, "--budget", "clinic.budget") == 2
    assert "does not fit into the budget" in said(capsys)
    assert not Path("second.jsonl").exists()
    assert gpate("schema", "init", "table.csv", "--budget", "clinic.budget") == 2


# --- runs that fail, are stopped, killed and resumed ---------------------------------------------------------------------


class Failed(GpateError):
    """What a test makes go wrong."""


def paying(releases: int, then: Callable[[], None]) -> Callable[..., object]:
    """`Gate.pay`, which calls `then` instead once so many releases are paid for."""
    left, real = releases, Gate.pay

    def pay(gate: Gate, *arguments: object, **options: object) -> object:
        nonlocal left
        left -= 1
        if left < 0:
            then()
        return real(gate, *arguments, **options)

    return pay


def fail() -> None:
    raise Failed("on purpose")


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def failed_fit(monkeypatch: pytest.MonkeyPatch, **options: float) -> None:
    """A fit into `run` that fails after two releases."""
    with monkeypatch.context() as patch:
        patch.setattr(Gate, "pay", paying(2, fail))
        assert fit("run", **options) == 2


def test_a_failed_run_is_charged_what_it_released_and_can_be_resumed(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed_fit(monkeypatch)
    book = contents()
    ledger = read_ledger("run/release/ledger.jsonl")
    assert len(ledger.entries) == 2
    (entry,) = book.runs.values()
    assert not entry.open
    assert entry.head == ledger.head
    assert book.charged == cost_of(ledger.tally, pure_as_mu=False)
    assert book.spend < 0.9
    assert gpate("fit", "--resume", "run", "--quiet") == 0
    finished = contents()
    assert [entry.open for entry in finished.entries] == [True, False, True, False]
    assert len(finished.runs) == 1
    assert verify("run/release", budget="clinic.budget").passed
    assert finished.charged == cost_of(read_ledger("run/release/ledger.jsonl").tally, pure_as_mu=False)


def test_a_resumed_run_is_refused_if_others_took_the_rest(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed_fit(monkeypatch, epsilon=1.5)
    assert fit("other", epsilon=1.5) == 0
    before = Path("run/release/ledger.jsonl").read_bytes()
    with pytest.raises(BudgetBookExceeded):
        Synthesizer.resume("run")
    assert Path("run/release/ledger.jsonl").read_bytes() == before


def test_a_stopped_run_keeps_its_reservation(place: Path) -> None:
    model = Synthesizer(quick=True)
    with pytest.raises(Interrupted):
        model.fit("table.csv", schema=TABLE, out="run", budget="clinic.budget", monitor=Monitor(stop=lambda: True))
    (entry,) = contents().runs.values()
    assert entry.open
    Synthesizer.resume("run")
    assert [entry.open for entry in contents().entries] == [True, False]


def test_a_moved_or_edited_or_shortened_book_is_refused_on_resume(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed_fit(monkeypatch)
    raw = Path("clinic.budget").read_bytes()
    lines = raw.splitlines(keepends=True)
    gpate("budget", "create", "other", "--epsilon", 2, "--delta", "1e-6")
    wrong = {
        "is not the budget book that this run began with. Fix: put that one back": Path("other").read_bytes(),
        "it does not match the hash of the previous line": raw.replace(b'"fit"', b'"fat"', 1),
        "entries were removed. Fix: restore the book": lines[0],
    }
    for says, content in wrong.items():
        Path("clinic.budget").write_bytes(content)
        capsys.readouterr()
        assert gpate("fit", "--resume", "run") == 2
        assert says in said(capsys)
    Path("clinic.budget").rename("moved")
    assert gpate("fit", "--resume", "run") == 2
    assert "Fix: put it back" in said(capsys)
    Path("clinic.budget").write_bytes(raw)
    assert gpate("fit", "--resume", "run", "--quiet") == 0


def killed_fit(after: int, where: str) -> None:
    """A fit that is killed after so many releases, or before or after its reservation is written."""
    begin = Reservation.begin

    def begun(reservation: Reservation, ledger: object) -> None:
        if where == "before":
            kill()
        begin(reservation, ledger)
        if where == "after":
            kill()

    Reservation.begin = begun
    if where == "release":
        Gate.pay = paying(after, kill)
    main(["fit", "table.csv", "--schema", "schema.yaml", "--quick", "--out", "run", "--budget", "clinic.budget"])


@pytest.mark.parametrize(
    ("where", "releases", "entries"),
    [
        pytest.param("before", 0, 0, marks=pytest.mark.slow),
        pytest.param("after", 0, 1, marks=pytest.mark.slow),
        pytest.param("release", 0, 1, marks=pytest.mark.slow),
        ("release", 3, 1),
    ],
)
def test_a_killed_run_is_resumed_under_its_own_reservation(
    place: Path, where: str, releases: int, entries: int
) -> None:
    assert run_process(killed_fit, releases, where, cwd=place).returncode == -signal.SIGKILL
    assert [entry.open for entry in contents().entries] == [True] * entries
    assert gpate("fit", "--resume", "run", "--quiet") == 0
    assert [entry.open for entry in contents().entries] == [True, False]
    assert verify("run/release", budget="clinic.budget").passed


def test_the_rest_of_a_killed_run_is_handed_back_by_command(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_process(killed_fit, 3, "release", cwd=place).returncode == -signal.SIGKILL
    assert facts(capsys)["open_reservations"] == 1
    shutil.move("run", "elsewhere")
    assert gpate("budget", "settle", "clinic.budget", "elsewhere") == 0
    assert "Left for a run" in capsys.readouterr().out
    book = contents()
    assert book.charged == cost_of(read_ledger("elsewhere/release/ledger.jsonl").tally, pure_as_mu=False)
    assert facts(capsys)["open_reservations"] == 0
    assert gpate("budget", "settle", "clinic.budget", "elsewhere") == 0  # again: nothing changes
    assert contents().entries == book.entries
    assert gpate("budget", "settle", "clinic.budget", "table.csv") == 2
    capsys.readouterr()
    assert gpate("fit", "table.csv", "--schema", "schema.yaml", "--quick", "--out", "free") == 0
    assert gpate("budget", "settle", "clinic.budget", "free") == 2
    assert "has no reservation for" in said(capsys)


def test_a_running_run_is_not_settled(place: Path) -> None:
    book = BudgetBook("clinic.budget")
    seen: list[type] = []

    def stop() -> bool:
        with pytest.raises(LedgerBusy):
            settle_run(book, "run")
        seen.append(LedgerBusy)
        return False

    Synthesizer(quick=True).fit("table.csv", schema=TABLE, out="run", budget=book, monitor=Monitor(stop=stop))
    assert seen


def test_a_release_that_could_not_be_written_is_written_later(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settled and sealed, but without a certificate: the run goes on with nothing reserved."""
    from gpate.release import release_files

    real = release_files.write

    def fails(folder: Path, name: str, data: bytes) -> None:
        if name == release_files.CERTIFICATE:
            fail()
        real(folder, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(release_files, "write", fails)
        assert fit("run") == 2
    entries = contents().entries
    assert [entry.sealed for entry in entries] == [False, True]
    assert gpate("fit", "--resume", "run", "--quiet") == 0
    assert contents().entries == entries
    assert verify("run/release", budget="clinic.budget").passed


def test_a_book_that_is_lost_during_a_failed_run_does_not_hide_why(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gate, "pay", paying(1, fail))
    warnings: list[str] = []
    monitor = Monitor(on_warning=warnings.append)
    real = Reservation.begin

    def begin_and_lose(reservation: Reservation, ledger: object) -> None:
        real(reservation, ledger)
        Path(reservation.path).unlink()

    monkeypatch.setattr(Reservation, "begin", begin_and_lose)
    with pytest.raises(Failed):
        Synthesizer(quick=True).fit(table(), schema=TABLE, out="run", budget="clinic.budget", monitor=monitor)
    assert any("stays reserved" in warning for warning in warnings)


def test_two_runs_that_begin_at_once_do_not_both_get_the_last_of_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were quoted before either reserved."""
    real = Reservation.begin

    def begin(reservation: Reservation, ledger: object) -> None:
        monkeypatch.setattr(Reservation, "begin", real)
        assert fit("quicker", epsilon=1.8) == 0
        real(reservation, ledger)

    monkeypatch.setattr(Reservation, "begin", begin)
    with pytest.raises(BudgetBookExceeded):
        Synthesizer(epsilon=1.8, quick=True).fit(table(), schema=TABLE, out="slower", budget="clinic.budget")
    assert not Path("slower").exists()
    RunFolder.create("slower")


def test_show_names_the_runs_and_finds_edits(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpate("budget", "show", "clinic.budget") == 0
    assert "epsilon left" in capsys.readouterr().out
    assert fit("run") == 0
    assert gpate("budget", "show", "clinic.budget") == 0
    assert "finished" in capsys.readouterr().out
    Path("clinic.budget").write_bytes(Path("clinic.budget").read_bytes().replace(b"0.0", b"0.1", 1))
    assert gpate("budget", "show", "clinic.budget") == 2
    assert "BudgetBookCorrupt" in capsys.readouterr().err
    assert gpate("budget", "create", "clinic.budget", "--epsilon", 2, "--delta", "1e-6") == 2


def test_settings_of_a_resumed_run_stay(place: Path) -> None:
    with pytest.raises(InvalidValue, match="--budget"):
        app(["fit", "--resume", "run", "--budget", "clinic.budget"], standalone_mode=False)


def test_a_ledger_that_lost_lines_does_not_continue_a_settled_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed_fit(monkeypatch)
    ledger = Path("run/release/ledger.jsonl")
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(BudgetBookMismatch, match="not a continuation"):
        Synthesizer.resume("run")


def test_equal_runs_have_different_ledgers(place: Path) -> None:
    """Only the identifier in the book tells them apart: noise is not in a ledger."""
    assert fit("one", "--seed", 1) == fit("two", "--seed", 1) == 0
    heads = {read_ledger(f"{name}/release/ledger.jsonl").head.chain for name in ("one", "two")}
    assert len(heads) == 2


def test_a_killed_schema_is_settled_by_its_ledger(place: Path) -> None:
    book, release = BudgetBook("clinic.budget"), DiscreteGaussian(sigma=10.0, grid=grid_for(10.0))
    with Ledger.create(
        "ledger.jsonl", Header(budget=Budget(epsilon=1.0, delta=1e-6), noise="exact", run="r")
    ) as ledger:
        book.reserve("r", [release, release], ledger="ledger.jsonl", purpose="schema init")
        ledger.append(release, purpose="bounds")
        assert gpate("budget", "settle", "clinic.budget", "ledger.jsonl") == 2  # it is still going on
    assert gpate("budget", "settle", "clinic.budget", "ledger.jsonl") == 0
    assert book.contents().charged == cost_of([release], pure_as_mu=False)
