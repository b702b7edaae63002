"""What `verify` must find: any changed byte, any claim that the ledger does not bear out, any missing stamp."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from gpate.accounting import Budget, DiscreteGaussian, Gaussian, Header, Ledger, PoissonSampledGaussian, grid_for
from gpate.boundary import ExactNoise, FastNoise
from gpate.errors import ReleaseCorrupt, ReleaseError, ReleaseNotFound
from gpate.release import Certificate, FileRecord, Release, Verification, verify
from gpate.release.certificate import EXACT_NOISE
from tests.releases import IMAGES, TABLE, make_release, student_for

FILES = ("ledger.jsonl", "generator.safetensors", "schema.yaml", "config.json", "certificate.json")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verify") / "release"
    make_release(folder)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(original, tmp_path / "release"))


def failed(found: Verification) -> set[str]:
    return {check.name for check in found.checks if not check.passed}


def recertify(folder: Path, **changes: Any) -> None:
    """What a forger would do: a new certificate, with right hashes and a right fingerprint."""
    certificate = Certificate.from_bytes((folder / "certificate.json").read_bytes())
    files = {name: FileRecord.of((folder / name).read_bytes()) for name in certificate.files}
    forged = dataclasses.replace(certificate, **{"files": files, **changes})
    (folder / "certificate.json").write_bytes(forged.to_bytes())


def new_ledger(folder: Path, header: Header, events: list[Any], *, seal: bool = True) -> None:
    """Another ledger, whole and well formed, that the certificate points to."""
    (folder / "ledger.jsonl").unlink()
    with Ledger.create(folder / "ledger.jsonl", header) as ledger:
        for event in events:
            ledger.append(event, purpose="a test")
        if seal:
            ledger.seal()
        accountant = header.budget.accountant_for(ledger.tally).name
        spend = header.budget.spend(ledger.tally)
        recertify(folder, head=ledger.head, spend=spend, noise=header.noise, accountant=accountant)


def test_a_true_release_passes(original: Path, tmp_path: Path) -> None:
    found = verify(original)
    assert failed(found) == set()
    assert found.passed
    assert found.releasable
    make_release(tmp_path / "images", IMAGES)
    assert verify(tmp_path / "images").releasable
    assert ExactNoise.name == EXACT_NOISE


def test_rows_do_not_depend_on_what_fails(original: Path, folder: Path) -> None:
    names = [check.name for check in verify(original).checks]
    assert len(set(names)) == len(names)
    for name in FILES:
        (folder / name).unlink()
    found = verify(folder)
    assert [check.name for check in found.checks] == names
    assert failed(found) == set(names)


@pytest.mark.parametrize("name", [name for name in FILES if name != "generator.safetensors"])
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_every_flipped_byte_of_the_small_files_is_found(folder: Path, name: str, step: int) -> None:
    content = (folder / name).read_bytes()
    chosen = random.Random(name)
    for at in range(0, len(content), step):
        spoilt = bytearray(content)
        spoilt[at] ^= 1 << chosen.randrange(8)
        (folder / name).write_bytes(spoilt)
        assert not _holds(folder, at), f"byte {at}"
    (folder / name).write_bytes(content)
    assert verify(folder).passed


def _holds(folder: Path, at: int) -> bool:
    """Loading, which is quick; and for every 20th byte verifying, which looks at everything."""
    try:
        Release.load(folder)
    except ReleaseError:
        return at % 20 == 0 and verify(folder).passed
    return True


def test_flipped_bytes_of_the_weights_are_found(folder: Path) -> None:
    path = folder / "generator.safetensors"
    content = path.read_bytes()
    chosen = random.Random(0)
    for at in chosen.sample(range(len(content)), 150):
        spoilt = bytearray(content)
        spoilt[at] ^= 1 << chosen.randrange(8)
        path.write_bytes(spoilt)
        assert not _holds(folder, at), f"byte {at}"
    path.write_bytes(content)
    assert verify(folder).passed


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("spoil", ["cut", "empty", "longer", "missing", "link", "folder", "pipe"])
def test_spoilt_files_are_found(folder: Path, name: str, spoil: str) -> None:
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    if spoil in ("cut", "empty", "longer"):
        path.write_bytes({"cut": content[:-1], "empty": b"", "longer": content + b"\n"}[spoil])
    elif spoil == "link":
        (folder.parent / "elsewhere").write_bytes(content)
        path.symlink_to(folder.parent / "elsewhere")
    elif spoil == "folder":
        path.mkdir()
    elif spoil == "pipe":
        os.mkfifo(path)
    found = verify(folder)
    assert not found.passed
    if spoil not in ("cut", "empty", "longer"):
        assert "files" in failed(found)
    with pytest.raises(ReleaseError):
        Release.load(folder)


@pytest.mark.parametrize("name", ["teachers.safetensors", ".hidden", "config.json.partial", "Ledger.jsonl", "-"])
def test_extra_files_are_found(folder: Path, name: str) -> None:
    (folder / name).touch()
    assert failed(verify(folder)) == {"files"}
    with pytest.raises(ReleaseCorrupt, match="does not belong"):
        Release.load(folder)


def test_no_folder_no_verification(tmp_path: Path) -> None:
    with pytest.raises(ReleaseNotFound):
        verify(tmp_path / "nowhere")
    assert not verify(tmp_path).passed


# --- forgeries whose hashes are right ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({"epsilon": 0.1}, "claim"),
        ({"epsilon": math.inf}, "claim"),
        ({"delta": 1e-9}, "claim"),
        ({"spend": 0.01}, "epsilon as certified"),
        ({"accountant": "pld"}, "claim"),
        ({"neighbours": "one pixel changed"}, "claim"),
        ({"noise": "quantum"}, "claim"),
    ],
)
def test_a_claim_that_the_ledger_does_not_bear_out(folder: Path, changes: dict[str, Any], row: str) -> None:
    recertify(folder, **changes)
    assert row in failed(verify(folder))


BUDGET = Budget(epsilon=1.0, delta=1e-5)
EXACT = Header(budget=BUDGET, noise="exact")
PAID = DiscreteGaussian(sigma=40.0, grid=grid_for(40.0))


def test_another_ledger_that_holds_is_no_forgery(folder: Path) -> None:
    new_ledger(folder, EXACT, [PAID])
    assert verify(folder).passed


def test_spending_over_the_budget_is_found(folder: Path) -> None:
    new_ledger(folder, EXACT, [PAID] * 400)
    found = verify(folder)
    assert failed(found) == {"epsilon within budget"}
    assert "the budget is 1" in next(c.detail for c in found.checks if not c.passed)


def test_the_very_edge_of_the_budget_passes(folder: Path) -> None:
    from gpate.accounting import calibrate

    new_ledger(folder, EXACT, list(calibrate([dataclasses.replace(PAID, count=1000)], BUDGET)))
    assert verify(folder).passed


def test_dp_sgd_is_recomputed_by_its_own_accountant(folder: Path) -> None:
    event = PoissonSampledGaussian(noise_multiplier=3.0, sampling_probability=0.01, count=100, grid=2.0**-28)
    new_ledger(folder, EXACT, [event])
    found = verify(folder)
    assert found.passed
    assert found.certificate is not None
    assert found.certificate.accountant == "pld"


def test_lines_cut_from_the_end_are_found(folder: Path) -> None:
    path = folder / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2]))
    recertify(folder)
    assert {"claim", "ledger seal", "epsilon as certified"} <= failed(verify(folder))


def test_an_open_ledger_is_found(folder: Path) -> None:
    new_ledger(folder, EXACT, [PAID], seal=False)
    assert failed(verify(folder)) == {"ledger seal"}


@pytest.mark.parametrize("noise", ["fast", "fast, fixed seed", "EXACT", ""])
def test_fast_noise_without_a_stamp_fails(folder: Path, noise: str) -> None:
    new_ledger(folder, Header(budget=BUDGET, noise=noise), [Gaussian(sigma=40.0)])
    assert failed(verify(folder)) == {"stamps"}
    recertify(folder, not_for_release=("noise is fast, not exact",))
    found = verify(folder)
    assert found.passed
    assert not found.releasable


def test_floating_point_events_under_exact_noise_fail(folder: Path) -> None:
    new_ledger(folder, EXACT, [Gaussian(sigma=40.0)])
    assert failed(verify(folder)) == {"ledger noise"}


def test_an_infinite_budget_without_a_stamp_fails(folder: Path) -> None:
    new_ledger(folder, Header(budget=Budget(epsilon=math.inf, delta=1e-5), noise="exact"), [PAID])
    recertify(folder, epsilon=math.inf)
    assert failed(verify(folder)) == {"stamps"}


def test_a_stamp_cannot_be_scratched_off(tmp_path: Path) -> None:
    make_release(tmp_path / "r", noise=FastNoise())
    assert verify(tmp_path / "r").passed
    recertify(tmp_path / "r", not_for_release=())
    assert failed(verify(tmp_path / "r")) == {"stamps"}


@pytest.mark.parametrize(
    ("spoil", "row"),
    [
        (lambda w: w | {"teachers.0.weight": torch.ones(3)}, "weights"),
        (lambda w: {k: v for k, v in w.items() if k != "dense1.bias"}, "weights"),
        (lambda w: w | {"dense1.bias": torch.ones(3)}, "weights"),
        (lambda w: w | {"dense1.bias": w["dense1.bias"].double()}, "weights"),
        (lambda w: w | {"dense1.bias": w["dense1.bias"] + math.inf}, "weights finite"),
        (lambda w: w | {"dense1.bias": w["dense1.bias"] * math.nan}, "weights finite"),
    ],
)
def test_weights_that_are_not_the_generators_fail(folder: Path, spoil: Any, row: str) -> None:
    weights = spoil(dict(student_for(TABLE).network.state_dict()))
    safetensors.torch.save_file(weights, folder / "generator.safetensors")
    recertify(folder)
    assert failed(verify(folder)) == {row}
    if row == "weights":
        with pytest.raises(ReleaseCorrupt, match="does not fit"):
            Release.load(folder)


def test_a_pickle_in_place_of_the_weights_is_not_opened(folder: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.mkdir, (str(folder / "trapped"),)

    torch.save({"dense1.weight": Trap()}, folder / "generator.safetensors")
    recertify(folder)
    assert "weights format" in failed(verify(folder))
    with pytest.raises(ReleaseCorrupt, match="safetensors"):
        Release.load(folder)
    np.savez(folder / "config.npz", trap=np.array([Trap()], dtype=object))
    (folder / "config.npz").replace(folder / "config.json")
    recertify(folder)
    assert "config" in failed(verify(folder))
    assert not (folder / "trapped").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"width": 10**12},
        {"latent": 10**15, "classes": 10**15},
        {"width": -1},
        {"kind": "code"},
        {"softmax": [[0, 10**9]]},
        {"softmax": "abc"},
        {"extra": 1},
    ],
)
def test_a_hostile_config_reserves_no_memory(folder: Path, change: dict[str, Any]) -> None:
    data = json.loads((folder / "config.json").read_text())
    data["generator"] |= change
    (folder / "config.json").write_text(json.dumps(data, indent=2) + "\n")
    recertify(folder)
    assert {"config", "generator fits schema"} & failed(verify(folder))
    with pytest.raises(ReleaseCorrupt):
        Release.load(folder)


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['true']",
        "a: &a [x, x]\nb: &b [*a, *a]\nkind: table\n",
        pytest.param("[" * 100_000, marks=pytest.mark.slow, id="deep"),  # tests/records/test_hostile.py has one too
        "kind: table\ncolumns: {a: {type: boolean}, a: {type: boolean}}\n",
        "kind: ../../table",
        "\x00",
    ],
)
def test_a_hostile_schema_is_refused(folder: Path, text: str) -> None:
    (folder / "schema.yaml").write_text(text)
    recertify(folder)
    assert "schema" in failed(verify(folder))
    with pytest.raises(ReleaseCorrupt):
        Release.load(folder)


@pytest.mark.parametrize("text", ["[" * 100_000, "NaN", '{"a": NaN}', '{"a": 1, "a": 1}', "null", "{}", '{"files": 3}'])
def test_a_hostile_certificate_is_refused(folder: Path, text: str) -> None:
    (folder / "certificate.json").write_text(text)
    assert "certificate" in failed(verify(folder))
    with pytest.raises(ReleaseCorrupt):
        Release.load(folder)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "schema.yaml/../x"])
def test_a_certificate_cannot_point_outside(folder: Path, name: str) -> None:
    data = Certificate.from_bytes((folder / "certificate.json").read_bytes()).to_json()
    data["files"][name] = data["files"].pop("schema.yaml")
    with pytest.raises(ReleaseCorrupt):
        Certificate.from_json(data)
