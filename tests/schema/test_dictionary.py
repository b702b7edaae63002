"""Data dictionaries in the formats that people have, and hostile ones."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpate.errors import GpateError, SchemaError
from gpate.schema.declaration import TODO, Schema
from gpate.schema.described import Described, described
from gpate.schema.dictionary import MAX_BYTES, Dictionary, read_dictionary
from gpate.schema.draft import combine, draft
from gpate.schema.proposals import DATE, ID, propose

EXPECTED: dict[str, dict[str, Any]] = {
    "age": {"type": "integer", "bounds": [0, 120], "missing": False},
    "fare": {"type": "numeric", "bounds": [0.5, 512.25], "missing": True},
    "sex": {"type": "categorical", "categories": ["m", "f"], "missing": False},
    "joined": {"type": "datetime", "bounds": ["2001-01-01", "2024-12-31"], "unit": "day", "missing": False},
    "ok": {"type": "boolean", "missing": False},
}
"""What each of the formats below says, as a draft has it."""

CSV = """\
Variable,Label,Data Type,Minimum,Maximum,Allowed values,Nullable
age,Age in years,Integer,0,120,,no
fare,Price of the ticket,float64,0.5,512.25,,yes
sex,Sex at birth,string,,,m=male; f=female,
joined,First visit,date,2001-01-01,2024-12-31,,
ok,,bool,,,,
unknown_here,of another table,int,0,1,,
"""
SEMICOLONS = """\
column;type;range;values;missing
age;int;0-120;;
fare;numeric(10,2);0.5..512.25;;y
sex;varchar(1);;"m|f";
joined;date;2001-01-01..2024-12-31;;
ok;boolean;;;
"""
PLAIN = {
    "age": {"type": "int64", "min": 0, "max": 120},
    "fare": {"dtype": "double", "bounds": [0.5, 512.25], "nullable": True},
    "sex": {"description": "Sex at birth", "values": {"m": "male", "f": "female"}},
    "joined": {"type": "date", "minimum": "2001-01-01", "maximum": "2024-12-31"},
    "ok": "boolean",
}
TABLE_SCHEMA = {
    "fields": [
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 120, "required": True}},
        {"name": "fare", "type": "number", "constraints": {"minimum": "0.5", "maximum": "512.25", "required": False}},
        {"name": "sex", "type": "string", "constraints": {"enum": ["m", "f"]}},
        {"name": "joined", "type": "date", "constraints": {"minimum": "2001-01-01", "maximum": "2024-12-31"}},
        {"name": "ok", "type": "boolean"},
    ],
    "missingValues": [""],
}
FORMATS = {
    "commas.csv": CSV,
    "semicolons.csv": SEMICOLONS,
    "tabs.tsv": SEMICOLONS.replace(";", "\t"),
    "plain.json": json.dumps(PLAIN),
    "columns.json": json.dumps({"title": "passengers", "columns": PLAIN}),
    "schema.json": json.dumps({"schema": PLAIN}),
    "list.json": json.dumps([{"name": k} | (v if isinstance(v, dict) else {"type": v}) for k, v in PLAIN.items()]),
    "table-schema.json": json.dumps(TABLE_SCHEMA),
    "datapackage.json": json.dumps({"name": "p", "resources": [{"path": "p.csv", "schema": TABLE_SCHEMA}]}),
}


def written(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def columns_of(dictionary: Dictionary, types: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The entries of a draft for a table with such types; what is open stays open."""
    here = dictionary.of(list(types))
    known, here = combine(types, here)
    return dict(yaml.safe_load(draft(known, dictionary=here, proposals=propose(known)))["columns"])


@pytest.mark.parametrize("name", FORMATS)
def test_a_dictionary_declares_bounds_and_categories(name: str, tmp_path: Path) -> None:
    dictionary = read_dictionary(written(tmp_path, name, FORMATS[name]))
    assert columns_of(dictionary, dict.fromkeys(EXPECTED, TODO)) == EXPECTED
    assert columns_of(dictionary, dict.fromkeys(EXPECTED, "categorical")) == EXPECTED  # all as text in a Parquet file
    assert (
        columns_of(dictionary, dict(zip(EXPECTED, ("integer", "numeric", "categorical", DATE, "boolean"), strict=True)))
        == EXPECTED
    )


