"""`gpate sign`: an OpenSSH signature over the certificate of a release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from gpate.cli.progress import progress
from gpate.cli.terminal import DOES_NOT_HOLD, Json, Quiet, errors, hint, print_json


def sign(
    release: Annotated[Path, typer.Argument(help="The folder release/ of a run.")],
    key: Annotated[
        Path,
        typer.Option(
            help="An SSH key, e.g. ~/.ssh/id_ed25519; the .pub file of one that is in an agent or on hardware."
        ),
    ],
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Sign a release with an SSH key, after checking it: writes certificate.json.sig. Exit code 1 if a check fails."""
    with progress("loading", quiet=quiet or as_json):
        from gpate.release import signatures
        from gpate.verification import verify

    with progress("verifying the release", quiet=quiet or as_json):
        found = verify(release)
    wrong = [
        check for check in found.checks if not check.passed and check.name != "signature"
    ]  # an old one is replaced
    if wrong:
        if as_json:
            print_json({"release": str(release), "signed": False, "check": wrong[0].name, "detail": wrong[0].detail})
        errors.print(
            f"[bold white on red] NOT SIGNED [/] {escape(wrong[0].name)}: {escape(wrong[0].detail)}. "
            f"Fix: see `gpate verify {escape(str(release))}`.",
            soft_wrap=True,
            highlight=False,
        )
        raise typer.Exit(DOES_NOT_HOLD)
    made = signatures.sign(release, key=key)
    if as_json:
        print_json({"release": str(release), "signed": True, "key": made.key, "namespace": signatures.NAMESPACE})
    else:
        hint(f"Signed with {escape(str(made.key))}.", quiet=quiet)
