"""Files for those who fork or report: the workflow does what `.ci/run` does, forms are valid, links lead somewhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.processes import ROOT

PAGES = ("CONTRIBUTING.md", "RELEASING.md", "SECURITY.md")


def test_the_workflow_runs_what_ci_runs_on_every_python_that_is_declared() -> None:
    (job,) = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    ours = (ROOT / ".ci/run").read_text().splitlines()[-1]
    assert ours == "make test"
    assert any(command.startswith(ours) for command in commands)
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{command.split()[1]}:", makefile, flags=re.MULTILINE) for command in commands)
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert job["strategy"]["matrix"]["python"] == re.findall(r"Python :: (3\.\d+)", " ".join(classifiers))


@pytest.mark.parametrize("form", ["bug", "feature"])
def test_issue_forms_ask_for_something(form: str) -> None:
    asked = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE" / f"{form}.yml").read_text())
    assert asked["name"]
    assert asked["description"]
    fields = [part for part in asked["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in fields}) == len(fields)
    assert any(part.get("validations", {}).get("required") for part in fields)


def test_a_privacy_bug_is_not_reported_in_public() -> None:
    chooser = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/config.yml").read_text())
    assert chooser["blank_issues_enabled"] is False
    assert any("SECURITY.md" in link["about"] for link in chooser["contact_links"])
    assert "SECURITY.md" in (ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text()


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / page).read_text()):
        assert "://" in link or Path(ROOT, link).exists(), link