def test_the_draft_names_the_source_and_loads(tmp_path: Path) -> None:
    here = read_dictionary(written(tmp_path, "book.csv", CSV)).of(list(EXPECTED))
    known, here = combine(dict.fromkeys(EXPECTED, TODO), here)
    text = draft(known, dictionary=here, proposals=propose(known))
    assert "# book.csv: Age in years\n" in text
    assert "not computed from these records" in text
    assert Schema.from_text(text).to_dict()["columns"]["sex"] == {"type": "categorical", "categories": ["m", "f"]}


def test_metadata_of_sdv(tmp_path: Path) -> None:
    columns = {
        "guest_email": {"sdtype": "email", "pii": True},
        "rewards": {"sdtype": "boolean"},
        "checkin": {"sdtype": "datetime", "datetime_format": "%Y-%m-%d"},
        "paid_at": {"sdtype": "datetime", "datetime_format": "%Y-%m-%d %H:%M:%S"},
        "room_rate": {"sdtype": "numerical", "computer_representation": "Float"},
        "nights": {"sdtype": "numerical", "computer_representation": "Int64"},
        "room": {"sdtype": "categorical"},
        "booking": {"sdtype": "id", "regex_format": "B_[0-9]{4}"},
        "odd": {"sdtype": "unknown"},
    }
    table = {"columns": columns, "primary_key": "booking", "sequence_key": "guest_email"}
    for content in (
        {**table, "METADATA_SPEC_VERSION": "SINGLE_TABLE_V1"},
        {"tables": {"guests": table}, "relationships": [], "METADATA_SPEC_VERSION": "V1"},
    ):
        found = read_dictionary(written(tmp_path, "metadata.json", content))
        kinds = {name: said.type for name, said in found.columns.items()}
        expected = [ID, "boolean", DATE, "datetime", "numeric", "integer", "categorical", ID, None]
        assert list(kinds.values()) == expected
        assert (found.row_id, found.unit) == ("booking", "guest_email")
    two = {"tables": {"a": table, "b": table}, "relationships": []}
    with pytest.raises(SchemaError, match="one table"):
        read_dictionary(written(tmp_path, "two.json", two))


def test_the_export_of_redcap(tmp_path: Path) -> None:
    header = (
        '"Variable / Field Name","Form Name","Field Type","Field Label","Choices, Calculations, OR Slider Labels",'
        '"Text Validation Type OR Show Slider Number","Text Validation Min","Text Validation Max","Required Field?"\n'
    )
    lines = [
        'record_id,base,text,"Record",,,,,',
        'gender,base,radio,"Gender","1, Male | 2, Female | 9, Not stated",,,,y',
        'weight,base,text,"Weight, kg",,number,0,300,',
        'seen,base,text,"Seen on",,date_ymd,2010-01-01,2030-01-01,',
        "smoker,base,yesno,Smokes?,,,,,",
    ]
    found = read_dictionary(written(tmp_path, "redcap.csv", header + "\n".join(lines))).columns
    assert found["gender"] == Described(
        type="categorical", stated="radio", categories=(1, 2, 9), missing=False, description="Gender"
    )
    assert (found["weight"].type, found["weight"].low, found["weight"].high) == ("numeric", 0, 300)
    assert (found["seen"].type, found["smoker"].type) == (DATE, "boolean")


