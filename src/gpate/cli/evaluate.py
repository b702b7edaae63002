"""`gpate evaluate`: how useful synthetic records are, how close to real ones, and whether they repeat training records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gpate.addresses import address_of
from gpate.cli.interrupt import on_interrupt
from gpate.cli.progress import progress
from gpate.cli.terminal import DOES_NOT_HOLD, HOLDS, Json, Quiet, hint, print_json
from gpate.errors import DataNotFound, InvalidValue, require_count

if TYPE_CHECKING:
    from gpate.datasets import Dataset
    from gpate.evaluation import EvaluationPlan, RealRecords
    from gpate.release import Release
    from gpate.schema import ImageSchema, TableSchema

_FILES = (".csv", ".parquet", ".npz")


@dataclass(frozen=True, kw_only=True)
class Sources:
    """What is evaluated, and where the real records come from."""

    release: Release | None
    schema: TableSchema | ImageSchema
    dataset: str
    train: str | Dataset
    test: str | Dataset


def evaluate(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            help="The folder release/ of a run; or synthetic records: a .csv, .parquet or .npz file, a folder of .parquet files or of "
            "images, or the address of a table."
        ),
    ],
    train: Annotated[
        str | None,
        typer.Option(
            help="The real records it was made from: a file, a folder, or an address, as `gpate fit` takes it."
        ),
    ] = None,
    test: Annotated[str | None, typer.Option(help="Real records that it was not made from.")] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="A benchmark's name; brings --train, --test and --schema. A release is recognised."),
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="For synthetic records: public facts about one, YAML.")] = None,
    n: Annotated[
        int | None,
        typer.Option("-n", "--n", help="For a release: size of a synthetic set; that of --train by default."),
    ] = None,
    generator_seeds: Annotated[int, typer.Option(help="For a release: how many synthetic sets to draw.")] = 2,
    classifier_seeds: Annotated[int, typer.Option(help="How often to train each classifier on a set.")] = 2,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A fast, lower-quality run: fewer records, fewer classifiers, one seed."),
    ] = False,
    attack: Annotated[
        bool, typer.Option("--attack", help="Also attack: infer from the synthetic records who was trained on.")
    ] = False,
    shadows: Annotated[
        int, typer.Option(help="For a release: models to fit for the attack, as it was fitted; even, from 4.")
    ] = 0,
    device: Annotated[str, typer.Option(help="For images: auto (a GPU if there is one), cpu or cuda.")] = "auto",
    flips: Annotated[
        bool | None,
        typer.Option(
            "--flips/--no-flips",
            help="For images: train cnn-wide on mirror images too; by default if images are in colour.",
            show_default=False,
        ),
    ] = None,
    append: Annotated[
        Path | None, typer.Option("-o", "--append", help="Add the result to this file, one JSON object per line.")
    ] = None,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Keep the scores of the real records for the next time.")
    ] = True,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Evaluate synthetic records against real ones: utility, fidelity, memorisation, and attacks on membership.

    The scores are confidential: computed from real records without noise. Keep them with the real records.

    It does not hold if training records are repeated, or if an attack refutes the claimed epsilon.

    Exit codes: 0 holds; 1 does not hold, the records must not be released; 2 usage error.
    """
    with progress("loading", quiet=quiet or as_json):
        from gpate.cache_files import cache_folder
        from gpate.cli.score_tables import show as print_scores
        from gpate.evaluation import EvaluationPlan, RealRecords, evaluate_records, evaluate_release
        from gpate.records.confidential import read_confidential
        from gpate.torch_utils import chosen_device

    for name, count in (("generator", generator_seeds), ("classifier", classifier_seeds)):
        require_count(f"--{name}-seeds", count, 1)
    _check_append(append)
    plan = EvaluationPlan(
        generator_seeds=tuple(range(generator_seeds)),
        classifier_seeds=tuple(range(classifier_seeds)),
        n=n,
        quick=quick,
        device=str(chosen_device(device)),
        attack=attack,
        shadows=shadows,
        flips=flips,
    )
    sources = _resolved(source, train=train, test=test, dataset=dataset, schema=schema)
    if n is not None and sources.release is None:
        raise InvalidValue("-n", n, "left out for synthetic records", "All of them are evaluated.")
    kept = cache_folder() if cache else None
    on_interrupt(
        ctx,
        f"Stopped: nothing was {'printed' if append is None else f'added to {append}'}. Run the same command again"
        + ("." if kept is None else f"; what was finished about the real records is kept in {kept}."),
    )
    with progress("reading records", quiet=quiet or as_json) as show:
        real = RealRecords(
            train=read_confidential(sources.train, sources.schema, split="train"),
            test=read_confidential(sources.test, sources.schema, split="test"),
            schema=sources.schema,
            name=sources.dataset,
        )
        show("evaluating")

        def step(done: int, total: int, part: str) -> None:
            show("evaluating", done, total)

        if (release := sources.release) is not None:
            refit = _refit(release, real, plan) if shadows else None
            found = evaluate_release(release, real, plan, cache=kept, refit=refit, on_progress=step)
        else:
            found = evaluate_records(
                _reader(source, sources.schema),
                real,
                replace(plan, generator_seeds=(0,)),
                subject=source if address_of(source) is not None else Path(source).name,
                cache=kept,
                on_progress=step,
            )
    if append is not None:
        found.append_to(append)
        on_interrupt(ctx, f"Stopped: the result is in {append}.")
    if as_json:
        print_json(found.to_json())
    else:
        print_scores(found)
        if append is not None:
            hint(f"Added to {escape(str(append))}.", quiet=quiet)
    raise typer.Exit(DOES_NOT_HOLD if found.must_not_be_released else HOLDS)


