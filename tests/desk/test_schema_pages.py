"""A schema is drafted from public facts and confirmed column by column; no page shows a value of a record."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pandas as pd
import pytest

from gpate.schema import Schema
from gpate.schema.draft_file import DraftFile
from tests.command import gpate
from tests.desk.client import CANARY, Answer, Client, inputs_without_label


def seen(page: Answer) -> str:
    found = re.search(r'name="seen" value="(\w+)"', page.text)
    assert found is not None
    return found[1]


def said(client: Client, column: str, file: str = "visits.yaml", **fields: str) -> Answer:
    page = client.get("/schema/column", file=file, name=column)
    assert page.status == 200
    assert not inputs_without_label(page.text)
    return client.post("/schema/column", file=file, name=column, seen=seen(page), **fields)


def went(answer: Answer) -> tuple[str, str]:
    """The page that the browser is sent to, and the column on it."""
    assert answer.status == 303, answer.text
    parts = urlsplit(answer.headers["Location"])
    return parts.path, parse_qs(parts.query).get("name", [""])[0]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_draft_is_that_of_the_command(client: Client, kind: str) -> None:
    root = client.app.workspace.root
    if kind == "parquet":
        pd.read_csv(root / "visits.csv").to_parquet(root / "visits.parquet")
    assert client.post("/schema/draft", data=f"visits.{kind}", name="mine.yaml").status == 303
    assert gpate("schema", "init", root / f"visits.{kind}", "-o", root / "theirs.yaml") == 0
    assert (root / "mine.yaml").read_text() == (root / "theirs.yaml").read_text()
    again = client.post("/schema/draft", data=f"visits.{kind}", name="mine.yaml")
    assert again.status == 422
    assert "new file" in again.text


def test_from_a_file_to_a_complete_schema(client: Client) -> None:
    client.post("/schema/draft", data="visits.csv", name="visits.yaml")
    first = client.get("/schema", file="visits.yaml")
    assert "3 of 3 columns are open" in first.text
    assert not inputs_without_label(first.text)
    assert went(said(client, "age", type="integer", bounds="0, 120")) == ("/schema/column", "ward")
    assert went(said(client, "ward", type="categorical", categories="surgery, medicine, ...", missing="yes")) == (
        "/schema/column",
        "died",
    )
    assert went(said(client, "died", type="categorical")) == ("/schema/column", "died"), "its categories are open"
    assert went(said(client, "died", type="categorical", categories="no, yes")) == ("/schema", "")
    answer = client.post("/schema/keys", file="visits.yaml", unit="patient_id", most="2", target="died", row_id="")
    assert answer.status == 303
    assert "Complete" in client.get("/schema", file="visits.yaml").text
    schema = Schema.load(client.app.workspace.root / "visits.yaml")
    assert schema.neighbours == "all records of one unit added or removed: unit patient_id, at most 2 records count"
    assert [column.type for column in schema.columns] == ["integer", "categorical", "categorical"]  # type: ignore[union-attr]
    assert [column.missing for column in schema.columns] == [False, True, False]  # type: ignore[union-attr]


def test_a_wrong_answer_is_named_and_nothing_is_saved(client: Client) -> None:
    client.post("/schema/draft", data="visits.csv", name="visits.yaml")
    before = (client.app.workspace.root / "visits.yaml").read_text()
    for fields in ({"bounds": "many"}, {"bounds": "5, 1"}, {"bounds": "0, 9", "scale": "log"}, {"also": "nowhere"}):
        answer = said(client, "age", type="integer", **fields)
        assert answer.status == 422
        assert 'role="alert"' in answer.text
    assert client.post("/schema/keys", file="visits.yaml", unit="age", most="none", target="", row_id="").status == 422
    assert (client.app.workspace.root / "visits.yaml").read_text() == before


def test_fields_that_depend_on_each_other_are_saved_together(client: Client) -> None:
    client.post("/schema/draft", data="visits.csv", name="visits.yaml")
    said(client, "age", type="numeric")
    said(client, "age", type="numeric", bounds="0, 9", scale="linear")
    assert went(said(client, "age", type="numeric", bounds="1, 100", scale="log"))[0] == "/schema/column"
    entry = DraftFile.load(client.app.workspace.root / "visits.yaml").columns["age"]
    assert entry == {"type": "numeric", "bounds": [1, 100], "scale": "log", "missing": False}


def test_how_texts_are_written_is_declared_and_taken_back(client: Client) -> None:
    client.post("/schema/draft", data="visits.csv", name="visits.yaml")

    def entry() -> dict[str, Any]:
        return dict(DraftFile.load(client.app.workspace.root / "visits.yaml").columns["age"])

    said(client, "age", type="numeric")
    said(client, "age", type="numeric", bounds="0, 9", decimal_comma="yes")
    assert entry() == {"type": "numeric", "bounds": [0, 9], "decimal_comma": True, "missing": False}
    page = client.get("/schema/column", file="visits.yaml", name="age").text
    assert '<option value="yes" selected>' in page
    said(client, "age", type="numeric", bounds="0, 9", decimal_comma="no")
    assert entry() == {"type": "numeric", "bounds": [0, 9], "missing": False}
    said(client, "age", type="datetime")
    times = {"type": "datetime", "bounds": "2001-01-01, 2002-01-01", "unit": "day"}
    assert said(client, "age", **times, format="%d.%m").status == 422
    said(client, "age", **times, format="%d.%m.%Y")
    assert entry()["format"] == "%d.%m.%Y"
    assert 'value="%d.%m.%Y"' in client.get("/schema/column", file="visits.yaml", name="age").text
    said(client, "age", **times, format="")
    assert "format" not in entry()


def test_the_same_answers_for_other_columns(client: Client) -> None:
    (client.app.workspace.root / "wide.csv").write_text("q_1,q_2,q_3,x\n1,2,3,4\n")
    client.post("/schema/draft", data="wide.csv", name="wide.yaml")
    said(client, "q_1", "wide.yaml", type="integer")
    assert went(said(client, "q_1", "wide.yaml", type="integer", bounds="1, 5", also="q_*")) == ("/schema/column", "x")
    columns = DraftFile.load(client.app.workspace.root / "wide.yaml").columns
    assert columns["q_1"] == columns["q_2"] == columns["q_3"] == {"type": "integer", "bounds": [1, 5], "missing": False}


def test_an_answer_of_another_tab_is_not_overwritten(client: Client) -> None:
    client.post("/schema/draft", data="visits.csv", name="visits.yaml")
    tab = client.get("/schema/column", file="visits.yaml", name="age")
    said(client, "age", type="integer", bounds="0, 120")
    late = client.post("/schema/column", file="visits.yaml", name="age", seen=seen(tab), type="integer", bounds="0, 1")
    assert late.status == 409
    assert "another tab" in late.text
    assert DraftFile.load(client.app.workspace.root / "visits.yaml").columns["age"]["bounds"] == [0, 120]


def test_all_proposals_are_confirmed_at_once(client: Client) -> None:
    client.post("/schema/draft", data="visits.csv", name="visits.yaml")
    assert client.post("/schema/confirm", file="visits.yaml").status == 303
    assert DraftFile.load(client.app.workspace.root / "visits.yaml").proposals == []


def test_a_proposed_constraint_is_declared_or_removed(client: Client) -> None:
    root = client.app.workspace.root
    (root / "stay.csv").write_text("admission_date,discharge_date\n")
    client.post("/schema/draft", data="stay.csv", name="stay.yaml")
    text = DraftFile.load(root / "stay.yaml").constraints
    assert text, "names of this kind propose one"
    for column in ("admission_date", "discharge_date"):
        said(client, column, "stay.yaml", type="datetime")
        said(client, column, "stay.yaml", type="datetime", bounds="2001-01-01, 2024-12-31", unit="day")
    page = client.get("/schema", file="stay.yaml")
    assert "always holds" in page.text
    assert client.post("/schema/constraint", file="stay.yaml", constraint=text[0], holds="yes").status == 303
    assert len(Schema.load(root / "stay.yaml").constraints) == 1  # type: ignore[union-attr]
    assert client.post("/schema/constraint", file="stay.yaml", constraint=text[0], holds="no").status == 409


def test_schemas_of_images_and_broken_ones(client: Client) -> None:
    root = client.app.workspace.root
    (root / "image.yaml").write_text("kind: image\nheight: 8\nwidth: 8\nchannels: 1\nclasses: [a, b]\n")
    (root / "broken.yaml").write_text("kind: [")
    (root / "people.txt").write_text("kind: table")
    assert "height: 8" in client.get("/schema", file="image.yaml").text
    assert client.get("/schema", file="broken.yaml").status == 422
    assert client.get("/schema", file="people.txt").status == 403
    home = client.get("/").text
    assert "not valid" in home
    assert "complete" in home


def test_no_page_shows_a_value_of_a_record(client: Client) -> None:
    client.post("/schema/draft", data="visits.csv", name="visits.yaml")
    pages = [client.get(path) for path in ("/", "/schema?file=visits.yaml", "/fit?data=visits.csv&schema=people.yaml")]
    pages += [client.get("/schema/column", file="visits.yaml", name=name) for name in ("age", "ward", "died")]
    pages += [client.get("/schema", file="visits.csv"), client.post("/schema/draft", data="visits.csv", name="x.yaml")]
    size = str((client.app.workspace.root / "visits.csv").stat().st_size)
    for page in pages:
        for value in (CANARY, "48151", "62342", "surgery, no", f" {size} "):
            assert value not in page.text


def test_a_first_line_that_may_be_a_record_is_not_quoted(client: Client) -> None:
    (client.app.workspace.root / "bare.csv").write_text("48151,62342,7\n1,2,3\n")
    answer = client.post("/schema/draft", data="bare.csv", name="bare.yaml")
    assert answer.status == 422
    assert "48151" not in answer.text
    assert not Path(client.app.workspace.root / "bare.yaml").exists()
