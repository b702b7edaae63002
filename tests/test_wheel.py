"""The wheel: what is in it, that anyone can build the same one, and that it works by itself in a clean environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gpate import __version__
from tests.docs.blocks import blocks
from tests.processes import ROOT

BESIDE = ("CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "pyproject.toml")
"""Files of a source distribution beside the package."""
NOT_FOR_USERS = {"dev", "docs", "all"}
"""Extras that `all` does not hold."""
INFO = f"gpate-{__version__}.dist-info"


def build(source: Path, into: Path) -> tuple[Path, Path]:
    """What `make wheel` does: the source distribution, and the wheel that is made from it."""
    made = [sys.executable, "-m", "build", "--no-isolation", "--outdir", into, source]
    done = subprocess.run(
        made, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}, cwd=into.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (sdist,), (wheel,) = into.glob("*.tar.gz"), into.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(ROOT, tmp_path_factory.mktemp("wheel") / "dist")


@pytest.fixture(scope="module")
def metadata(built: tuple[Path, Path]) -> Message:
    with zipfile.ZipFile(built[1]) as wheel:
        return message_from_bytes(wheel.read(f"{INFO}/METADATA"))


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    """The package's files: those that git knows, or is about to, where a change was not committed yet."""
    if not (ROOT / ".git").exists():
        pytest.skip("which files belong to the package is known to git alone")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/gpate"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return {name.removeprefix("src/") for name in names if (ROOT / name).is_file() and name}


