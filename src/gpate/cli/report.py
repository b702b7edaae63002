"""`gpate report`: one page about a run, for the people who decide about its release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gpate.cli.progress import progress
from gpate.cli.terminal import Json, Quiet, errors, hint, print_json
from gpate.errors import InvalidValue

if TYPE_CHECKING:
    from gpate.evaluation.results import Evaluation
    from gpate.schema import ImageSchema, TableSchema


def report(
    run: Annotated[Path, typer.Argument(help="A run folder, or the folder release/ of one.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The page, .html.")] = Path("report.html"),
    real: Annotated[
        str | None,
        typer.Option(
            help="Real records to compare with: a benchmark's name, a .csv, .parquet or .npz file, a folder of images."
        ),
    ] = None,
    evaluation: Annotated[
        Path | None, typer.Option(help="Results that `gpate evaluate --append` wrote, one JSON object per line.")
    ] = None,
    release: Annotated[
        bool, typer.Option("--release", help="The page that is safe to publish: it is made from the release alone.")
    ] = False,
    signers: Annotated[
        Path | None, typer.Option(help="OpenSSH's file of allowed signers: the page names who signed the release.")
    ] = None,
    revoked: Annotated[Path | None, typer.Option(help="Keys that are not accepted any more.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write a page: the guarantee in words, what was spent, real against synthetic, usefulness, warnings."""
    with progress("loading", quiet=quiet or as_json):
        from gpate.release import Release
        from gpate.release.output_files import check_output
        from gpate.report import write_report
        from gpate.report.page import release_folder
        from gpate.verification import verify

    if output.suffix.lower() not in (".html", ".htm"):
        raise InvalidValue("output", str(output), "a name that ends in .html")
    check_output(output, force=force)
    if evaluation is not None and not evaluation.is_file():
        raise InvalidValue("--evaluation", str(evaluation), "a file that `gpate evaluate` wrote")
    with progress("verifying the release", quiet=quiet or as_json) as show:
        schema = Release.load(release_folder(run)).schema
        verification = verify(release_folder(run), signers=signers, revoked=revoked)
        show("reading records")
        held = None if real is None or release else _records(real, schema)
        found = [] if evaluation is None or release else _evaluations(evaluation)
        show("writing the page")
        write_report(run, output, real=held, evaluations=found, release=release, verification=verification)
    inside = held is not None or bool(found)
    if as_json:
        print_json({"output": str(output), "release": release, "unnoised": inside, "bytes": output.stat().st_size})
        return
    hint(f"Wrote {escape(str(output))} ({output.stat().st_size / 1024:,.0f} KiB).", quiet=quiet)
    if release and (real is not None or evaluation is not None):
        hint("--real and --evaluation were left out: they are confidential.", quiet=quiet)
    if inside:
        warning = "[bold red]Confidential: it holds figures computed from real records without noise.[/]"
        errors.print(f"{warning} To publish: --release", soft_wrap=True, highlight=False)


def _evaluations(path: Path) -> list[Evaluation]:
    """The evaluations of a file, or an error that names the file."""
    from gpate.evaluation.results import read_evaluations

    try:
        return read_evaluations(path)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        rule, fix = "a file that `gpate evaluate` wrote", "Fix: write it again with --append."
        raise InvalidValue("--evaluation", str(path), rule, fix) from problem


def _records(source: str, schema: TableSchema | ImageSchema) -> Any:
    """Real records as the report takes them: a frame, or images and the names of their classes."""
    import numpy as np

    from gpate.records.confidential import read_confidential

    held = read_confidential(source, schema)
    if not isinstance(held, tuple) or held[1] is None:
        return held
    images, labels = held
    return images, np.array(schema.classes, dtype=object)[labels]
