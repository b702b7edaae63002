"""From settings to a fit: what they mean, the budget book, one command that is the same in a terminal."""

from __future__ import annotations

import json
import shlex
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpate.accounting import Budget, BudgetBook, new_run
from gpate.desk.fit_pages import DEFAULTS
from gpate.desk.meaning import book_state, fitting, meaning
from gpate.neighbours import RECORD
from tests.command import gpate
from tests.desk.client import Client, inputs_without_label

GOOD = {"data": "visits.csv", "schema": "people.yaml", "epsilon": "1", "delta": "1e-6", "run": "runs/one"}


def starts(client: Client) -> list[list[object]]:
    file = client.app.workspace.root / "began"
    return [json.loads(line)[1:] for line in file.read_text().splitlines()] if file.exists() else []


def begun(client: Client) -> list[object]:
    while not starts(client):
        pass
    return starts(client)[0]


def test_the_overview_and_the_form(client: Client) -> None:
    home = client.get("/").text
    assert "visits.csv" in home
    assert "complete" in home
    page = client.get("/fit", data="visits.csv").text
    assert not inputs_without_label(page)
    assert 'value="runs/visits-1"' in page
    assert "gpate fit visits.csv --schema people.yaml --epsilon 1 --delta 1e-06 --out runs/visits-1" in page


def test_what_epsilon_means_is_the_exact_bound() -> None:
    """The optimal guess under (epsilon, delta)-DP is right (e^epsilon + delta) / (e^epsilon + 1) of the time, half a prior."""
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-5), (5.0, 1e-9)):
        # randomised response with failure: the worst mechanism; the best guess by adding up its outcomes
        keep = (1 - delta) * np.exp(epsilon) / (1 + np.exp(epsilon))
        used = np.array([delta, 0.0, keep, (1 - delta) - keep])
        unused = np.array([0.0, delta, (1 - delta) - keep, keep])
        right = np.maximum(used, unused).sum() / 2
        assert meaning(str(epsilon), str(delta), RECORD).right == pytest.approx(right, rel=1e-12)


def test_words_change_with_the_settings(client: Client) -> None:
    strong, weak = (client.get("/meaning", epsilon=e, delta="1e-6").text for e in ("0.5", "12"))
    assert "strong guarantee" in strong
    assert "at most 62%" in strong
    assert "very weak guarantee" in weak
    assert "weak guarantee for one record" in weak
    assert "1e-5" in client.get("/meaning", epsilon="1", delta="0.01").text
    for wrong in ("", "x", "0", "-1", "nan", "inf", "1e999"):
        answer = client.get("/meaning", epsilon=wrong, delta="1e-6")
        assert answer.status == 200
        assert 'class="wrong"' in answer.text
    units = (
        (client.app.workspace.root / "people.yaml")
        .read_text()
        .replace("columns:", "unit: {column: p, max_records: 3}\ncolumns:")
    )
    (client.app.workspace.root / "units.yaml").write_text(units)
    assert "all records of each unit" in client.get("/meaning", epsilon="1", delta="1e-6", schema="units.yaml").text


def test_without_scripts_the_form_says_what_was_typed_means(client: Client) -> None:
    answer = client.post("/fit/meaning", **{**GOOD, "epsilon": "0.1", "quick": "yes"})
    assert answer.status == 200
    assert "at most 52%" in answer.text
    assert 'value="0.1"' in answer.text
    assert "checked" in answer.text
    assert not starts(client)


def test_a_book_says_what_is_left_and_refuses_what_does_not_fit(client: Client) -> None:
    root = client.app.workspace.root
    assert (
        client.post("/budget/new", name="clinic.budget", epsilon="2", delta="1e-6", schema="people.yaml").status == 303
    )
    page = client.get("/budget", file="clinic.budget").text
    assert "ε = 2" in page
    book = BudgetBook(root / "clinic.budget")
    book.reserve(new_run(), book.quote(Budget(epsilon=1.0, delta=1e-6)), ledger="x", purpose="fit")
    state = book_state(root / "clinic.budget", "clinic.budget")
    assert state.left == book.left()
    assert state.spend == book.contents().spend
    fits = client.get("/meaning", epsilon="0.5", delta="1e-6", schema="people.yaml", budget="clinic.budget").text
    assert "this run fits" in fits
    much = client.get("/meaning", epsilon="1.99", delta="1e-6", schema="people.yaml", budget="clinic.budget").text
    assert "does not fit" in much
    assert fitting(
        root / "clinic.budget",
        meaning("0.5", "1e-6", "all records of one unit added or removed: unit p, at most 1 record counts"),
    )
    for fields in (
        {"name": "x.txt"},
        {"name": "clinic.budget"},
        {"epsilon": "-1"},
        {"delta": "2"},
        {"name": "no/such.budget"},
    ):
        wrong = {"name": "new.budget", "epsilon": "2", "delta": "1e-6", **fields}
        assert client.post("/budget/new", **wrong).status == 422
    (root / "clinic.budget").write_bytes((root / "clinic.budget").read_bytes().replace(b"2.0", b"9.0"))
    assert "cannot be used" in client.get("/").text
    assert client.get("/budget", file="clinic.budget").status == 422


