"""A finished run: verify, report, sign, sample, download. Nothing of its private half is ever sent."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path

import pytest

from gpate.release.release_files import NAMES
from gpate.report import write_report
from tests.desk.client import CANARY, Client, inputs_without_label
from tests.releases import make_release


@pytest.fixture
def finished(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A workspace with a finished run, and a person with one SSH key."""
    root = client.app.workspace.root
    (root / "runs" / "one" / "private").mkdir(parents=True)
    (root / "runs" / "one" / "private" / "run.json").write_text(CANARY)
    make_release(root / "runs" / "one" / "release")
    (root / "go").touch()
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    for name in ("id_work", "id_work.pub", "known_hosts"):
        (home / ".ssh" / name).touch()
    monkeypatch.setenv("HOME", str(home))
    return client


def last_start(client: Client) -> list[str]:
    return json.loads((client.app.workspace.root / "began").read_text().splitlines()[-1])[1:]


def test_a_finished_run_says_what_it_guarantees(finished: Client) -> None:
    page = finished.get("/run", name="runs/one").text
    assert "Finished" in page
    assert "ε = " in page
    assert "one record added or removed" in page
    assert not inputs_without_label(page)
    assert "finished" in finished.get("/").text
    assert CANARY not in page


def test_each_button_starts_its_command(finished: Client) -> None:
    root = finished.app.workspace.root
    cases = {
        "verify": ({}, ["verify", "runs/one/release", "--json"]),
        "sign": (
            {"key": "id_work"},
            ["sign", "runs/one/release", "--key", str(root.parent / "home/.ssh/id_work"), "--json"],
        ),
        "sample": (
            {"number": "1,000", "output": "synthetic/one", "format": ".csv", "seed": "3"},
            ["sample", "runs/one/release", "-n", "1000", "-o", "synthetic/one.csv", "--seed", "3", "--json"],
        ),
        "report": ({}, None),
    }
    for kind, (fields, expected) in cases.items():
        assert finished.post(f"/run/{kind}", name="runs/one", **fields).status == 303, kind
        finished.until(kind, "runs/one")
        if expected is not None:
            assert last_start(finished) == expected
    asked = last_start(finished)
    assert asked[:3] == ["report", "runs/one", "-o"]
    assert re.fullmatch(r"\.gpate-desk/jobs/\w+-report/report\.html", asked[3])


def test_what_cannot_be_is_named(finished: Client) -> None:
    sample = {"name": "runs/one", "number": "10", "output": "synthetic/x", "format": ".csv"}
    for change in (
        {"number": "0"},
        {"number": "x"},
        {"number": "9" * 12},
        {"format": ".exe"},
        {"output": "../x"},
        {"output": "-x"},
        {"seed": "x"},
    ):
        assert finished.post("/run/sample", **{**sample, **change}).status in (403, 422), change
    for key in ("", "known_hosts", "../../etc/passwd", "id_work.pub"):
        assert finished.post("/run/sign", name="runs/one", key=key).status == 422
    assert finished.post("/run/resume", name="runs/one").status == 409
    for path in ("/run/report", "/run/report/keep", "/run/sample/keep"):
        assert finished.get(path, name="runs/one").status == 404
    for name in ("runs/none", "runs", "runs/one/release", "visits.csv"):
        assert finished.get("/run", name=name).status == 404
    assert not (finished.app.workspace.root / "began").exists()


def test_the_report_is_read_under_the_policy_of_its_own_style(finished: Client) -> None:
    root = finished.app.workspace.root
    finished.post("/run/report", name="runs/one")
    finished.until("report", "runs/one")
    page = finished.app.jobs.place("report", "runs/one") / "report.html"
    write_report(root / "runs" / "one", page)
    answer = finished.get("/run/report", name="runs/one")
    assert answer.body == page.read_bytes()
    own = re.search(r"style-src 'sha256-([^']+)'", answer.text)
    policy = answer.headers["Content-Security-Policy"]
    assert own is not None
    assert f"style-src 'sha256-{own[1]}'" in policy
    assert "sandbox" in policy
    assert "script" not in policy
    kept = finished.get("/run/report/keep", name="runs/one")
    assert kept.headers["Content-Disposition"] == "attachment; filename*=UTF-8''one-report.html"
    assert "Read the report" in finished.get("/run", name="runs/one").text


def test_the_download_is_the_release_and_nothing_else(finished: Client) -> None:
    release = finished.app.workspace.root / "runs" / "one" / "release"
    (release / "notes.txt").write_text(CANARY)
    before = zipfile.ZipFile(io.BytesIO(finished.get("/run/release", name="runs/one").body))
    names = sorted(NAMES)
    assert sorted(before.namelist()) == [f"release/{name}" for name in names]
    for name in names:
        assert before.read(f"release/{name}") == (release / name).read_bytes()
    (release / "config.json").unlink()
    (release / "config.json").symlink_to(finished.app.workspace.root / "visits.csv")
    after = zipfile.ZipFile(io.BytesIO(finished.get("/run/release", name="runs/one").body))
    assert "release/config.json" not in after.namelist(), "links are not followed"


def test_samples_are_sent_as_they_are_and_from_their_file_alone(finished: Client) -> None:
    root = finished.app.workspace.root
    finished.post("/run/sample", name="runs/one", number="5", output="synthetic/one", format=".csv")
    finished.until("sample", "runs/one")
    (root / "synthetic" / "one.csv").write_bytes(b"a\n" * 500_000)
    answer = finished.get("/run/sample/keep", name="runs/one", output="visits.csv", file="visits.csv")
    assert answer.body == b"a\n" * 500_000
    assert 'value="synthetic/one-2"' in finished.get("/run", name="runs/one").text, "the next has another name"
    (root / "synthetic" / "one.csv").unlink()
    (root / "synthetic" / "one.csv").symlink_to("/etc/passwd")
    assert finished.get("/run/sample/keep", name="runs/one").status == 403


def test_a_release_that_changed_is_to_be_verified_again(finished: Client) -> None:
    finished.post("/run/verify", name="runs/one")
    finished.until("verify", "runs/one")
    stdout = finished.app.jobs.place("verify", "runs/one") / "stdout"
    checks = [
        {"name": "ledger", "passed": True, "detail": "intact"},
        {"name": "<b>", "passed": False, "detail": "<script>"},
    ]
    stdout.write_text(json.dumps({"passed": False, "checks": checks, "statement": None}))
    page = finished.get("/run", name="runs/one").text
    assert "Does not hold" in page
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "has changed since" not in page
    (finished.app.workspace.root / "runs" / "one" / "release" / "certificate.json.sig").touch()
    assert "has changed since" in finished.get("/run", name="runs/one").text


def test_a_broken_run_folder_is_shown_as_such(client: Client) -> None:
    root = client.app.workspace.root
    for half in ("private", "release"):
        (root / "odd" / half).mkdir(parents=True)
    assert "It did not begin" in client.get("/run", name="odd").text
    (root / "odd" / "private" / "run.json").touch()
    (root / "odd" / "release" / "ledger.jsonl").write_bytes(b"\xff\n" * 10)
    assert "Not finished" in client.get("/run", name="odd").text
    (root / "odd" / "release" / "certificate.json").write_text("[" * 10_000)
    (root / "odd" / "release" / "schema.yaml").write_text("kind: [")
    assert client.get("/run", name="odd").status == 200
    assert client.get("/").status == 200
