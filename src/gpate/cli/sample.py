"""`gpate sample`: write synthetic records from a release to a file."""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from gpate.addresses import address_of
from gpate.cli.interrupt import on_interrupt
from gpate.cli.progress import progress
from gpate.cli.terminal import Json, Quiet, errors, hint, print_json
from gpate.errors import InvalidValue, require_count


def sample(
    ctx: typer.Context,
    release: Annotated[Path, typer.Argument(help="The folder release/ of a run.")],
    n: Annotated[int, typer.Option("-n", "--number", help="Number of records.")],
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            help=".parquet, .csv, a folder of .parquet parts, duckdb:///FILE?table=NAME or postgresql://USER@HOST/DATABASE?table=NAME for "
            "tables; .npz, .png (a grid) or a folder for images.",
        ),
    ],
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="COLUMN=VALUE, or COLUMN=LOWER..UPPER for numbers and times; class=NAME for images. May be repeated."
        ),
    ] = None,
    balanced: Annotated[bool, typer.Option("--balanced", help="Equal numbers of each class.")] = False,
    soft_labels: Annotated[
        bool,
        typer.Option("--soft-labels", help="Beside each image, the probability of every class (.npz)."),
    ] = False,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same records.")] = None,
    device: Annotated[
        str,
        typer.Option(help="For images: auto (a GPU if there is one), cpu or cuda. Images are the same up to rounding."),
    ] = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Sample synthetic records from a release: post-processing, without further privacy cost."""
    require_count("-n", n, 1)
    with progress("loading", quiet=quiet or as_json):
        from gpate.release import Release
        from gpate.release.conditions import label_name, parse_condition
        from gpate.release.output_files import check_output, format_of, write_records
        from gpate.release.output_tables import check_table, write_table
        from gpate.schema import ImageSchema, TableSchema
        from gpate.streams import Streams
        from gpate.torch_utils import chosen_device

    address, path = address_of(output), Path(output)
    with progress("verifying the release", quiet=quiet or as_json):
        place, loaded = chosen_device(device), Release.load(release)
        if isinstance(loaded.schema, ImageSchema):
            loaded.to(place)
        _warn_if_unverified(release)
    pairs = [parse_condition(loaded.schema, text) for text in where or []]
    conditions = dict(pairs)
    if len(conditions) < len(pairs):
        raise InvalidValue("--where", where, "given once for each column", "A range is written LOWER..UPPER.")
    if balanced and label_name(loaded.schema) in conditions:
        asked = " ".join(["--balanced", *(f"--where {text}" for text in where or [])])
        fix = "Fix: leave one of the two out: --where takes one class, --balanced equal numbers of all."
        raise InvalidValue("--balanced and --where CLASS", asked, "given one without the other", fix)
    labeller = getattr(loaded.spec, "labeller", None)
    if address is None:
        format_of(path, loaded.schema)
    if soft_labels and labeller is None:
        fix = "Fix: fit images of 16 pixels or more without --quick, or with `--set labelling.share=0.3`."
        raise InvalidValue("--soft-labels", str(release), "left out for a release without a labeller", fix)
    if soft_labels and (address is not None or path.suffix.lower() != ".npz"):
        raise InvalidValue("--soft-labels", output, "with an .npz file as output", "Fix: -o FILE.npz")
    if address is not None:  # before any record is sampled
        check_table(address, loaded.schema, force=force)
    else:
        check_output(path, force=force)
    used = Streams(seed).seed
    before = None if address is not None else _identity(path)

    def interrupted() -> str:
        if address is not None:
            return f"Stopped: {output} is as it was, or complete. Run the same command again, with --force."
        if _identity(path) != before:
            return f"Stopped: {output} is complete. To repeat it: --seed {used}"
        was = "was not written" if before is None else "is unchanged"
        return f"Stopped: {output} {was}. Run the same command again."

    on_interrupt(ctx, interrupted)
    start = time.perf_counter()
    with progress("sampling", quiet=quiet or as_json) as show:
        chunks = loaded.sample_chunks(n, where=conditions, seed=used, balanced=balanced)
        written = 0

        def advance(more: int) -> None:
            nonlocal written
            written += more
            show("sampling", written, n)

        if address is not None and isinstance(loaded.schema, TableSchema):
            write_table(address, chunks, schema=loaded.schema, force=force, on_progress=advance)
        else:
            write_records(
                path,
                chunks,
                n=n,
                schema=loaded.schema,
                force=force,
                columns=_grid_columns(n, loaded.spec.classes) if balanced else None,
                probabilities=loaded.probabilities if soft_labels else None,
                on_progress=advance,
            )
    seconds = time.perf_counter() - start
    certificate, acceptance, labelled = loaded.certificate, loaded.acceptance, loaded.labelled
    if as_json:
        print_json(
            {
                "output": output,
                "records": n,
                "seed": used,
                "seconds": round(seconds, 3),
                "epsilon": certificate.epsilon,
                "delta": certificate.delta,
                "not_for_release": list(certificate.not_for_release),
                **({"constraints": asdict(acceptance)} if acceptance.records else {}),
                **({"labeller": asdict(labelled)} if labelled.drawn else {}),
            }
        )
    else:
        guarantee = f"epsilon {certificate.epsilon:g}, delta {certificate.delta:g}"
        hint(
            f"Wrote {n:,} record{'' if n == 1 else 's'} to {escape(output)} in {seconds:.1f} s ({guarantee}). To repeat it: --seed {used}",
            quiet=quiet,
        )
        if acceptance.records:
            hint(f"All satisfy the constraints: {acceptance}.", quiet=quiet)
        if labelled.drawn:
            hint(f"Labelled by the release's labeller: {labelled}.", quiet=quiet)
    if not certificate.releasable and not as_json:
        reasons = escape("; ".join(certificate.not_for_release))
        errors.print(f"[bold white on red] NOT FOR RELEASE [/] [bold red]{reasons}[/]", soft_wrap=True, highlight=False)


def _warn_if_unverified(release: Path) -> None:
    """Says on standard error, with the first reason, that a release does not pass its verification. It can be sampled all the same."""
    from gpate.verification import verify

    wrong = next((check for check in verify(release).checks if not check.passed), None)
    if wrong is not None:
        errors.print(
            f"[bold white on red] DOES NOT HOLD [/] [bold red]{escape(wrong.name)}: {escape(wrong.detail)}[/] "
            f"The guarantee of this release cannot be relied on. Fix: see `gpate verify {escape(str(release))}`.",
            soft_wrap=True,
            highlight=False,
        )


def _identity(path: Path) -> int | None:
    """The inode at this path, which changes when another file is moved there; None if nothing is there."""
    try:
        return path.lstat().st_ino
    except FileNotFoundError:
        return None


def _grid_columns(n: int, classes: int) -> int:
    """Of a grid of as many images of each class: nearly a square, with whole classes side by side."""
    return classes * max(1, round(math.sqrt(n) / classes))