def test_the_wheel_has_all_files_of_the_package_and_no_others(built: tuple[Path, Path], tracked: set[str]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
    assert {name for name in names if not name.startswith(INFO)} == tracked
    assert "gpate/py.typed" in names
    assert any(name.endswith(".yaml") for name in names)
    assert any(name.endswith(".html") for name in names)


def test_the_source_distribution_has_what_a_wheel_is_made_from(built: tuple[Path, Path], tracked: set[str]) -> None:
    with tarfile.open(built[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert names == {f"src/{name}" for name in tracked} | set(BESIDE) | {".gitignore", "PKG-INFO"}


def test_another_folder_gives_the_same_bytes(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Files with other times, in another order, beside files that belong to nobody."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(ROOT / "src" / "gpate", copy / "src" / "gpate", copy_function=shutil.copyfile)
    for name in (*reversed(BESIDE), ".gitignore"):
        shutil.copyfile(ROOT / name, copy / name)
    for stray in ("run/private/run.json", "tests/test_x.py", "patients.csv", "src/patients.csv"):
        (copy / stray).parent.mkdir(parents=True, exist_ok=True)
        (copy / stray).write_text("x")
    for first, second in zip(built, build(copy, tmp_path / "dist"), strict=True):
        assert first.read_bytes() == second.read_bytes()


def extras(metadata: Message) -> dict[str, set[str]]:
    """The projects that each extra asks for."""
    found: dict[str, set[str]] = {name: set() for name in metadata.get_all("Provides-Extra") or ()}
    for requirement in map(Requirement, metadata.get_all("Requires-Dist") or ()):
        for name in found:
            if requirement.marker is not None and requirement.marker.evaluate({"extra": name}):
                found[name].add(str(requirement).partition(";")[0])
    return found


def test_the_extra_all_is_every_extra_for_users(metadata: Message) -> None:
    found = extras(metadata)
    assert {"duckdb", "postgres", "spark", "fid", "all", "dev"} <= set(found)
    assert found["all"] == set().union(*(found[name] for name in set(found) - NOT_FOR_USERS))


def test_all_files_name_the_same_version() -> None:
    declared = {
        name: re.findall(r'^version\s*[=:]\s*"?([\w.]+)"?$', (ROOT / name).read_text(), flags=re.MULTILINE)
        for name in ("pyproject.toml", "research/pyproject.toml", "CITATION.cff")
    }
    assert declared == {name: [__version__] for name in declared}


def test_the_command_and_types_are_declared(built: tuple[Path, Path], metadata: Message) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        assert "gpate = gpate.cli:main" in wheel.read(f"{INFO}/entry_points.txt").decode()
    assert metadata["Version"] == __version__
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])


# --- in an environment of its own -------------------------------------------------------------------------------------------


class Clean:
    """An environment with nothing but what pip installs, used from a folder outside of any checkout."""

    def __init__(self, place: Path) -> None:
        venv.create(place / "venv", with_pip=True)
        self.programs = place / "venv" / "bin"
        self.folder = place / "work"
        self.folder.mkdir()

    def run(self, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run(
            [self.programs / program, *map(str, arguments)],
            cwd=self.folder,
            env={**kept, "OMP_NUM_THREADS": "1", "GPATE_CACHE": str(self.folder / "cache")},
            capture_output=True,
            text=True,
        )

    def printed(self, program: str, *arguments: object) -> str:
        done = self.run(program, *arguments)
        assert done.returncode == 0, f"{arguments}\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def clean(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clean]:
    """The wheel and what it needs, with the torch that the Makefile installs: a looser request would bring the CUDA packages."""
    place = tmp_path_factory.mktemp("clean")
    made = Clean(place)
    torch = re.search(r"torch==[\w.]+", (ROOT / "Makefile").read_text())
    assert torch is not None
    first = made.run("python", "-m", "pip", "install", "--quiet", torch[0])
    if first.returncode != 0:
        pytest.skip(f"no package index that has {torch[0]}: {first.stderr.strip().splitlines()[-1]}")
    made.printed("python", "-m", "pip", "install", "--quiet", built[1])
    yield made
    shutil.rmtree(place)  # a gigabyte


@pytest.mark.slow
@pytest.mark.timeout(3600)  # a gigabyte is downloaded and installed first
def test_the_first_screen_of_the_readme_runs_from_the_wheel_alone(clean: Clean) -> None:
    place = clean.printed("python", "-c", "import gpate; print(gpate.__file__)").strip()
    assert Path(place).is_relative_to(clean.programs.parent)
    first = (ROOT / "README.md").read_text().split("\n## ")[0]
    program = next(body for language, body, _ in blocks(first) if language == "python")
    (clean.folder / "first.py").write_text(program)
    output = clean.printed("python", "first.py")
    assert "Privacy(epsilon=1.0, delta=1e-06" in output
    means = [float(line.split()[1]) for line in output.splitlines() if re.match(r"(False|True) +\d", line)]
    real, synthetic = means[:2], means[2:]
    assert synthetic == pytest.approx(real, abs=3.0)


@pytest.mark.slow
@pytest.mark.timeout(3600)  # a gigabyte is downloaded and installed first
def test_the_command_works_from_the_wheel_alone(clean: Clean) -> None:
    """Every command that needs a file of the package: schemas, templates."""
    assert clean.printed("gpate", "--version") == clean.printed("python", "-m", "gpate", "--version")
    assert __version__ in clean.printed("gpate", "--version")
    assert "reproduce" not in clean.printed("gpate", "--help"), "research/ is not in the wheel"
    clean.printed("gpate", "fit", "digits", "--quick", "--epsilon", "10", "--quiet", "--set", "matching.steps=20")
    assert json.loads(clean.printed("gpate", "verify", "run/release", "--json"))["passed"]
    clean.printed("gpate", "sample", "run/release", "-n", "10", "-o", "synthetic.png", "--quiet")
    clean.printed("gpate", "report", "run", "--release", "-o", "report.html", "--quiet")
    assert "<style>" in (clean.folder / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.timeout(3600)  # a gigabyte is downloaded and installed first
def test_all_extras_resolve(clean: Clean, built: tuple[Path, Path], metadata: Message) -> None:
    resolve = ("install", "--quiet", "--dry-run", "--report", "-")
    report = json.loads(clean.printed("python", "-m", "pip", *resolve, f"{built[1]}[all]"))
    found = {item["metadata"]["name"].lower().replace("_", "-") for item in report["install"]}
    assert {Requirement(one).name for one in extras(metadata)["all"]} <= found
