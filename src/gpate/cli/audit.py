"""`gpate audit`: tests the guarantee of a recipe empirically and reports a lower bound on epsilon."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from gpate.cli.interrupt import on_interrupt
from gpate.cli.progress import progress
from gpate.cli.terminal import DOES_NOT_HOLD, HOLDS, Json, Quiet, console, hint, parse_setting, print_json
from gpate.errors import InvalidValue

if TYPE_CHECKING:
    from gpate.audit import Audit, Case, NoiseCheck, OneRun, RecipeGame, VotingGame

_SURE = 0.999
"""Confidence of the canary bound: it adds little to the probability of a false alarm."""


def audit(
    ctx: typer.Context,
    recipe: Annotated[
        str, typer.Option(help="A recipe of `gpate fit`, or `votes`: GNMax with worst-case teachers.")
    ] = "default",
    kind: Annotated[str, typer.Option(help="image or table: the built-in worst-case data sets.")] = "image",
    data: Annotated[Path | None, typer.Option(help="A file of your own, audited with and without one record.")] = None,
    schema: Annotated[Path | None, typer.Option(help="Schema of that file, or domain of the worst case.")] = None,
    record: Annotated[int, typer.Option(help="Index of that record in the file, from 0.")] = 0,
    max_records: Annotated[
        int | None,
        typer.Option(help="Play with all records of a person, of whom so many count, instead of one record."),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Claimed epsilon.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Claimed delta.")] = 1e-5,
    models: Annotated[int, typer.Option(help="Runs on each of the two data sets.")] = 200,
    confidence: Annotated[float, typer.Option(help="Confidence of the lower bound.")] = 0.95,
    statistic: Annotated[
        str,
        typer.Option(
            help="What the attacker sees: transcript (all released values), samples (synthetic records) or auto."
        ),
    ] = "auto",
    noise: Annotated[
        str, typer.Option(help="fast, or exact as in a release (slower; its sampler is tested too).")
    ] = "fast",
    change: Annotated[list[str] | None, typer.Option("--set", help="key=value: change one setting.")] = None,
    workers: Annotated[int, typer.Option(help="Number of processes.")] = 2,
    out: Annotated[Path | None, typer.Option(help="Folder for audit.json and audit.png.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Test a recipe's guarantee empirically: a lower bound on epsilon. Exit code 1 if the claim is refuted."""
    with progress("loading", quiet=quiet or as_json):
        from gpate.audit import RecipeGame, VotingGame, noise_checks, one_run, play, takes_canaries

    settings = dict(parse_setting(text) for text in change or [])
    game: RecipeGame | VotingGame
    if recipe == "votes":
        if data is not None or settings or max_records is not None:
            rule = "used without --data, --set and --max-records"
            raise InvalidValue("recipe", recipe, rule, "It has built-in teachers.")
        game = VotingGame(epsilon=epsilon, delta=delta, noise=noise)
    else:
        game = RecipeGame(
            case=_case(recipe, kind, data, schema, record, max_records),
            recipe=recipe,
            epsilon=epsilon,
            delta=delta,
            settings=settings,
            statistic=statistic,
            noise=noise,
        )
    with progress("fitting models", quiet=quiet or as_json) as show:
        found = play(
            game,
            models=models,
            confidence=confidence,
            workers=workers,
            on_trial=lambda done: show("fitting models", done, 2 * models),
        )
        show("testing the noise")
        played = [game.transcript(with_) for with_ in (False, True)] if isinstance(game, RecipeGame) else []
        checks = noise_checks(played)
        canaries = None
        if isinstance(game, RecipeGame) and takes_canaries(game):
            show("inserting canaries")
            canaries = one_run(
                epsilon=epsilon, delta=delta, recipe=recipe, settings=settings, noise=noise, confidence=_SURE
            )
    caught = found.caught or any(not check.passed for check in checks) or (canaries is not None and canaries.caught)
    facts = {
        **_facts(found, models),
        "recipe": recipe,
        "noise_source": noise,
        "noise": [check.to_json() for check in checks],
        "one_run": None if canaries is None else asdict(canaries),
        "caught": caught,
        "not_for_release": ["computed from real records, without noise"] if data is not None else [],
    }
    if out is not None:
        on_interrupt(ctx, f"Stopped: the files in {out} may be incomplete. Run the same command again.")
        _write(out, facts, found, private=data is not None)
        on_interrupt(ctx, f"Stopped: audit.json and audit.png in {out} are complete.")
    if as_json:
        print_json(facts)
    else:
        _show(found, checks, canaries, recipe=recipe, models=models, private=data is not None)
        if out is not None:
            hint(f"In {escape(str(out))}: audit.json, audit.png.", quiet=quiet)
    raise typer.Exit(DOES_NOT_HOLD if caught else HOLDS)