def test_codes_beside_bounds(tmp_path: Path) -> None:
    """As NIST's dictionary of the American Community Survey has them: codes for missing values, and numbers outside the bounds."""
    survey = {
        "AGEP": {"description": "Person's age", "values": {"min": 0, "max": 99}},
        "NOC": {"description": "Own children", "values": {"N": "N/A", "0": "None", "min": 1, "max": 19}},
        "DENSITY": {"values": {"min": 16.3, "max": 52864.7}},
        "EDU": {"values": {"N": "N/A", "1": "None", "2": "School"}},
        "INDP": {"description": "Industry codes", "link": "https://example.org"},
    }
    found = columns_of(read_dictionary(written(tmp_path, "acs.json", survey)), dict.fromkeys(survey, "categorical"))
    whole = "TODO: confirm integer"  # bounds without a type: only a person knows whether 0 to 99 are whole numbers
    assert found == {
        "AGEP": {"type": whole, "bounds": [0, 99], "missing": False},
        "NOC": {"type": whole, "bounds": [0, 19], "missing": True},
        "DENSITY": {"type": "numeric", "bounds": [16.3, 52864.7], "missing": False},
        "EDU": {"type": "categorical", "categories": ["N", "1", "2"], "missing": False},
        "INDP": {"type": "categorical", "categories": TODO, "missing": False},
    }


def test_categories_are_of_the_kind_that_the_file_holds(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "d.json",
        {"sex": {"values": {"1": "male", "2": "female"}}, "x": {"type": "boolean", "values": ["Y", "N"]}},
    )
    dictionary = read_dictionary(path)
    assert columns_of(dictionary, {"sex": "integer", "x": TODO})["sex"]["categories"] == [1, 2]
    assert columns_of(dictionary, {"sex": "categorical", "x": TODO})["sex"]["categories"] == ["1", "2"]
    assert columns_of(dictionary, {"sex": TODO, "x": TODO})["x"]["categories"] == ["Y", "N"]  # no boolean reads Y


@pytest.mark.parametrize(
    ("entry", "stated", "words"),
    [
        ({"type": "date"}, "integer", "is date in the dictionary, and integer by the file"),
        ({"type": "number"}, "boolean", r"is numeric \('number'\) in the dictionary, and boolean"),
        ({"type": "boolean"}, "datetime", "is boolean in the dictionary, and datetime"),
        ({"values": ["a", "b"]}, "integer", "has the category 'a' in the dictionary, and holds numbers"),
        ({"values": ["a", "b"]}, "boolean", "is categorical in the dictionary, and boolean"),
        ({"type": "integer", "min": 5, "max": 1}, TODO, "lower < upper"),
        ({"type": "integer", "min": 0.5, "max": 1}, TODO, "whole numbers"),
        ({"type": "date", "min": "2020-13-01", "max": "2021-01-01"}, TODO, "times without time zone"),
        ({"values": ["a", "a"]}, TODO, "listed once each"),
    ],
)
def test_contradictions_name_the_column(entry: dict[str, Any], stated: str, words: str, tmp_path: Path) -> None:
    dictionary = read_dictionary(written(tmp_path, "d.json", {"stay": entry}))
    with pytest.raises(SchemaError, match=words) as caught:
        columns_of(dictionary, {"stay": stated, "y": "numeric"})
    assert "'stay'" in str(caught.value)
    assert "Fix" in str(caught.value)


def test_a_declared_type_stays(tmp_path: Path) -> None:
    here = read_dictionary(written(tmp_path, "d.json", {"code": {"type": "integer"}})).of(["code"])
    assert combine({"code": "categorical"}, here)[0] == {"code": "integer"}
    with pytest.raises(SchemaError, match="'code'"):
        combine({"code": "categorical"}, here, declared={"code"})


