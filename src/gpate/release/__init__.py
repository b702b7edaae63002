"""Releases: write, sign, verify, load and sample the files that are safe to publish. Does not import `gpate.records`."""

from gpate.release.certificate import Certificate, FileRecord
from gpate.release.constrained_rows import Acceptance
from gpate.release.load import Release
from gpate.release.signatures import Signature, sign
from gpate.release.verify import Check, Verification, verify
from gpate.release.write import write_release

__all__ = [
    "Acceptance",
    "Certificate",
    "Check",
    "FileRecord",
    "Release",
    "Signature",
    "Verification",
    "sign",
    "verify",
    "write_release",
]
