"""`gpate fit` as a person or a script would use it: from a file to a run folder, to samples; stopped, resumed, misused."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image
from rich.console import Console

from gpate.cli import main
from gpate.release import verify
from tests.command import begun, gpate
from tests.methods.answers import read_answers
from tests.methods.small import FAST, IMAGES, TABLE, images, table
from tests.processes import LIMIT, run

CANARIES = ("7351.629", "zebra")
"""Values of one private record; no command may ever print them."""


def options(**changes: object) -> list[str]:
    settings = {**FAST, "iterations": 2, **changes}
    pairs = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return ["--epsilon", "2", "--recipe", "paper-mnist-eps1", *pairs]


def withheld(*texts: str) -> bool:
    return not any(canary in text for canary in CANARIES for text in texts)


def private_table() -> pd.DataFrame:
    frame = table()
    frame.loc[0, "pay"] = 7351.629
    frame.loc[1, "job"] = "zebra-keeper"
    return frame


def picture_folder(path: Path) -> Path:
    for number, (picture, label) in enumerate(zip(*images(40), strict=True)):
        folder = path / ("bar", "dot")[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / f"zebra-keeper-{number:02}.png")
    return path


def make_sources(folder: Path) -> Path:
    """table.csv, images.npz, pictures/, and a schema for each kind."""
    private_table().to_csv(folder / "table.csv", index=False)
    pictures, labels = images()
    np.savez(folder / "images.npz", images=pictures, labels=labels)
    picture_folder(folder / "pictures")
    for name, schema in (("table", TABLE), ("images", IMAGES)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(schema.to_dict(), sort_keys=False))
    return folder


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sources(tmp_path_factory.mktemp("sources"))


SCHEMAS = {"table.csv": "table.yaml", "images.npz": "images.yaml", "pictures": "images.yaml"}


@pytest.fixture(scope="module")
def runs(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run for each kind of source, named after it."""
    folder = tmp_path_factory.mktemp("runs")
    for source, schema in SCHEMAS.items():
        arguments = [sources / source, "--schema", sources / schema, "--out", folder / source, "--quiet", *options()]
        assert gpate("fit", *arguments) == 0
    return folder


# --- the whole path ---------------------------------------------------------------------------------------------------


