"""`gpate sample` and `gpate verify` as a person would use them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpate.boundary import FastNoise
from gpate.release import generator_file
from tests.command import gpate
from tests.processes import LIMIT
from tests.release.forger import forge
from tests.releases import IMAGES, make_release


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("releases")
    make_release(folder / "table")
    make_release(folder / "images", IMAGES)
    make_release(folder / "stamped", noise=FastNoise(seed=1))
    return folder


def test_sample_and_again_with_the_seed_it_told(
    releases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    assert gpate("sample", releases / "table", "-n", 1000, "-o", first) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "Wrote 1,000 records" in told.err
    assert "epsilon 1, delta 1e-05" in told.err
    seed = told.err.split("--seed ")[1].strip()
    assert gpate("sample", releases / "table", "-n", 1000, "-o", second, "--seed", seed, "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    pd.testing.assert_frame_equal(pd.read_parquet(first), pd.read_parquet(second))


def test_conditions_and_json(releases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rich.csv"
    conditions = ("--where", "income=>50K", "--where", "age=30..60")
    assert gpate("sample", releases / "table", "-n", 200, "-o", path, *conditions, "--seed", 4, "--json") == 0
    told = capsys.readouterr()
    assert told.err == ""
    data = json.loads(told.out)
    assert (data["records"], data["seed"], data["epsilon"], data["not_for_release"]) == (200, 4, 1.0, [])
    frame = pd.read_csv(path)
    assert set(frame.income) == {">50K"}
    assert frame.age.between(30, 60).all()


def test_pictures(releases: Path, tmp_path: Path) -> None:
    assert gpate("sample", releases / "images", "-n", 9, "-o", tmp_path / "grid.png", "--balanced") == 0
    assert gpate("sample", releases / "images", "-n", 9, "-o", tmp_path / "cats", "--where", "class=cat") == 0
    assert len(list((tmp_path / "cats" / "cat").glob("*.png"))) == 9
    assert gpate("sample", releases / "images", "-n", 9, "-o", tmp_path / "a.npz") == 0
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        assert arrays["images"].shape == (9, 8, 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table", "-n", 1, "-o", "taken.csv"), "OutputExists"),
        (("table", "-n", 0, "-o", "new.csv"), "a whole number >= 1"),
        (("table", "-n", 1, "-o", "new.pkl"), ".parquet, .csv"),
        (("table", "-n", 1, "-o", "new.csv", "--where", "income=rich"), "The classes are: <=50K, >50K."),
        (("table", "-n", 1, "-o", "new.csv", "--where", "height=3"), "a column among age"),
        (("table", "-n", 1, "-o", "new.csv", "--where", "age=3..9", "--where", "age=4"), "once for each column"),
        (("images", "-n", 1, "-o", "new.csv"), ".npz, .png"),
        (("nowhere", "-n", 1, "-o", "new.csv"), "ReleaseNotFound"),
        (("images", "-n", 1, "-o", "new.npz", "--device", "tpu"), "auto, cpu or cuda"),
        (("images", "-n", 1, "-o", "new.npz", "--soft-labels"), "left out for a release without a labeller"),
        (
            ("images", "-n", 1, "-o", "new.npz", "--balanced", "--where", "class=cat"),
            "--balanced and --where CLASS must be given one without the other. Got '--balanced --where class=cat'. Fix: ",
        ),
        (("table", "-n", 1, "-o", "new.csv", "--balanced", "--where", "income=>50K"), "Got '--balanced --where income"),
    ],
)
def test_mistakes_are_named_with_exit_code_2(
    releases: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[object, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.csv").write_text("mine")
    assert gpate("sample", releases / str(arguments[0]), *arguments[1:]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["taken.csv"]
    assert (tmp_path / "taken.csv").read_text() == "mine"


def test_no_record_is_written_into_a_release(
    releases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = shutil.copytree(releases / "table", tmp_path / "own")
    assert gpate("sample", own, "-n", 1, "-o", own / "new.csv") == 2
    assert "output must be outside of a release" in capsys.readouterr().err
    assert gpate("verify", own) == 0


def test_one_record_is_one(releases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpate("sample", releases / "table", "-n", 1, "-o", tmp_path / "a.csv") == 0
    assert "Wrote 1 record to" in capsys.readouterr().err
    assert (
        gpate("sample", releases / "table", "-n", 2, "-o", tmp_path / "b.csv", "--where", "age=30..60", "--balanced")
        == 0
    )
    assert "Wrote 2 records to" in capsys.readouterr().err


def test_where_there_is_no_gpu_the_fix_is_the_cpu(
    releases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpate.torch_utils._gpus", lambda: [])
    assert gpate("sample", releases / "images", "-n", 1, "-o", tmp_path / "a.npz", "--device", "cuda") == 2
    assert "(torch finds no GPU here). Got 'cuda'. Fix: --device cpu" in capsys.readouterr().err


def test_a_device_moves_images_only(releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """auto takes a GPU where there is one; this machine may have none, so that its name goes no further than `to`."""
    moved: list[str] = []
    monkeypatch.setattr("gpate.torch_utils.torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("gpate.torch_utils._gpus", lambda: ["cuda:0"])
    monkeypatch.setattr("gpate.release.Release.to", lambda release, device: moved.append(str(device)) or release)
    for chosen in ((), ("--device", "cuda"), ("--device", "cpu")):
        for kind, name in (("images", "some.npz"), ("table", "some.csv")):
            path = tmp_path / name
            assert gpate("sample", releases / kind, "-n", 3, "-o", path, "--seed", 1, "--force", "-q", *chosen) == 0
    assert moved == ["cuda", "cuda", "cpu"]


def test_force_replaces(releases: Path, tmp_path: Path) -> None:
    path = tmp_path / "taken.csv"
    path.write_text("mine")
    assert gpate("sample", releases / "table", "-n", 5, "-o", path, "--force") == 0
    assert len(pd.read_csv(path)) == 5


def test_verify_a_true_release(releases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpate("verify", releases / "table", "--for-release") == 0
    told = capsys.readouterr().out
    assert "All checks passed." in told
    assert "epsilon = 1 and delta = 1e-05, for one record" in " ".join(told.split())
    assert "Not covered" in told
    assert gpate("verify", releases / "table", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["passed"] is data["releasable"] is True
    assert all(check["passed"] for check in data["checks"])
    assert data["certificate"]["fingerprint"]


def test_verify_a_stamped_release(releases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpate("verify", releases / "stamped") == 0
    assert "NOT FOR RELEASE: noise is fast" in capsys.readouterr().out
    assert gpate("verify", releases / "stamped", "--for-release") == 1
    assert gpate("verify", releases / "stamped", "--json", "--for-release") == 1
    capsys.readouterr()
    assert gpate("sample", releases / "stamped", "-n", 5, "-o", tmp_path / "a.csv", "--quiet") == 0
    assert "NOT FOR RELEASE" in capsys.readouterr().err


def test_verify_a_spoilt_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_release(tmp_path / "r")
    with open(tmp_path / "r" / "schema.yaml", "ab") as file:
        file.write(b"\n")
    assert gpate("verify", tmp_path / "r") == 1
    told = capsys.readouterr().out
    assert "DOES NOT HOLD" in told
    assert "Differential privacy with" not in told  # a promise that does not hold is not repeated
    assert gpate("verify", tmp_path / "r", "--json") == 1
    data = json.loads(capsys.readouterr().out)
    assert data["passed"] is False
    assert data["statement"] is None
    assert gpate("sample", tmp_path / "r", "-n", 5, "-o", tmp_path / "a.csv") == 2
    assert gpate("verify", tmp_path / "nowhere") == 2


@pytest.mark.slow
def test_a_release_of_a_newer_gpate_is_not_checked_and_nobody_is_told_to_distrust_it(
    releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generator_file, "CONFIG_VERSION", 0)
    assert gpate("verify", releases / "images") == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "NOT CHECKED" in said
    assert "upgrade gpate" in said
    assert "Do not trust" not in said
    spoilt = tmp_path / "spoilt"
    shutil.copytree(releases / "images", spoilt)
    (spoilt / "more.txt").write_text("something else")
    assert gpate("verify", spoilt) == 1
    assert "Do not trust" in " ".join(capsys.readouterr().out.split())


def test_memory_does_not_grow_with_the_number_of_records(releases: Path, tmp_path: Path) -> None:
    code = (
        "import resource\nfrom gpate.cli import main\n"
        "def take(n):\n"
        f"    try: main(['sample', {str(releases / 'table')!r}, '-n', str(n), '-o', {str(tmp_path / 'a.parquet')!r}, '-q', '--force'])\n"
        "    except SystemExit as end: assert not end.code\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "few = take(140_000)\nmany = take(400_000)\nprint(few, many)\nassert many < few + 40_000, (few, many)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert len(pd.read_parquet(tmp_path / "a.parquet", columns=["age"])) == 400_000


def test_sampling_warns_once_and_loudly_where_verify_fails(
    releases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(releases / "table", tmp_path / "forged")
    forge(tmp_path / "forged", lines=lambda _: [])
    assert gpate("verify", tmp_path / "forged") == 1
    capsys.readouterr()
    assert gpate("sample", tmp_path / "forged", "-n", 10, "-o", tmp_path / "a.csv", "--quiet") == 0
    told = capsys.readouterr()
    assert told.err.count("DOES NOT HOLD") == 1
    assert "events: 0 iterations, although the budget allows more" in told.err
    assert len(pd.read_csv(tmp_path / "a.csv")) == 10
    assert gpate("sample", releases / "table", "-n", 10, "-o", tmp_path / "b.csv", "--quiet") == 0
    assert capsys.readouterr().err == ""
