"""`gpate verify`: recompute every claim of a release from its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from gpate.cli.progress import progress
from gpate.cli.terminal import DOES_NOT_HOLD, HOLDS, Json, Quiet, console, print_json
from gpate.errors import InvalidValue

if TYPE_CHECKING:
    from gpate.release import Verification


def verify(
    release: Annotated[Path, typer.Argument(help="The folder release/ of a run.")],
    for_release: Annotated[
        bool, typer.Option("--for-release", help="Fail also if the release is stamped not for release.")
    ] = False,
    budget: Annotated[
        Path | None, typer.Option(help="Budget book of the data set: check that it has this release's entry.")
    ] = None,
    signers: Annotated[
        Path | None,
        typer.Option(
            help="Fail also unless one of these signed it: OpenSSH's file of allowed signers (man ssh-keygen)."
        ),
    ] = None,
    revoked: Annotated[
        Path | None, typer.Option(help="Keys that are not accepted any more: public keys, one per line, or a KRL.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Check a release: files, hashes, ledger, events, epsilon, stamps, weights, signature. Exit code 1 if a check fails."""
    if (release / "private").is_dir() and (release / "release").is_dir():
        raise InvalidValue(
            "release", str(release), f"the release folder, {release / 'release'}", "This is the run folder."
        )
    with progress("verifying the release", quiet=quiet or as_json):
        from gpate.verification import verify as check  # seconds, the first time

        found = check(release, budget=budget, signers=signers, revoked=revoked)
    good = found.releasable if for_release else found.passed
    certificate = found.certificate
    if as_json:
        print_json(
            {
                "passed": found.passed,
                "releasable": found.releasable,
                "checks": [{"name": c.name, "passed": c.passed, "detail": c.detail} for c in found.checks],
                "certificate": None if certificate is None else certificate.to_json(),
                "signature": {
                    "present": found.signature.present,
                    "signer": found.signature.signer,
                    "key": found.signature.key,
                },
                "statement": certificate.statement() if certificate is not None and found.passed else None,
            }
        )
        raise typer.Exit(HOLDS if good else DOES_NOT_HOLD)
    table = Table(title=f"Release {escape(str(release))}", title_justify="left", title_style="bold")
    table.add_column("check", style="cyan", no_wrap=True)
    table.add_column("holds", justify="center")
    table.add_column("detail", overflow="fold")
    for row in found.checks:
        mark = "[green]yes[/]" if row.passed else "[bold red]NO[/]"
        table.add_row(escape(row.name), mark, escape(row.detail), style=None if row.passed else "red")
    console.print(table, highlight=False)
    if _is_newer(found):
        said = "A newer gpate wrote this release, in a format that this one cannot read. Fix: upgrade gpate, and verify it again."
        console.print(f"[bold white on red] NOT CHECKED [/] {said}", highlight=False)
        raise typer.Exit(DOES_NOT_HOLD)
    if not found.passed:
        failed = sum(not row.passed for row in found.checks)
        console.print(
            f"[bold white on red] DOES NOT HOLD [/] {failed} of {len(found.checks)} checks failed. "
            f"Do not trust the claims of this release. Fix: {_fix(release, found)}",
            highlight=False,
        )
        raise typer.Exit(DOES_NOT_HOLD)
    assert certificate is not None
    if not certificate.releasable:
        console.print("[bold white on red] NOT FOR RELEASE [/] All checks passed; the release carries this stamp.\n")
    else:
        console.print("[bold green]All checks passed.[/]\n")
    console.print(escape(certificate.statement()), highlight=False)
    console.print(f"\nFingerprint: {certificate.fingerprint}", highlight=False, soft_wrap=True)
    raise typer.Exit(HOLDS if good else DOES_NOT_HOLD)


def _is_newer(found: Verification) -> bool:
    """Whether nothing failed but what an older gpate cannot read, and what follows from that."""
    failed = [row.detail for row in found.checks if not row.passed]
    newer = [detail for detail in failed if "upgrade gpate" in detail]
    return bool(newer) and all(detail in newer or detail.startswith("not checked:") for detail in failed)


def _fix(release: Path, found: Verification) -> str:
    """What to do about the checks that failed."""
    run = release.resolve().parent
    if found.certificate is None and (run / "private" / "run.json").exists():
        return f"its run is not finished: `gpate fit --resume {escape(str(run))}`."
    failed = {row.name for row in found.checks if not row.passed}
    if failed == {"signature"}:
        return "ask its owner to sign it (`gpate sign`) with a key that the file of signers lists, and that was not revoked."
    if failed == {"budget book"}:
        return "give the book that its run was charged to, from a backup if entries were lost."
    return "remove files that do not belong to it, or get it again from its owner."
