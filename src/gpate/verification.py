"""The whole verification of a release: its files, and the events that its method implies.

    >>> from gpate import verify
    >>> verify("tests/fixtures/0.1.0-table/release").passed
    True

A release knows no method (`gpate.release`), and a method no release; here the two meet.
"""

from __future__ import annotations

import os

from gpate.accounting import BudgetBook
from gpate.methods.finished_run import event_problems
from gpate.release import Verification
from gpate.release import verify as verify_files


def verify(
    folder: str | os.PathLike[str],
    *,
    budget: BudgetBook | str | os.PathLike[str] | None = None,
    signers: str | os.PathLike[str] | None = None,
    revoked: str | os.PathLike[str] | None = None,
) -> Verification:
    """Verify a release. An invalid one raises nothing: its checks say what is wrong.

    Args:
        folder: the release.
        budget: the budget book that its run was charged to, to check the entry that the certificate names.
        signers: OpenSSH's file of allowed signers; a release that none of them signed does not pass. Without it, it is not checked
            whose signature a release has.
        revoked: keys that are not accepted any more: public keys, one per line, or a KRL.

    Raises:
        ReleaseNotFound: there is no such folder.
        InvalidValue: the file of signers or of revoked keys does not exist.
    """
    return verify_files(folder, budget=budget, signers=signers, revoked=revoked, events=event_problems)
