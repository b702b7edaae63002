"""What names and file types suggest, on names of real tables and on any names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpate.schema.declaration import TODO
from gpate.schema.proposals import DATE, ID, TIMEDELTA, Guess, propose, words

FILE_TYPES = ("boolean", "integer", "numeric", "datetime", DATE, TIMEDELTA, "categorical", TODO)


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("sample_id", "integer", ID),
        ("sampleId", TODO, ID),
        ("device_uuid", "categorical", ID),
        ("account_number", TODO, ID),
        ("admission_type_id", "integer", "categorical"),  # a code, though it ends like an id
        ("number_outpatient", TODO, "integer"),  # a count, though it has the word number
        ("first_name", "categorical", ID),
        ("email", TODO, ID),
        ("has_email", TODO, "boolean"),
        ("num_emails", TODO, "integer"),
        ("clinical_notes", "categorical", ID),
        ("admission_date", TODO, DATE),
        ("dischargeDate", "categorical", DATE),
        ("created_at", TODO, "datetime"),
        ("visit_date_2", TODO, DATE),
        ("time_in_hospital", TODO, "duration"),
        ("length_of_stay", TODO, "duration"),
        ("call_duration", "categorical", "duration"),
        ("waiting_minutes", TODO, "duration"),
        ("stay_hours", "integer", None),  # what a file states is not contradicted
        ("pressure_min", TODO, "numeric"),  # a minimum
        ("num_days", TODO, "integer"),
        ("waiting_time", "integer", None),
        ("date_of_birth", TODO, DATE),
        ("is_smoker", "integer", "boolean"),
        ("is_smoker", "categorical", None),  # a text may be Y and N, which is no boolean
        ("smoker_flag", TODO, "boolean"),
        ("age", TODO, "integer"),
        ("percentage", TODO, "numeric"),
        ("zip_code", "integer", "categorical"),
        ("sex", TODO, "categorical"),
        ("price", TODO, "numeric"),
        ("V17", TODO, None),
        ("insulin", "categorical", None),
        ("age", "boolean", None),  # what a file states is not contradicted
        ("patient_id", "numeric", None),
    ],
)
def test_kinds(name: str, kind: str, expected: str | None) -> None:
    found = propose({name: kind, "other": "numeric"}, persons=False).columns.get(name)
    assert (found.type if found is not None else None) == expected
    assert found is None or found.reason


@pytest.mark.parametrize(
    "name",
    [
        "patient_id",
        "patient_nbr",
        "PatientID",
        "person",
        "mrn",
        "MRN",
        "user_id",
        "customerId",
        "subject",
        "SSN",
        "client_number",
    ],
)
def test_a_column_of_persons_is_proposed_as_the_unit(name: str) -> None:
    found = propose({"visit_id": "integer", name: "integer", "cost": "numeric"})
    assert found.unit is not None
    assert found.unit.value == name
    assert found.row_id is not None
    assert found.row_id.value == "visit_id"
    assert name not in found.columns


@pytest.mark.parametrize(
    "name", ["patient_name", "patient_type_id", "number_inpatient", "user_agent", "customer_age", "client_email"]
)
def test_what_only_mentions_persons_is_not_the_unit(name: str) -> None:
    assert propose({name: "categorical", "cost": "numeric"}).unit is None


def test_units_of_durations_and_what_they_are_the_difference_of() -> None:
    types = {"admitted_at": TODO, "discharged_at": TODO, "stay_hours": TODO}
    found = propose(types, persons=False)
    assert (found.columns["stay_hours"].type, found.columns["stay_hours"].unit) == ("duration", "hour")
    assert "stay_hours = discharged_at - admitted_at" in [guess.value for guess in found.constraints]
    stated = propose({**types, "stay_hours": TIMEDELTA}, persons=False)
    assert (stated.columns["stay_hours"].type, stated.columns["stay_hours"].unit) == (None, "hour")


def test_keys_that_are_known_stay() -> None:
    types = {"patient_id": "integer", "user_id": "integer", "id": "integer", "x": "numeric"}
    assert propose(types, unit=Guess("user_id", "")).unit == Guess("user_id", "")
    assert propose(types, persons=False).unit is None
    found = propose(types, row_id=Guess("patient_id", "the book says so"))
    assert found.row_id == Guess("patient_id", "the book says so")
    assert found.unit is not None
    assert found.unit.value == "user_id"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["admission_date", "discharge_date"], ["admission_date <= discharge_date"]),
        (["visit_end", "visit_start"], ["visit_start <= visit_end"]),
        (["birth_date", "death_date"], ["birth_date <= death_date"]),
        (["min_dose", "max_dose", "max_weight"], ["min_dose <= max_dose"]),
        (["pressureLow", "pressureHigh"], ["pressureLow <= pressureHigh"]),
        (["total_cost", "drug_cost", "room_cost", "cost"], ["total_cost = drug_cost + room_cost"]),
        (["total_cost", "drug_cost"], []),  # of one part nothing follows
        (["discharged", "discharge_date"], ["if discharged = no then discharge_date missing"]),
        (["start date", "end date"], ["'start date' <= 'end date'"]),
        (["start", "finish"], []),
    ],
)
def test_constraints(names: list[str], expected: list[str]) -> None:
    assert [one.value for one in propose(dict.fromkeys(names, TODO)).constraints] == expected


def test_the_target() -> None:
    for name in ("readmitted", "Class", "target", "died", "Outcome"):
        found = propose({"x": "numeric", name: "categorical"}).target
        assert found is not None
        assert found.value == name
    assert propose({"x": "numeric", "social_class": "categorical"}).target is None


@given(st.dictionaries(st.text(max_size=30), st.sampled_from(FILE_TYPES), max_size=12))
def test_any_names_are_possible(types: dict[str, str]) -> None:
    """Proposals are about the columns that there are, and no column has two roles."""
    found = propose(types)
    keys = [guess.value for guess in (found.unit, found.row_id) if guess is not None]
    assert len(set(keys)) == len(keys)
    assert set(keys) | set(found.columns) <= set(types)
    assert not set(keys) & set(found.columns)
    assert found.target is None or (found.target.value in types and found.target.value not in keys)
    for name, one in found.columns.items():
        assert one.type is not None or one.bounds is not None
        assert words(name)
