"""Signatures of releases: OpenSSH's, over the bytes of the certificate, made and checked by `ssh-keygen`.

The certificate has the hash of every other file, so a signature of it is one of the whole release. It is in
`certificate.json.sig`, in the format of `ssh-keygen -Y sign` (PROTOCOL.sshsig), with the namespace `gpate-release`; anyone
who has OpenSSH can check it without gpate:

    ssh-keygen -Y verify -f allowed_signers -I alice@clinic.example -n gpate-release \
        -s certificate.json.sig < certificate.json

**A good signature means** that who holds the private key signed this certificate. Whose key it is says the file of allowed
signers, which a verifier keeps or gets from a source that they trust, never from the release.

Keys in an agent, or on hardware, are used by naming the public key's file. A passphrase is asked for by `ssh-keygen` itself.
Everything works offline.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gpate.errors import InvalidValue, SignatureFailed
from gpate.release import release_files as files

NAMESPACE = "gpate-release"
"""What the signature is for: one made for another purpose, such as a commit, is refused."""

_SECONDS = 30
"""`ssh-keygen` checks a signature in milliseconds."""

_KEY = re.compile(r"with (\S+) key (SHA256:\S+)")


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What is known about the signature of a release.

    Attributes:
        present: whether there is one.
        signer: who signed it, by the file of allowed signers; None if nobody checked, or it was refused.
        key: type and fingerprint of the key that signed it, as `ssh-keygen -l` shows it; None if unknown.
        problem: why it is refused; None if it is not.
    """

    present: bool
    signer: str | None = None
    key: str | None = None
    problem: str | None = None

    def __str__(self) -> str:
        if self.problem is not None:
            return self.problem
        if not self.present:
            return "not signed"
        if self.signer is not None:
            return f"signed by {self.signer}, with {self.key}"
        return f"signed with {self.key or 'a key that was not looked at'}; whose key it is was not checked"


def sign(folder: str | os.PathLike[str], *, key: str | os.PathLike[str]) -> Signature:
    """Sign a release: writes `certificate.json.sig` into its folder, in place of an earlier one.

    Args:
        folder: the release.
        key: file of the private key; or of the public key, if the private one is in an agent or on hardware.

    Raises:
        SignatureFailed: `ssh-keygen` is not installed, or did not sign.
        ReleaseNotFound: there is no certificate.
    """
    folder, key = Path(folder), Path(key).expanduser()
    content = files.read(folder, files.CERTIFICATE)
    if not key.is_file():
        raise InvalidValue("key", str(key), "the file of an SSH key", "Fix: make one with ssh-keygen -t ed25519.")
    # what it asks, such as to touch a hardware key, goes to the terminal
    made = subprocess.run(
        [_program(), "-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE],
        input=content,
        stdout=subprocess.PIPE,
        check=False,
    )
    if made.returncode or not made.stdout:
        raise SignatureFailed(f"ssh-keygen did not sign with {key}. Fix: see its message above.")
    files.write(folder, files.SIGNATURE, made.stdout)
    return check_signature(content, made.stdout, signers=None, revoked=None)


def check_signature(
    content: bytes, signature: bytes | None, *, signers: Path | None, revoked: Path | None
) -> Signature:
    """Check a signature of these bytes.

    Args:
        content: the certificate.
        signature: of it; None if there is none.
        signers: OpenSSH's file of allowed signers; None checks only that the key belongs to the signature.
        revoked: keys that are not accepted any more: public keys, one per line, or a KRL.
    """
    if signature is None:
        return Signature(present=False, problem=None if signers is None else "it is not signed")
    if shutil.which("ssh-keygen") is None:
        if signers is None:
            return Signature(present=True)
        return Signature(
            present=True, problem="it cannot be checked: ssh-keygen is not installed. Fix: install OpenSSH"
        )
    with tempfile.TemporaryDirectory() as held:
        place = Path(held) / files.SIGNATURE
        place.write_bytes(signature)
        good = _ask("check-novalidate", place, content)
        if good.returncode:
            return Signature(present=True, problem=f"it is not a signature of this certificate: {_reason(good)}")
        named = _KEY.search(good.stdout.decode(errors="replace"))
        key = f"{named[1]} key {named[2]}" if named else "an unknown key"
        if signers is None:
            return Signature(present=True, key=key)
        return _signed_by(place, content, key, signers, revoked)


def _signed_by(place: Path, content: bytes, key: str, signers: Path, revoked: Path | None) -> Signature:
    """Who signed, by the file of allowed signers."""
    known = _ask("find-principals", place, content, "-f", str(signers))
    if known.returncode:
        return Signature(present=True, key=key, problem=f"{signers} does not allow {key}: {_reason(known)}")
    why = ""
    for name in known.stdout.decode(errors="replace").splitlines():
        allowed = _ask("verify", place, content, "-f", str(signers), "-I", name)
        if allowed.returncode:
            why = _reason(allowed)
        elif (
            revoked is not None
            and _ask("verify", place, content, "-f", str(signers), "-I", name, "-r", str(revoked)).returncode
        ):
            why = f"it is revoked by {revoked}, or that is not a file of revoked keys"
        else:
            return Signature(present=True, signer=name, key=key)
    return Signature(present=True, key=key, problem=f"{key} is not accepted: {why or 'no signer is named'}")


def _ask(question: str, signature: Path, content: bytes, *more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [_program(), "-Y", question, "-n", NAMESPACE, "-s", str(signature), *more],
        input=content,
        capture_output=True,
        timeout=_SECONDS,
        check=False,
    )


def _reason(answer: subprocess.CompletedProcess[bytes]) -> str:
    """The first line that ssh-keygen gives as a reason."""
    lines = answer.stderr.decode(errors="replace").split("\n")
    return next((line.strip().rstrip(".")[:200] for line in lines if line.strip()), "ssh-keygen gives no reason")


def _program() -> str:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise SignatureFailed("ssh-keygen is not installed. Fix: install OpenSSH's client.")
    return program
