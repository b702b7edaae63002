"""What may leave the building: written once, verified by anyone, sampled without limit. Cannot see `gpate.records`."""

from gpate.release.certificate import Certificate, FileRecord
from gpate.release.load import Release
from gpate.release.verify import Check, Verification, verify
from gpate.release.write import write_release

__all__ = ["Certificate", "Check", "FileRecord", "Release", "Verification", "verify", "write_release"]