def _resolved(source: str, *, train: str | None, test: str | None, dataset: str | None, schema: Path | None) -> Sources:
    """Where schema and real records come from."""
    from gpate.datasets import benchmark_of
    from gpate.datasets import dataset as known
    from gpate.records import is_path
    from gpate.release import Release
    from gpate.schema import Schema

    release, path = None, Path(source)
    if is_path(source) and not path.exists():
        raise DataNotFound(f"There is no {source}. Fix: give a release folder or a file of synthetic records.")
    if path.is_file():
        if path.suffix.lower() not in _FILES:
            raise InvalidValue("source", source, f"a release folder or a {', '.join(_FILES)} file")
    elif path.is_dir() and not _has_records(path):
        is_run = not (path / "certificate.json").exists() and (path / "release").is_dir()
        release = Release.load(path / "release" if is_run else path)
    if release is not None and schema is not None:
        raise InvalidValue("--schema", str(schema), "left out for a release", "It brings its own.")
    if dataset is not None and schema is not None:
        raise InvalidValue("--schema", str(schema), "left out with --dataset", "A benchmark brings its own.")
    if release is not None:
        facts = release.schema
    elif schema is not None or dataset is not None:
        facts = Schema.load(schema) if schema is not None else known(str(dataset)).schema
    else:
        fix = "Fix: --schema FILE.yaml, the one they were made with; or --dataset NAME for a benchmark."
        raise InvalidValue("--schema", None, f"given for synthetic records such as {source}", fix)
    name = dataset or benchmark_of(facts)
    if dataset is not None and (train is not None or test is not None):
        raise InvalidValue("--train and --test", [train, test], "left out with --dataset")
    if dataset is not None and known(dataset).schema != facts:
        raise InvalidValue("--dataset", dataset, "the one whose schema the release has", "Give --train and --test.")
    if train is not None and test is not None:
        return Sources(release=release, schema=facts, dataset=Path(train).stem, train=train, test=test)
    if name is None or train is not None or test is not None:
        raise InvalidValue("--train and --test", [train, test], "both given, unless the data are a known benchmark")
    return Sources(release=release, schema=facts, dataset=name, train=known(name), test=known(name))


def _has_records(folder: Path) -> bool:
    """Whether a folder has synthetic records, .parquet files or images, and is no release and no run."""
    from gpate.records.confidential import has_images

    if any(folder.glob("*.parquet")):
        return True
    is_release = any((place / "certificate.json").exists() for place in (folder, folder / "release"))
    return not is_release and has_images(folder)


def _reader(path: str, schema: TableSchema | ImageSchema) -> Callable[[int], Any]:
    """Reads the synthetic records when they are evaluated: what is wrong with them is then the reason of each missing score."""
    from gpate.records.confidential import read_confidential
    from gpate.release.output_files import class_folders
    from gpate.schema import TableSchema

    # Synthetic records have no ids of rows or units, and may lack a class, which a table to learn from may not.
    facts: TableSchema | ImageSchema
    if isinstance(schema, TableSchema):
        facts = replace(schema, row_id=None, unit=None, cost=None, target=None)
    else:
        facts = replace(schema, row_id=None, unit=None)
        folders = class_folders(schema.classes)
        if folders and all((Path(path) / name).is_dir() for name in folders):  # as `gpate sample` names them
            facts = replace(facts, classes=tuple(folders))
    return lambda seed: read_confidential(path, facts)


def _refit(release: Release, real: RealRecords, plan: EvaluationPlan) -> Callable[[Any, int], Any]:
    """How shadow models are fitted: as the release was, with as many synthetic records."""
    from gpate.evaluation.record_sets import size
    from gpate.refit import refitter

    return refitter(
        release.settings,
        release.schema,
        epsilon=release.certificate.epsilon,
        delta=release.certificate.delta,
        n=plan.n or size(real.train),
        device=plan.device,
    )


def _check_append(path: Path | None) -> None:
    """Before minutes of work: the file must be writable, and not inside a release."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise InvalidValue("--append", str(path), "in a folder that exists", f"Fix: mkdir -p {path.parent}")
    if (path.parent / "certificate.json").exists() or path.parent.resolve().name == "release":
        raise InvalidValue("--append", str(path), "outside of a release", "Scores are confidential.")