def test_a_fit_is_the_shown_command(client: Client) -> None:
    BudgetBook.create(client.app.workspace.root / "clinic.budget", epsilon=2.0, delta=1e-6)
    more = {"budget": "clinic.budget", "quick": "yes", "seed": "7", "recipe": "dpmerf"}
    shown = client.get("/meaning", **GOOD, **more).text
    assert client.post("/fit", **GOOD, **more).status == 303
    command = (
        "gpate fit visits.csv --schema people.yaml --epsilon 1 --delta 1e-06 --out runs/one --budget clinic.budget"
    )
    command += " --recipe dpmerf --quick --seed 7"
    assert command in shown
    assert begun(client) == [*shlex.split(command)[1:], "--json"]
    page = client.get("/run", name="runs/one").text
    assert command in page
    assert "Running" in page
    assert "Spent so far: ε = 0.5 of 1" in page
    assert "A note." in page
    with (client.app.jobs.place("fit", "runs/one") / "stderr").open("a") as log:
        log.write(
            '{"fraction": 0.5, "spend": 1.0, "epsilon": 1.0, "seconds_left": null, "replayed": true, "stage": "labeller"}\n'
        )
    part = client.get("/run/live", name="runs/one").text
    assert "Running: labeller" in part
    assert "already charged" in part


@pytest.mark.parametrize(
    "change",
    [
        {"data": ""},
        {"schema": ""},
        {"epsilon": "0"},
        {"epsilon": "inf"},
        {"delta": "1"},
        {"run": "../x"},
        {"run": "-x"},
        {"run": "a;b"},
        {"run": "work.csv/../../x"},
        {"run": "people.yaml"},
        {"seed": "-1"},
        {"recipe": "--set"},
        {"data": "", "address": "postgresql://ann:secret@host/db?table=t"},
    ],
)
def test_settings_that_cannot_be_are_named_and_start_nothing(client: Client, change: dict[str, str]) -> None:
    answer = client.post("/fit", **{**GOOD, **change})
    assert answer.status == 422
    assert 'role="alert"' in answer.text
    assert "secret" not in answer.text
    assert not starts(client)
    assert client.app.jobs.runs() == []


def test_two_tabs_and_a_double_click_start_one_fit(client: Client) -> None:
    answers: list[int] = []

    def click(epsilon: str) -> None:
        answers.append(client.post("/fit", **{**GOOD, "epsilon": epsilon}).status)

    threads = [threading.Thread(target=click, args=(epsilon,)) for epsilon in ("1", "1", "1", "2", "2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    begun(client)
    assert sorted(set(answers)) == [303, 422]
    assert len(starts(client)) == 1
    (client.app.workspace.root / "go").touch()
    client.until("fit", "runs/one")
    assert client.post("/fit", **GOOD).status == 422, "its folder has been used"
    assert len(starts(client)) == 1


def test_a_stopped_fit_is_resumed_once(client: Client) -> None:
    BudgetBook.create(client.app.workspace.root / "clinic.budget", epsilon=2.0, delta=1e-6)
    client.post("/fit", **GOOD, budget="clinic.budget")
    begun(client)
    assert client.post("/run/stop", name="runs/one").status == 303
    client.until("fit", "runs/one")
    page = client.get("/run", name="runs/one").text
    assert "Not finished" in page
    assert "Resume" in page
    assert "gpate budget settle clinic.budget runs/one" in page
    assert client.post("/run/verify", name="runs/one").status == 409
    for _ in range(3):
        assert client.post("/run/resume", name="runs/one").status == 303
    while len(starts(client)) < 2:
        pass
    assert starts(client)[1:] == [["fit", "--resume", "runs/one", "--json"]]
    resumed = client.app.jobs.status("fit", "runs/one")
    assert resumed is not None
    assert resumed.job.book == "clinic.budget", "by which its release is verified"


def test_the_fit_has_the_plan_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    """What the desk starts and the command that it shows write the same plan, settings and schema, but for what is drawn at random."""
    rng = np.random.default_rng(0)
    root = client.app.workspace.root
    frame = pd.DataFrame({"age": rng.integers(0, 90, 300), "ward": "surgery", "died": rng.choice(["no", "yes"], 300)})
    frame.to_csv(root / "visits.csv", index=False)
    fields = {**GOOD, "quick": "yes", "seed": "5", **{key: DEFAULTS[key] for key in ("recipe",)}}
    client.post("/fit", **fields)
    arguments = [str(part) for part in begun(client)]
    (root / "go").touch()
    client.until("fit", "runs/one")
    status = client.app.jobs.status("fit", "runs/one")
    assert status is not None
    typed = shlex.split(status.job.command)[1:]
    monkeypatch.chdir(root)
    plans, configs = [], []
    for parts, out in ((arguments, "by-desk"), (typed, "by-hand")):
        assert gpate(*[out if part == "runs/one" else part for part in parts]) == 0
        plan = json.loads((root / out / "private" / "run.json").read_text())
        for drawn in ("partition_key", "fingerprint"):
            del plan[drawn]
        plans.append(plan)
        settings = json.loads((root / out / "release" / "config.json").read_text())["settings"]
        configs.append((settings, (root / out / "release" / "schema.yaml").read_bytes()))
    assert plans[0] == plans[1]
    assert configs[0] == configs[1]
