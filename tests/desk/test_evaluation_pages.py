"""A release against real records: commands do it, the scores stay in `private/`, and no page or download has them by accident."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path
from urllib.parse import urlencode

import pytest

from gpate.evaluation.results import Evaluation, Score
from gpate.report import write_report
from tests.desk.client import CANARY, RECORDS, Client, inputs_without_label
from tests.releases import make_release

SCORES = "runs/one/private/evaluations.jsonl"
FIELDS = {"name": "runs/one", "train": "visits.csv", "test": "later.csv"}


@pytest.fixture
def finished(client: Client) -> Client:
    """A workspace with a finished run, the records of its fit, and later ones."""
    root = client.app.workspace.root
    (root / "runs" / "one" / "private").mkdir(parents=True, mode=0o700)
    (root / "runs" / "one" / "private" / "run.json").write_text(CANARY)
    make_release(root / "runs" / "one" / "release")
    (root / "later.csv").write_text(RECORDS)
    return client


def starts(client: Client) -> list[list[str]]:
    began = client.app.workspace.root / "began"
    return [json.loads(line)[1:] for line in began.read_text().splitlines()] if began.exists() else []


def evaluated(client: Client, **verdict: object) -> str:
    """The page of the run after an evaluation that ended with this."""
    (client.app.workspace.root / "go").touch()
    assert client.post("/run/evaluate", **FIELDS).status == 303
    client.until("evaluate", "runs/one")
    (client.app.jobs.place("evaluate", "runs/one") / "stdout").write_text(json.dumps(verdict))
    return client.get("/run", name="runs/one").text


def evaluation_of(client: Client) -> Evaluation:
    """One with a score that shows where it went."""
    certificate = json.loads((client.app.workspace.root / "runs/one/release/certificate.json").read_text())
    claim = {name: certificate[name] for name in ("epsilon", "delta", "accountant", "neighbours", "not_for_release")}
    score = Score(group="utility", metric="auroc", subject=CANARY, values=(0.9,))
    return Evaluation(
        kind="table", dataset="visits", subject="release", sizes={"train": 48151}, privacy=claim, scores=(score,)
    )


def test_the_form_starts_the_command_with_the_scores_in_private(finished: Client) -> None:
    page = finished.get("/run", name="runs/one").text
    assert "Confidential" in page
    assert "without noise" in page
    assert not inputs_without_label(page)
    (finished.app.workspace.root / "go").touch()
    cases: list[tuple[dict[str, str], list[str]]] = [
        ({}, []),
        ({"quick": "yes"}, ["--quick"]),
        ({"quick": "yes", "attack": "yes"}, ["--quick", "--attack"]),
        ({"quick": "no", "attack": "--shadows"}, []),
    ]
    for fields, options in cases:
        assert finished.post("/run/evaluate", **FIELDS, **fields).status == 303
        finished.until("evaluate", "runs/one")
        expected = ["evaluate", "runs/one/release", "--train", "visits.csv", "--test", "later.csv", "--append", SCORES]
        assert starts(finished)[-1] == [*expected, "--no-cache", *options, "--json"]


def test_tables_in_a_database_are_named_by_their_addresses(finished: Client) -> None:
    root = finished.app.workspace.root
    (root / "go").touch()
    (root / "clinic.db").touch()
    train, test = "duckdb:///clinic.db?table=before", "duckdb:///clinic.db?table=after"
    assert finished.post("/run/evaluate", name="runs/one", train_address=train, test_address=test).status == 303
    finished.until("evaluate", "runs/one")
    assert starts(finished)[-1][2:6] == ["--train", train, "--test", test]
    secret = "postgresql://me:hunter2@host/db?table=t"
    answer = finished.post("/run/evaluate", name="runs/one", train="visits.csv", test_address=secret)
    assert answer.status == 422
    assert "without a password" in answer.text
    assert "hunter2" not in answer.text


def test_the_records_of_a_fit_are_known_also_after_it_was_resumed(finished: Client) -> None:
    root = finished.app.workspace.root
    form = {"data": "visits.csv", "schema": "people.yaml", "epsilon": "1", "delta": "1e-6", "run": "runs/two"}
    finished.post("/fit", **form)
    while not (root / "runs" / "two" / "private" / "run.json").exists():
        pass
    (root / "go").touch()
    finished.until("fit", "runs/two")
    assert finished.post("/run/resume", name="runs/two").status == 303
    finished.until("fit", "runs/two")
    make_release(root / "made")
    (root / "runs" / "two" / "release").rmdir()
    (root / "made").rename(root / "runs" / "two" / "release")
    page = finished.get("/run", name="runs/two").text
    train, test = re.findall(r'<select id="(?:train|test)".*?</select>', page, re.DOTALL)
    assert '<option value="visits.csv" selected>' in train
    assert "visits.csv" not in test
    assert "later.csv" in test


def test_what_cannot_be_evaluated_is_named(finished: Client) -> None:
    for change in ({"test": ""}, {"train": ""}, {"test": "visits.csv"}, {"test": "./visits.csv"}):
        answer = finished.post("/run/evaluate", **{**FIELDS, **change})
        assert answer.status == 422, change
        assert "Not done" in answer.text
    assert '<option value="later.csv" selected>' in finished.post("/run/evaluate", **{**FIELDS, "train": ""}).text
    assert finished.post("/run/evaluate", **{**FIELDS, "test": "gone.csv"}).status == 404
    assert finished.post("/run/evaluate", **{**FIELDS, "name": "runs/none"}).status == 404
    assert finished.post("/run/evaluation", name="runs/one").status == 409
    assert finished.get("/run/evaluation", name="runs/one").status == 404
    (finished.app.workspace.root / "runs" / "one" / "release" / "certificate.json").unlink()
    assert finished.post("/run/evaluate", **FIELDS).status == 409
    assert starts(finished) == []


HOSTILE = [
    "../secret.csv",
    "..%2fsecret.csv",
    "/etc/passwd",
    "later.csv/../../secret.csv",
    "out/secret.csv",
    "link.csv",
    ".gpate-desk/jobs",
    ".hidden.csv",
    "runs/one/private/run.json",
    "runs/one/private",
    ".",
    "..",
    "a" * 5000,
    "~/secret.csv",
    "file:///etc/passwd",
    "duckdb:///../secret.db?table=t",
    "duckdb:////etc/passwd?table=t",
    "--append",
]


@pytest.mark.parametrize("field", ["train", "test", "train_address", "test_address"])
def test_no_name_leads_out_of_the_folder(finished: Client, field: str) -> None:
    root = finished.app.workspace.root
    for place in (root.parent / "secret.csv", root.parent / "secret.db", root / ".hidden.csv"):
        place.write_text(CANARY)
    (root / "out").symlink_to(root.parent)
    (root / "link.csv").symlink_to(root.parent / "secret.csv")
    for name in HOSTILE:
        answer = finished.post("/run/evaluate", **{**FIELDS, field: name})
        assert answer.status in (400, 403, 404, 422), name
        assert CANARY not in answer.text
    assert starts(finished) == []


def test_scores_are_not_written_through_a_link(finished: Client, tmp_path: Path) -> None:
    private = finished.app.workspace.root / "runs" / "one" / "private"
    (private / "evaluations.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    assert finished.post("/run/evaluate", **FIELDS).status == 403
    (private / "evaluations.jsonl").unlink()
    private.rename(tmp_path / "elsewhere")
    private.symlink_to(tmp_path / "elsewhere")
    assert finished.post("/run/evaluate", **FIELDS).status == 403
    assert starts(finished) == []


def test_no_evaluation_for_another_site_or_without_the_token(finished: Client) -> None:
    token = finished.server.session.form_token
    good = {
        "Cookie": finished.cookie,
        "Origin": f"http://{finished.host}",
        "Sec_Fetch_Site": "same-origin",
        "Content_Type": "application/x-www-form-urlencoded",
    }
    body = urlencode({"form_token": token, **FIELDS}).encode()
    for path in ("/run/evaluate", "/run/evaluation"):
        for wrong in ({"Sec_Fetch_Site": "cross-site"}, {"Origin": "https://evil.example"}):
            assert finished.ask("POST", path, body, **{**good, **wrong}).status == 403
        assert finished.ask("POST", path, urlencode(FIELDS).encode(), **good).status == 403
        assert finished.ask("POST", path, body, **{**good, "Cookie": "gpate-desk=1"}).status == 401
    assert finished.get("/run/evaluate", **FIELDS).status == 405, "a link starts nothing"
    assert starts(finished) == []


@pytest.mark.parametrize(
    ("verdict", "words", "warned"),
    [
        ({"memorised": False, "refuted": False}, "No sign of memorisation", False),
        ({"memorised": True, "refuted": False}, "nearer to the records of the fit than chance allows", True),
        ({"memorised": False, "refuted": True}, "An attack proved more than the claimed epsilon", True),
        ({"memorised": None, "refuted": False}, "Memorisation could not be measured", False),
        ({"memorised": "<b>", "refuted": ["<b>"]}, "Memorisation could not be measured", False),
    ],
)
def test_the_verdict_is_shown_and_repeated_before_the_download(
    finished: Client, verdict: dict[str, object], words: str, warned: bool
) -> None:
    page = evaluated(finished, **verdict)
    assert words in page
    assert "<b>" not in page
    assert ("Do not release" in page) is warned
    assert ("The evaluation says: do not release." in page.partition("Pass it on")[2]) is warned


def test_the_scores_are_in_the_confidential_report_and_nowhere_else(finished: Client) -> None:
    root = finished.app.workspace.root
    found = evaluation_of(finished)
    found.append_to(root / SCORES)
    page = evaluated(finished, **json.loads(json.dumps(found.to_json())))
    assert "Write the confidential report" in page
    assert finished.post("/run/evaluation", name="runs/one").status == 303
    finished.until("confidential", "runs/one")
    asked = starts(finished)[-1]
    assert asked[:5] == ["report", "runs/one", "--evaluation", SCORES, "-o"]
    assert re.fullmatch(r"\.gpate-desk/jobs/\w+-confidential/report\.html", asked[5])
    assert "--real" not in asked, "no record is on it"
    written = finished.app.jobs.place("confidential", "runs/one") / "report.html"
    write_report(root / "runs" / "one", written, evaluations=[found])

    answer = finished.get("/run/evaluation", name="runs/one")
    assert answer.body == written.read_bytes()
    assert "onfidential" in answer.text
    assert CANARY in answer.text, "it is about this evaluation"
    policy = answer.headers["Content-Security-Policy"]
    assert "sandbox" in policy
    assert "script" not in policy
    assert "Content-Disposition" not in answer.headers

    page = finished.get("/run", name="runs/one").text
    assert "Read the confidential report" in page
    for text in (page, finished.get("/").text, finished.get("/run/live", name="runs/one").text):
        assert CANARY not in text
        assert "48151" not in text
    for path in ("/run/report", "/run/report/keep"):
        for fields in ({}, {"publish": "yes"}, {"publish": "confidential"}, {"kind": "confidential"}):
            assert finished.get(path, name="runs/one", **fields).status == 404
    packed = zipfile.ZipFile(io.BytesIO(finished.get("/run/release", name="runs/one").body))
    assert not any("private" in name or "evaluation" in name for name in packed.namelist())
    assert "Read the confidential report" not in evaluated(finished, memorised=False), "that was of the one before"


def test_an_evaluation_can_be_stopped(finished: Client) -> None:
    finished.post("/run/evaluate", **FIELDS)
    while not starts(finished):
        pass
    page = finished.get("/run", name="runs/one").text
    assert "Evaluating" in page
    assert finished.post("/run/evaluate", **{**FIELDS, "quick": "yes"}).status == 409
    assert finished.post("/run/evaluation", name="runs/one").status == 409
    assert "Stop the evaluation" in page
    assert finished.post("/run/stop", name="runs/one", kind="evaluate").status == 303
    finished.until("evaluate", "runs/one")
    assert "Stopped" in finished.get("/run", name="runs/one").text
    assert len(starts(finished)) == 1


def test_an_error_of_an_evaluation_quotes_no_record(finished: Client) -> None:
    root = finished.app.workspace.root
    (root / "unnamed").touch()
    page = evaluated(finished)
    (finished.app.jobs.place("evaluate", "runs/one") / "stdout").write_text("")
    page = finished.get("/run", name="runs/one").text
    assert "an error that has no name" in page
    assert CANARY not in page
    (finished.app.jobs.place("evaluate", "runs/one") / "stderr").write_text(
        f"visits.py:3: FutureWarning: {CANARY}\nInvalidValue: test must be a table.\n"
    )
    page = finished.get("/run", name="runs/one").text
    assert "InvalidValue: test must be a table." in page
    assert CANARY not in page