def test_names_are_matched_loosely_where_that_is_unambiguous(tmp_path: Path) -> None:
    dictionary = read_dictionary(written(tmp_path, "d.json", {"AGE ": "int", "sex": "string"}))
    assert set(dictionary.of(["Age", "Sex", "sex"]).columns) == {"Age", "sex"}
    assert set(dictionary.of(["age", "AGE", "sex"]).columns) == {"sex"}
    with pytest.raises(SchemaError, match="No column of the dictionary"):
        dictionary.of(["Sekret"])


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("d.xlsx", "", "not a .csv, .tsv or .json"),
        ("d.csv", "", "no lines"),
        ("d.csv", "a,b\n1,2\n", "call one of them column"),
        ("d.csv", "column,type\nx,int\nx,int\n", "'x' twice"),
        ("d.csv", "column,values\nx," + "a" * 200_000 + "\n", "cannot be read as a table"),
        ("d.csv", "," * 100_000 + "\n1\n", "more than 200 names"),
        ("d.csv", "column,required\nx,perhaps\n", "required of column 'x' must be yes or no"),
        ("d.csv", "column,min\nx,low\n", "bound of column 'x' must be a number or a date"),
        ("d.json", "{", "not valid JSON"),
        ("d.json", DEEP, "not valid JSON, or nested too deeply"),
        ("d.json", '{"x": ' + "[" * 20 + "]" * 20 + "}", "nested more than"),
        ("d.json", "[]", "describes no column"),
        ("d.json", "3", "a mapping or a list"),
        ("d.json", '{"x": 3}', "column 'x' must be a mapping"),
        ("d.json", '{"x": {"type": 3}}', "type of column 'x' must be a word"),
        ("d.json", '{"x": {"type": "int"}, "x": {"type": "float"}}', "key 'x' twice"),
        ("d.json", '{"x": {"min": ' + "9" * 5000 + "}}", "more than 20 digits"),
        ("d.json", '{"x": {"min": NaN, "max": 1}}', "bound of column 'x' must be a finite number"),
        ("d.json", '{"x": {"min": [1], "max": 2}}', "bound of column 'x'"),
        ("d.json", '{"x": {"values": [[1]]}}', "values of column 'x'"),
        ("d.json", '{"x": {"values": [true]}}', "values of column 'x'"),
        ("d.json", '{"x": {"values": 7}}', "values of column 'x'"),
        ("d.json", '{"fields": [{"type": "string"}]}', "a mapping with a name"),
        ("d.json", '{"fields": [{"name": "x", "constraints": 3}]}', "constraints of column 'x'"),
        (
            "d.json",
            '{"METADATA_SPEC_VERSION": "1", "columns": {"x": {}}}',
            "column 'x' must be a mapping with an sdtype",
        ),
        ("d.json", '{"METADATA_SPEC_VERSION": "1", "columns": []}', "columns must be a mapping"),
        ("d.json", json.dumps({"x": {"values": list(range(100_000))}}), "more columns or categories"),
        ("d.json", json.dumps({str(i): "int" for i in range(10_001)}), "more columns or categories"),
        ("d.json", " " * (MAX_BYTES + 1), "bytes"),
    ],
)
def test_hostile_dictionaries_are_refused_by_name(name: str, content: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=words) as caught:
        read_dictionary(written(tmp_path, name, content))
    assert name in str(caught.value)
    assert len(str(caught.value)) < 3000


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes(b"column\n\xff\xfe\n")
    with pytest.raises(SchemaError, match="UTF-8"):
        read_dictionary(tmp_path / "d.csv")
    (tmp_path / "d.json").mkdir()
    for name in ("d.json", "none.csv"):
        with pytest.raises(SchemaError, match="There is no dictionary"):
            read_dictionary(tmp_path / name)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["int", "a|b", "0-9", "2001-01-01"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=5)
            | st.sampled_from(
                [
                    "name",
                    "type",
                    "min",
                    "max",
                    "values",
                    "fields",
                    "columns",
                    "schema",
                    "constraints",
                    "sdtype",
                    "required",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_json_is_a_dictionary_or_refused_by_name(data: Any) -> None:
    """Whatever it says, it is refused with an error of gpate, or the draft with it is a draft: never another error."""
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(GpateError):
        dictionary = read_dictionary(written(Path(folder), "d.json", json.dumps(data)))
        types = dict.fromkeys([name for name in dictionary.columns if name.isprintable()], TODO)
        assert set(columns_of(dictionary, types)) <= set(types)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_a_description_stays_in_its_comment(text: str) -> None:
    """A line break in a description, of any kind, cannot add a line to the schema."""
    here = Dictionary(name="d.json", columns={"x": described("x", {"type": "boolean", "description": text})})
    assert Schema.from_text(draft({"x": "boolean"}, dictionary=here, proposals=propose({"x": "boolean"}))).names == [
        "x"
    ]
