"""Signatures by `ssh-keygen`, over the certificate: who signed is named, and every other key, state or content is refused by name."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpate import Synthesizer, verify
from gpate.errors import InvalidValue, ReleaseNotFound, SignatureFailed
from gpate.release import Release, Verification, sign, signatures
from gpate.report import write_report
from tests.command import gpate
from tests.release.forger import forge
from tests.releases import make_release

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs OpenSSH's client")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two keys, and a file of allowed signers for the first: `signers`."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("alice", "mallory"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
        subprocess.run(make, check=True)
    allow(folder / "signers", folder / "alice.pub")
    return folder


def allow(path: Path, key: Path, options: str = "", name: str = "alice@clinic.example") -> Path:
    path.write_text(f"{name} {options} {' '.join(key.read_text().split()[:2])}\n")
    return path


@pytest.fixture
def signed(keys: Path, tmp_path: Path) -> Path:
    make_release(tmp_path / "release")
    sign(tmp_path / "release", key=keys / "alice")
    return tmp_path / "release"


def told(found: Verification) -> str:
    assert {check.name for check in found.checks if not check.passed} <= {"signature"}
    return next(check.detail for check in found.checks if check.name == "signature")


def test_the_signer_is_named(signed: Path, keys: Path) -> None:
    found = verify(signed, signers=keys / "signers")
    assert found.passed
    assert found.signature.signer == "alice@clinic.example"
    assert found.signature.key is not None
    shown = subprocess.run(["ssh-keygen", "-l", "-f", keys / "alice.pub"], capture_output=True, text=True, check=True)
    assert found.signature.key.split()[-1] in shown.stdout
    by_hand = [
        "ssh-keygen",
        "-Y",
        "verify",
        "-f",
        keys / "signers",
        "-I",
        "alice@clinic.example",
        "-n",
        "gpate-release",
    ]
    content = (signed / "certificate.json").read_bytes()
    subprocess.run([*by_hand, "-s", signed / "certificate.json.sig"], input=content, check=True, capture_output=True)


def test_without_signers_it_is_said_that_nobody_checked(signed: Path, tmp_path: Path) -> None:
    assert verify(signed).passed
    assert "whose key it is was not checked" in told(verify(signed))
    make_release(tmp_path / "plain")
    assert verify(tmp_path / "plain").passed
    assert told(verify(tmp_path / "plain")) == "not signed"


def test_other_keys_are_refused_by_name(signed: Path, keys: Path, tmp_path: Path) -> None:
    refused = {
        "does not allow ED25519 key SHA256:": allow(tmp_path / "a", keys / "mallory.pub"),
        "key has expired": allow(tmp_path / "b", keys / "alice.pub", 'valid-before="20200101"'),
        "not permitted for use in signature namespace": allow(tmp_path / "c", keys / "alice.pub", 'namespaces="git"'),
    }
    (tmp_path / "d").write_text("# nobody\n")
    for reason, signers in {**refused, "No principal matched": tmp_path / "d"}.items():
        found = verify(signed, signers=signers)
        assert reason in told(found)
        assert not found.passed
        assert found.signature.signer is None


@pytest.mark.parametrize("krl", [False, True])
def test_a_revoked_key_is_refused(signed: Path, keys: Path, tmp_path: Path, krl: bool) -> None:
    for name, passes in (("mallory", True), ("alice", False)):
        revoked = tmp_path / name
        if krl:
            subprocess.run(["ssh-keygen", "-q", "-k", "-f", revoked, keys / f"{name}.pub"], check=True)
        else:
            shutil.copy(keys / f"{name}.pub", revoked)
        found = verify(signed, signers=keys / "signers", revoked=revoked)
        assert found.passed is passes
        assert passes or f"revoked by {revoked}" in told(found)


def test_no_signature_and_another_release_are_refused(signed: Path, keys: Path, tmp_path: Path) -> None:
    forge(signed, gpate_version="0.0.1")  # all is right again, but for the signature
    assert "incorrect signature" in told(verify(signed, signers=keys / "signers"))
    assert not verify(signed).passed
    (signed / "certificate.json.sig").write_text("not a signature")
    assert not verify(signed).passed
    (signed / "certificate.json.sig").unlink()
    assert verify(signed).passed
    assert told(verify(signed, signers=keys / "signers")) == "it is not signed"
    assert not verify(signed, signers=keys / "signers").passed


def test_a_signature_for_another_purpose_is_refused(signed: Path, keys: Path) -> None:
    command = ["ssh-keygen", "-Y", "sign", "-f", keys / "alice", "-n", "git"]
    made = subprocess.run(command, input=(signed / "certificate.json").read_bytes(), capture_output=True, check=True)
    (signed / "certificate.json.sig").write_bytes(made.stdout)
    assert "namespace does not match" in told(verify(signed, signers=keys / "signers"))


def test_without_ssh_keygen_it_says_so(signed: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures.shutil, "which", lambda _: None)
    with pytest.raises(SignatureFailed, match=r"not installed\. Fix: install OpenSSH"):
        sign(signed, key=keys / "alice")
    assert verify(signed).passed
    assert "ssh-keygen is not installed" in told(verify(signed, signers=keys / "signers"))


def test_what_cannot_be_signed(signed: Path, keys: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="the file of an SSH key"):
        sign(signed, key=tmp_path / "nokey")
    with pytest.raises(SignatureFailed, match="did not sign"):
        sign(signed, key=signed / "certificate.json")
    with pytest.raises(ReleaseNotFound):
        sign(tmp_path, key=keys / "alice")
    with pytest.raises(InvalidValue, match="given with signers"):
        verify(signed, revoked=keys / "alice.pub")


def test_it_stays_with_the_release(signed: Path, keys: Path, tmp_path: Path) -> None:
    Release.load(signed).sample(3)
    copied = Synthesizer.load(signed).save(tmp_path / "copy")
    assert verify(copied, signers=keys / "signers").passed
    write_report(signed, tmp_path / "plain.html")
    write_report(signed, tmp_path / "named.html", verification=verify(signed, signers=keys / "signers"))
    assert "whose key it is was not checked" in (tmp_path / "plain.html").read_text()
    assert "signed by alice@clinic.example" in (tmp_path / "named.html").read_text()


def test_the_commands(tmp_path: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release, signers = tmp_path / "release", ("--signers", keys / "signers")
    make_release(release)
    assert gpate("verify", release, *signers) == 1
    assert "Fix: ask its owner to sign it" in " ".join(capsys.readouterr().out.split())
    assert gpate("sign", release, "--key", keys / "alice") == 0
    assert "Signed with ED25519 key SHA256:" in capsys.readouterr().err
    assert gpate("sign", release, "--key", keys / "alice", "--quiet") == 0  # again: in place of the first
    assert gpate("verify", release, *signers) == 0
    assert gpate("verify", release, *signers, "--revoked", keys / "alice.pub") == 1
    assert gpate("verify", release, "--signers", tmp_path / "nowhere") == 2
    assert gpate("sign", release, "--key", tmp_path / "nokey") == 2
    assert gpate("report", release, "-o", tmp_path / "page.html", *signers) == 0
    assert "Signed by <bdi>alice@clinic.example</bdi>." in (tmp_path / "page.html").read_text()
    forge(release, lines=lambda _: [])
    capsys.readouterr()
    assert gpate("sign", release, "--key", keys / "alice") == 1, "who signs answers for it"
    assert "NOT SIGNED" in capsys.readouterr().err