def _case(recipe: str, kind: str, data: Path | None, schema: Path | None, record: int, max_records: int | None) -> Case:
    from dataclasses import replace

    from gpate.audit import FileCase, WorstCase, blank_images, blank_table
    from gpate.datasets import schema_for
    from gpate.schema import PrivacyUnit

    if max_records is not None and schema is not None:
        raise InvalidValue("max_records", max_records, "left out with --schema", "Declare the unit in the schema.")
    if data is not None:
        return FileCase(schema=schema_for(schema), path=data, record=record)
    if schema is not None:
        return WorstCase(schema=schema_for(schema))
    if kind not in ("image", "table"):
        raise InvalidValue("kind", kind, "image or table")
    unit = None if max_records is None else PrivacyUnit(column="person", max_records=max_records)
    size = 16 if recipe == "default" else 8  # the least for which the default has all of its parts
    return WorstCase(schema=replace(blank_images(size) if kind == "image" else blank_table(), unit=unit))


def _facts(audit: Audit, models: int) -> dict[str, Any]:
    return {
        "epsilon": audit.epsilon,
        "delta": audit.delta,
        "confidence": audit.found.confidence,
        "models": models,
        "lower_bound": audit.bound,
        "lower_bound_any_mechanism": audit.found.epsilon,
        "lower_bound_gaussian": audit.found.gaussian_epsilon if audit.gaussian else None,
        "spend": audit.spend,
        "seconds": audit.seconds,
    }


def _show(
    audit: Audit, checks: list[NoiseCheck], canaries: OneRun | None, *, recipe: str, models: int, private: bool
) -> None:
    found = audit.found
    table = Table(title=f"Audit of {escape(recipe)}: {models} runs a side", title_justify="left", title_style="bold")
    table.add_column("claim", style="cyan")
    table.add_column("claimed", justify="right")
    table.add_column("at least", justify="right")
    table.add_column("verdict")
    claimed = f"epsilon {audit.epsilon:g}"
    table.add_row("epsilon, any mechanism", claimed, f"{found.epsilon:.3g}", _verdict(found.epsilon <= audit.epsilon))
    if audit.gaussian:
        holds = found.gaussian_epsilon <= audit.epsilon
        table.add_row("epsilon, by mu of the Gaussian", claimed, f"{found.gaussian_epsilon:.3g}", _verdict(holds))
    for check in checks:
        table.add_row(f"noise: {check.purpose}", "as in the ledger", f"p = {check.p_value:.2g}", _verdict(check.passed))
    if canaries is not None:
        table.add_row("epsilon, canaries in one run", claimed, f"{canaries.bound:.3g}", _verdict(not canaries.caught))
    console.print(table, highlight=False)
    console.print(
        f"Bounds hold with confidence {found.confidence:g}, at delta {audit.delta:g}. {audit.seconds:.0f} s, "
        f"{2 * models / audit.seconds:.1f} models per second. An audit can refute a claim, not prove it; more runs "
        "give a tighter bound.",
        highlight=False,
    )
    if private:
        console.print("[yellow]Note:[/] confidential: computed from your records without noise; not for release.")


def _verdict(holds: bool) -> str:
    return "[green]not refuted[/]" if holds else "[bold red]REFUTED[/]"


def _write(out: Path, facts: dict[str, Any], audit: Audit, *, private: bool) -> None:
    """Write the results; those of a user's own records are readable by the owner only."""
    import json

    from gpate.audit.plot import plot_audit

    out.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o777)
    files = (out / "audit.json", out / "audit.png")
    for path in files:
        path.touch()
        path.chmod(0o600 if private else 0o644)  # before anything is written
    files[0].write_text(json.dumps(facts, indent=2) + "\n")
    plot_audit(files[1], audit)