def test_as_a_command_from_file_to_samples(sources: Path, tmp_path: Path) -> None:
    """In processes of their own, as a shell script has them; the first with an interpreter of its own."""

    def shell(*arguments: object) -> str:
        with begun(*arguments, folder=tmp_path) as child:
            out, err = child.communicate()
            assert child.wait() == 0, err
        assert withheld(out, err)
        return out

    fit = ["fit", sources / "table.csv", "--schema", sources / "table.yaml", *options()]
    command = [sys.executable, "-m", "gpate", *map(str, fit)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert withheld(done.stdout, done.stderr)
    told = " ".join(done.stdout.replace("│", " ").split())
    assert "Released" in told
    assert "Differential privacy with epsilon = 2 and delta = 1e-05, for one record" in told
    following = told.split("Next: gpate ")[1].split()  # what it says comes next does work
    shell(*following)
    assert len(pd.read_csv(tmp_path / "synthetic.csv")) == 100
    assert "All checks passed." in shell("verify", "run/release", "--for-release")


@pytest.mark.parametrize("source", SCHEMAS)
def test_a_run_holds_and_its_private_half_is_closed(
    source: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpate("verify", runs / source / "release", "--for-release", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["releasable"]
    assert 0 < found["certificate"]["spend"] <= 2.0
    assert (runs / source / "private").stat().st_mode & 0o777 == 0o700
    for path in (runs / source / "release").iterdir():
        assert withheld(path.read_bytes().decode("latin-1")), path.name


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_table_samples(suffix: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"ill.{suffix}"
    where = ["--where", "ill=yes", "--where", "age=20..80"]
    assert gpate("sample", runs / "table.csv" / "release", "-n", 30, "-o", path, *where, "--json") == 0
    frame = pd.read_csv(path) if suffix == "csv" else pd.read_parquet(path)
    assert list(frame.columns) == list(private_table().columns)
    assert set(frame["ill"]) == {"yes"}
    assert frame["age"].between(20, 80).all()
    assert set(frame["job"]) <= {"cook", "clerk", "other"}
    assert withheld(*capsys.readouterr(), path.read_bytes().decode("latin-1"))


@pytest.mark.parametrize("source", ["images.npz", "pictures"])
def test_image_samples(source: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release = runs / source / "release"
    assert gpate("sample", release, "-n", 6, "-o", tmp_path / "a.npz", "--where", "class=dot") == 0
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        assert arrays["images"].shape == (6, 8, 8)
        assert set(arrays["labels"].tolist()) <= {"dot", 1}
    assert gpate("sample", release, "-n", 30, "-o", tmp_path / "grid.png", "--balanced") == 0
    with Image.open(tmp_path / "grid.png") as grid:
        assert grid.size == (6 * 9 - 1, 5 * 9 - 1)  # nearly a square, the two classes side by side
    assert gpate("sample", release, "-n", 6, "-o", tmp_path / "each", "--where", "class=bar") == 0
    assert len(list((tmp_path / "each" / "bar").glob("*.png"))) == 6
    assert [folder.name for folder in (tmp_path / "each").iterdir()] == ["bar"]
    assert withheld(*capsys.readouterr())


def test_json_and_its_progress_parse(sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [sources / "table.csv", "--schema", sources / "table.yaml", "--out", tmp_path / "run", "--json"]
    scaled = [
        "--epsilon",
        2,
        "--recipe",
        "paper",
        "--set",
        "iterations=2",
        "--set",
        "counts_epsilon=0.5",
    ]  # warns: there are few records
    assert gpate("fit", *arguments, *scaled) == 0
    told = capsys.readouterr()
    result = json.loads(told.out)
    assert (result["epsilon"], result["release"]) == (2.0, str(tmp_path / "run" / "release"))
    assert result["not_for_release"] == []
    lines = [json.loads(line) for line in told.err.splitlines()]
    assert "mostly noise" in lines[0]["warning"]
    assert [line["iteration"] for line in lines[1:]] == [1, 2]
    assert 0 < lines[1]["spend"] < lines[2]["spend"] <= 2.0
    assert withheld(*told)


def test_quiet_shows_no_progress(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpate.cli.progress.errors", Console(stderr=True, force_terminal=True, width=150))
    arguments = [sources / "table.csv", "--schema", sources / "table.yaml", *options(iterations=1)]
    assert gpate("fit", *arguments, "--out", tmp_path / "shown") == 0
    told = capsys.readouterr()
    assert "iteration 1" in told.err
    assert withheld(*told)
    assert gpate("fit", *arguments, "--out", tmp_path / "a", "--quiet") == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "iteration" not in told.out
    assert "Differential privacy with epsilon = 2" in told.out
    assert gpate("fit", *arguments, "--out", tmp_path / "b", "--quiet", "--json") == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert json.loads(told.out)["epsilon"] == 2.0


def test_a_log_has_lines_of_progress_and_a_short_run_has_none(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no bar can be drawn; two iterations, and time enough between them."""
    table = ["fit", sources / "table.csv", "--schema", sources / "table.yaml", *options()]
    assert gpate(*table, "--out", tmp_path / "short") == 0
    assert "iteration" not in capsys.readouterr().err
    monkeypatch.setattr("gpate.cli.progress.LINE_SECONDS", 0.0)
    assert gpate(*table, "--out", tmp_path / "long") == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fitting, iteration")]
    assert len(lines) == 2
    assert "epsilon" in lines[1]
    assert "it/s" in lines[1]
    assert gpate(*table, "--quiet", "--out", tmp_path / "quiet") == 0
    assert "iteration" not in capsys.readouterr().err


def test_fewer_records_than_teachers_are_allowed(sources: Path, tmp_path: Path) -> None:
    """A teacher without records votes too; see docs/explanation/deviations-from-paper.md."""
    arguments = [sources / "pictures", "--schema", sources / "images.yaml", "--out", tmp_path / "run", "--quiet"]
    assert gpate("fit", *arguments, *options(teachers=60, iterations=1)) == 0
    assert gpate("verify", tmp_path / "run" / "release") == 0


# --- stopping and going on ----------------------------------------------------------------------------------------------


def test_ctrl_c_stops_after_the_iteration_and_resume_finishes(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started with a relative path, and resumed from another folder."""
    most = 30
    settings = options(iterations=most, vote_sigma=2000, threshold_sigma=3000)
    run = tmp_path / "run"
    fit = ("fit", "table.csv", "--schema", "table.yaml", "--json", *settings, "--out", run)
    with begun(*fit, folder=sources) as child:
        assert child.stderr is not None
        first = child.stderr.readline()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate()
        assert child.returncode == 130, err
    assert json.loads(first)["iteration"] == 1
    assert out == ""
    assert f"gpate fit --resume {run}" in err
    assert "Traceback" not in err
    stopped = len(read_answers(run / "private" / "answers-since-checkpoint.bin"))
    assert 1 <= stopped < most

    assert gpate("verify", run / "release") == 1  # there is no release yet
    assert gpate("sample", run / "release", "-n", 1, "-o", tmp_path / "a.csv") == 2
    assert not (tmp_path / "a.csv").exists()
    capsys.readouterr()

    monkeypatch.chdir(tmp_path)
    assert gpate("fit", "--resume", run, "--json") == 0
    told = capsys.readouterr()
    steps = [json.loads(line) for line in told.err.splitlines()]
    assert [step["iteration"] for step in steps] == list(range(stopped + 1, most + 1))
    assert not any(step["replayed"] for step in steps)  # the checkpoint was of the last iteration
    assert gpate("verify", run / "release", "--for-release") == 0
    capsys.readouterr()
    assert gpate("fit", "--resume", run) == 2
    assert "is finished" in capsys.readouterr().err
    assert withheld(first, err, out, *told)


def with_room(limit: int, arguments: list[str]) -> None:
    """The command, in a process that may write no more than this many bytes to a file: a full disk, in miniature."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    main(arguments)


def full_disk(limit: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run(with_room, limit, list(map(str, arguments)))


def test_a_full_disk_is_named_and_the_run_can_go_on(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Room for the ledger and the journal, none for the generator's weights; later there is room again."""
    run = tmp_path / "run"
    arguments = [sources / "images.npz", "--schema", sources / "images.yaml", "--out", run, "--quiet", *options()]
    done = full_disk(20_000, "fit", *arguments)
    assert done.returncode == 2, done.stderr
    assert "ReleaseWriteFailed" in done.stderr
    assert "Traceback" not in done.stderr
    assert withheld(done.stdout, done.stderr)
    assert gpate("verify", run / "release") == 1
    assert gpate("fit", "--resume", run, "--quiet") == 0
    assert gpate("verify", run / "release", "--for-release") == 0


@pytest.mark.parametrize("room", [0, 100, 300])
def test_a_disk_too_full_to_begin_leaves_nothing(sources: Path, tmp_path: Path, room: int) -> None:
    """No room for the ledger's heading, for half of it, for it but not for the plan."""
    arguments = [sources / "table.csv", "--schema", sources / "table.yaml", "--out", tmp_path / "run", *options()]
    done = full_disk(room, "fit", *arguments)
    assert done.returncode == 2, done.stderr
    assert "RunFolderError" in done.stderr
    assert "nothing was spent" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


# --- mistakes -----------------------------------------------------------------------------------------------------------


def write_csv(frame: pd.DataFrame, path: Path, encoding: str = "utf-8") -> None:
    frame.to_csv(path, index=False, encoding=encoding)


TABLES = {
    "an undeclared column": (
        lambda f, p: write_csv(f.assign(extra="zebra"), p),
        "ColumnUndeclared",
        "does not declare",
    ),
    "a missing column": (lambda f, p: write_csv(f.drop(columns="age"), p), "ColumnMissing", "'age'"),
    "colons": (lambda f, p: f.to_csv(p, index=False, sep=":"), "ColumnMissing", "'age'"),
    "an empty file": (lambda f, p: p.write_bytes(b""), "DataEmpty", "empty"),
    "no file": (lambda f, p: None, "DataNotFound", "There is no"),
}


ODD_TABLES = {
    "text for numbers": lambda f, p: write_csv(f.assign(age="zebra"), p),
    "a column of NaN": lambda f, p: write_csv(f.assign(pay=np.nan), p),
    "one class": lambda f, p: write_csv(f.assign(ill="no"), p),
    "another encoding": lambda f, p: write_csv(f.assign(job="zébra"), p, "latin-1"),
    "no record": lambda f, p: write_csv(f.iloc[:0], p),
    "semicolons": lambda f, p: f.to_csv(p, index=False, sep=";"),
}


@pytest.mark.parametrize("case", ODD_TABLES)
def test_whatever_records_hold_there_is_a_release_that_verifies(
    case: str, sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ODD_TABLES[case](private_table(), tmp_path / "odd.csv")
    arguments = [tmp_path / "odd.csv", "--schema", sources / "table.yaml", "--out", tmp_path / "run", *options()]
    assert gpate("fit", *arguments) == 0
    assert withheld(capsys.readouterr().err.replace(str(tmp_path), ""))
    assert verify(tmp_path / "run" / "release").passed


@pytest.mark.parametrize("case", TABLES)
def test_bad_tables(case: str, sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil, error, words = TABLES[case]
    spoil(private_table(), tmp_path / "bad.csv")
    arguments = [tmp_path / "bad.csv", "--schema", sources / "table.yaml", "--out", tmp_path / "run", *options()]
    refused(capsys, tmp_path, error, words, *arguments)


def refused(capsys: pytest.CaptureFixture[str], folder: Path, error: str, words: str, *arguments: object) -> None:
    assert gpate("fit", *arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"{error}: "), told.err
    assert words in told.err
    assert withheld(told.err.replace(str(folder), ""))
    assert not (folder / "run").exists()


def other_size(folder: Path) -> None:
    Image.new("L", (12, 8)).save(folder / "dot" / "zebra-large.png")


def corrupt(folder: Path) -> None:
    whole = (folder / "bar" / "zebra-keeper-00.png").read_bytes()
    (folder / "bar" / "zebra-keeper-00.png").write_bytes(whole[: len(whole) // 2])


PICTURES = {
    "another size": other_size,
    "corrupt": corrupt,
    "one class": lambda folder: shutil.rmtree(folder / "bar"),
    "an unknown class": lambda folder: (folder / "bar").rename(folder / "zebra"),
}


@pytest.mark.parametrize("case", PICTURES)
def test_bad_pictures_are_left_out(
    case: str, sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PICTURES[case](picture_folder(tmp_path / "pictures"))
    arguments = [tmp_path / "pictures", "--schema", sources / "images.yaml", "--out", tmp_path / "run", *options()]
    assert gpate("fit", *arguments) == 0
    assert withheld(capsys.readouterr().err.replace(str(tmp_path), ""))
    assert verify(tmp_path / "run" / "release").passed


ARGUMENTS = {
    "no schema": ([], "SchemaError", "would leak"),
    "no such schema": (["--schema", "none.yaml"], "SchemaError", "none.yaml"),
    "a schema of images": (
        ["--schema", "images.yaml"],
        "SchemaError",
        "of kind: image, but the data are of kind: table",
    ),
    "an unknown recipe": (
        ["--schema", "table.yaml", "--recipe", "best"],
        "InvalidValue",
        "recipe must be one of default, paper-mnist",
    ),
    "--set without =": (["--schema", "table.yaml", "--set", "teachers"], "InvalidValue", "key=value"),
    "an unknown setting": (["--schema", "table.yaml", "--set", "tachers=3"], "InvalidValue", "'tachers'"),
    "a setting that is no number": (
        ["--schema", "table.yaml", "--set", "samples=many"],
        "InvalidValue",
        "samples must be",
    ),
    "an unknown teacher": (["--schema", "table.yaml", "--set", "teacher=mine"], "InvalidValue", "teacher must be"),
    "a chunk of none": (["--schema", "table.yaml", "--set", "chunk=0"], "InvalidValue", "chunk must be"),
    "teachers to be chosen from nothing": (
        ["--schema", "table.yaml", "--set", "teachers=None"],
        "InvalidValue",
        "counts_epsilon",
    ),
    "neither true nor false": (["--schema", "table.yaml", "--set", "noiseless=yes"], "InvalidValue", "true or false"),
    "epsilon 0": (["--schema", "table.yaml", "--epsilon", "0"], "InvalidValue", "epsilon must be > 0"),
    "an epsilon that buys nothing": (["--schema", "table.yaml", "--epsilon", "0.01"], "InvalidValue", "one iteration"),
    "an epsilon that promises nothing": (["--schema", "table.yaml", "--epsilon", "1e6"], "InvalidValue", "nonprivate"),
    "delta 0": (["--schema", "table.yaml", "--delta", "0"], "InvalidValue", "delta must be"),
    "a target that is no column": (["--schema", "table.yaml", "--target", "zip"], "InvalidValue", "one of the columns"),
    "a target without classes": (
        ["--schema", "table.yaml", "--target", "age"],
        "InvalidValue",
        "target must be one of the columns with classes, ['job', 'ill']. Got 'age'.",
    ),
    "a seed for exact noise": (["--schema", "table.yaml", "--noise-seed", "3"], "InvalidValue", "noise"),
    "an unknown device": (["--schema", "table.yaml", "--device", "abacus"], "InvalidValue", "device"),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_bad_arguments(
    case: str,
    sources: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(sources)
    wrong, error, words = ARGUMENTS[case]
    refused(capsys, tmp_path, error, words, "table.csv", "--out", tmp_path / "run", *options(), *wrong)


def test_values_outside_the_domain_are_told_in_the_words_of_their_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All values of three columns are; noise has a deviation of some fifty."""
    n = 3000
    frame = {
        "age": np.arange(n) % 90 + 0.5,
        "pay": np.full(n, 7351.629),
        "job": ["zebra"] * n,
        "ill": [True, False] * 1500,
    }
    pd.DataFrame(frame).to_csv(tmp_path / "a.csv", index=False)
    columns = (
        "{age: {type: integer, bounds: [0, 100]}, pay: {type: numeric, bounds: [0, 10]}, "
        "job: {type: categorical, categories: [cook, rest], other: rest}, ill: {type: boolean}}"
    )
    (tmp_path / "s.yaml").write_text(f"kind: table\ncolumns: {columns}\n")
    fit = ("fit", tmp_path / "a.csv", "--schema", tmp_path / "s.yaml", "--out", tmp_path / "run", "--epsilon", 5)
    assert gpate(*fit, "--quick", "--json") == 0
    told = capsys.readouterr()
    warnings = [line["warning"] for line in map(json.loads, told.err.splitlines()) if "warning" in line]
    said = {name: next(text for text in warnings if f"column '{name}'" in text) for name in ("age", "pay", "job")}
    assert "were not whole numbers: those were clipped or rounded" in said["age"]
    assert "declare it numeric" in said["age"]
    assert "outside its bounds" in said["pay"]
    assert "whole" not in said["pay"]
    assert "not among its categories" in said["job"]
    assert not any("column 'ill'" in text for text in warnings)
    assert ".5" not in said["age"]
    assert withheld(told.err)


def test_data_or_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpate("fit") == 2
    assert "--resume RUN" in capsys.readouterr().err
    assert gpate("fit", "digits", "--resume", "some-run") == 2
    told = capsys.readouterr().err.replace("\n", " ")
    assert "DATA and --resume must be given one without the other. Got ['digits', 'some-run']." in told
    assert "Fix: leave one of the two out." in told
    assert gpate("fit", "--resume", tmp_path) == 2
    assert "can be resumed" in capsys.readouterr().err
    assert gpate("fit", "--resume", tmp_path, "--epsilon", "3", "--noise-seed", "1") == 2
    assert "--epsilon, --noise-seed must be left out beside --resume. Got [3.0, 1]." in capsys.readouterr().err
    for option, value, shown in (("--device", "cpu", "'cpu'"), ("--set", "chunk=3", "\"['chunk=3']\"")):
        assert gpate("fit", "--resume", tmp_path, option, value) == 2
        assert f"{option} must be left out beside --resume. Got {shown}." in capsys.readouterr().err


def test_verify_says_which_folder_it_wants(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = next(path for path in sorted(runs.iterdir()) if (path / "release").is_dir())
    assert gpate("verify", run) == 2
    assert f"{run / 'release'}" in capsys.readouterr().err.replace("\n", "")
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "release" / "certificate.json").unlink()
    assert gpate("verify", tmp_path / "run" / "release") == 1
    assert "gpate fit --resume" in " ".join(capsys.readouterr().out.split())


def test_an_existing_run_is_not_touched(runs: Path, sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs / "table.csv"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert gpate("fit", sources / "table.csv", "--schema", sources / "table.yaml", "--out", run, *options()) == 2
    assert "exists already" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "name", ["ledger.jsonl", "generator.safetensors", "schema.yaml", "config.json", "certificate.json"]
)
def test_one_changed_byte_is_found(name: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release = shutil.copytree(runs / "table.csv" / "release", tmp_path / "release")
    content = bytearray((release / name).read_bytes())
    content[len(content) // 2] ^= 1
    (release / name).write_bytes(content)
    assert gpate("verify", release) == 1
    assert gpate("sample", release, "-n", 1, "-o", tmp_path / "a.csv") == 2
    assert not (tmp_path / "a.csv").exists()
    assert "Traceback" not in capsys.readouterr().err
