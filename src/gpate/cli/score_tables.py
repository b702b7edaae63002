"""An evaluation on the terminal: what was evaluated, a table for each group of scores, the verdicts and the notes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from gpate.accounting.guesses import most_hits
from gpate.cli.terminal import console
from gpate.evaluation.findings import ColumnFinding, PairFinding, Verdict, counted_verdicts
from gpate.evaluation.results import FALSE_ALARMS, HEADLINE_CLASSIFIERS, SHOWN_TIMES, Evaluation, Membership, Score
from gpate.evaluation.titles import title

VERDICTS: dict[Verdict, str] = {"close": "green", "differs": "yellow", "far off": "red"}
WORST = 8
"""Columns that are named."""

GROUPS = {
    "utility": "Utility: trained on the synthetic records, tested on real ones",
    "fidelity": "Fidelity: synthetic records, and real training records, against real test records",
    "quality": "Quality of the images",
    "memorisation": "Memorisation: synthetic records against the training records",
}


def show(found: Evaluation) -> None:
    """Prints an evaluation for people."""
    console.print(f"\n[bold]{escape(found.subject)}[/] against [bold]{escape(found.dataset)}[/]", highlight=False)
    for line in _facts(found):
        console.print(f"[dim]{escape(line)}[/]", highlight=False, soft_wrap=True)
    synthetic = [s for s in found.scores if s.source == "synthetic"]
    if not any(s.values for s in synthetic):
        console.print(f"\n[bold red]No score at all[/]: {escape(next(iter(_reasons(synthetic)), ''))}", soft_wrap=True)
        return
    for group, heading in GROUPS.items():
        scores = [s for s in found.scores if s.group == group]
        if any(s.values for s in scores):
            _print(heading, *(_grids(scores, found.headline) if group == "utility" else [_list(scores)]))
            if group == "utility":
                _headline(found)
        if group == "fidelity" and found.columns:
            _findings(found)
    _verdict(found)
    if found.membership is not None:
        _membership(found, found.membership)
    for reason, names in _reasons(found.scores).items():
        console.print(f"[yellow]{escape(', '.join(names))}[/]: {escape(reason)}", highlight=False, soft_wrap=True)
    for note in found.notes:
        if not note.startswith("MEMORISED"):
            console.print(f"[dim]Note: {escape(note)}[/]", highlight=False, soft_wrap=True)
    caveat = "These scores are confidential: computed from real records without noise."
    console.print(f"[dim]{caveat}[/]", highlight=False, soft_wrap=True)


def _print(heading: str, *tables: Table) -> None:
    console.print(f"\n[bold]{heading}[/]", highlight=False, soft_wrap=True)
    for table in tables:
        console.print(table, highlight=False)


def _facts(found: Evaluation) -> list[str]:
    claim = found.privacy
    lines = []
    if claim:
        lines.append(
            f"epsilon {claim['epsilon']}, delta {claim['delta']:g} ({claim['accountant']}; {claim['neighbours']})"
            + (f", recipe {found.recipe}" if found.recipe else "")
        )
        if claim.get("not_for_release"):
            lines.append(f"NOT FOR RELEASE: {'; '.join(claim['not_for_release'])}")
    else:
        lines.append("A bare file: nothing is known about its privacy.")
    sizes = ", ".join(f"{count:,} {name}" for name, count in found.sizes.items())
    seeds = " x ".join(f"{len(seeds)} {name} seed{'s' * (len(seeds) > 1)}" for name, seeds in found.seeds.items())
    lines.append(f"{sizes} records; {seeds}; {found.seconds:.0f} s{'; quick mode' if found.quick else ''}")
    return lines


def _number(score: Score | None) -> str:
    if score is None or not score.values:
        return "-" if score is not None else ""
    times, spread = SHOWN_TIMES.get(score.metric, 1), len(score.values) > 1
    places = 1 if times > 1 else 3
    return f"{times * score.mean:z.{places}f}" + (f" [dim]± {times * score.std:.{places}f}[/]" if spread else "")


def _headline(found: Evaluation) -> None:
    """The lower accuracy of the two CNNs of images, in a line under the table."""
    headline = found.headline
    if headline is None:
        return
    both = all((s := found.find("accuracy", name)) is not None and s.values for name in HEADLINE_CLASSIFIERS)
    real = found.find(headline.metric, headline.subject, "real")
    ceiling = f", [green]real {real.mean:.3f}[/]" if real is not None and real.values else ""
    console.print(
        f"[bold]Headline: accuracy {_number(headline)}[/]{ceiling} ({headline.subject}{', the lower of two' * both})",
        highlight=False,
        soft_wrap=True,
    )


def _grids(scores: Sequence[Score], headline: Score | None) -> list[Table]:
    """All metrics in one grid, or as many at a time as the terminal has room for."""
    metrics, anywhere = list(dict.fromkeys(s.metric for s in scores)), console.options.update(max_width=10_000)
    for each in range(len(metrics), 0, -1):
        parts = [metrics[start : start + each] for start in range(0, len(metrics), each)]
        grids = [_grid([s for s in scores if s.metric in part], headline) for part in parts]
        if each == 1 or all(console.measure(grid, options=anywhere).maximum <= console.width for grid in grids):
            break
    return grids


def _grid(scores: Sequence[Score], headline: Score | None) -> Table:
    """A row for each classifier, a pair of columns for each metric; means under their families, the headline's in bold."""
    metrics = list(dict.fromkeys(s.metric for s in scores))
    table = Table(box=SIMPLE_HEAD, header_style="", pad_edge=False)
    table.add_column("", no_wrap=True)
    for metric in metrics:
        table.add_column(title(metric), justify="right", header_style="bold", no_wrap=True)
        table.add_column("real", justify="right", style="green", header_style="green", no_wrap=True)
    by_name = {(s.metric, s.subject, s.source): s for s in scores}
    subjects = [
        subject
        for subject in dict.fromkeys(s.subject for s in scores)
        if any(s.values for s in scores if s.subject == subject)
    ]
    for subject in subjects:
        cells = []
        for metric in metrics:
            cells.append(_number(by_name.get((metric, subject, "synthetic"))))
            real = by_name.get((metric, subject, "real"))
            cells.append(f"{real.mean:z.3f}" if real is not None and real.values else "-")
        mean = subject.endswith("mean")
        bold = mean or (headline is not None and headline.subject == subject)
        table.add_row(escape(subject), *cells, style="bold" if bold else None, end_section=mean)
    return table


def _list(scores: Sequence[Score]) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="", pad_edge=False)
    table.add_column("")
    table.add_column("synthetic", justify="right", header_style="bold")
    table.add_column("real", justify="right", style="green", header_style="green")
    table.add_column("better", style="dim")
    for metric, subject in dict.fromkeys((s.metric, s.subject) for s in scores):
        sides = {s.source: s for s in scores if (s.metric, s.subject) == (metric, subject)}
        if metric == "memorised" or not any(s.values for s in sides.values()):
            continue  # the verdict says it
        larger = next(iter(sides.values())).larger_is_better
        label = title(metric) + (f" ({subject})" if subject else "")
        direction = "" if larger is None else "higher" if larger else "lower"
        table.add_row(escape(label), _number(sides.get("synthetic")), _number(sides.get("real")), direction)
    return table


def _findings(found: Evaluation) -> None:
    """Which columns and pairs are not close, the worst first."""
    counted = counted_verdicts(each.verdict for each in found.columns)
    said = ", ".join(f"[{VERDICTS[verdict]}]{words}[/]" for verdict, words in counted.items())
    order = list(VERDICTS)
    worst = sorted(
        (each for each in found.columns if each.verdict != "close"),
        key=lambda each: (-order.index(each.verdict), -each.distance),
    )
    console.print(f"[bold]Columns, one by one[/]: {said}", highlight=False, soft_wrap=True)
    if worst:
        console.print(_named("column", [((each.column,), each) for each in worst[:WORST]]), highlight=False)
    if len(worst) > WORST:
        console.print(f"[dim]and {len(worst) - WORST} more; all are in --json and --append[/]", highlight=False)
    if found.pairs:
        pairs = [((each.first, each.second), each) for each in found.pairs]
        console.print(_named("pair", pairs), highlight=False)
    rule = (
        "close: as near to test records as 19 in 20 real samples of a tenth of the size. "
        "far off: further than 19 in 20 of a hundredth. real: real samples of the same size."
    )
    console.print(f"[dim]{rule}[/]", highlight=False, soft_wrap=True)


def _named(what: str, rows: Sequence[tuple[tuple[str, ...], ColumnFinding | PairFinding]]) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="", pad_edge=False)
    table.add_column(what, overflow="fold")
    table.add_column("", no_wrap=True)
    table.add_column("distance", justify="right", header_style="bold", no_wrap=True)
    table.add_column("real", justify="right", style="green", header_style="green", no_wrap=True)
    table.add_column("what differs", overflow="fold")
    for names, each in rows:
        verdict = f"[{VERDICTS[each.verdict]}]{each.verdict}[/]"
        figures = f"{each.distance:.3f}", f"{each.reference:.3f}"
        table.add_row(escape(", ".join(names)), verdict, *figures, escape("; ".join(each.words)))
    return table


def _verdict(found: Evaluation) -> None:
    if found.memorised is None:
        return
    console.print()
    if found.memorised:
        console.print(
            "[bold white on red] MEMORISED [/] Synthetic records are nearer to the training records than chance allows: "
            "do not release them.",
            highlight=False,
            soft_wrap=True,
        )
    else:
        console.print(
            "[bold green]No sign of memorisation[/]: synthetic records are as near to test records as to training records.",
            highlight=False,
            soft_wrap=True,
        )


def _membership(found: Evaluation, attack: Membership) -> None:
    claimed = found.privacy.get("epsilon")
    table = Table(box=SIMPLE_HEAD, header_style="", pad_edge=False)
    table.add_column("", no_wrap=True)
    table.add_column("AUC", justify="right", header_style="bold", no_wrap=True)
    for rate in FALSE_ALARMS:
        table.add_column(f"found at {100 * rate:g}%", justify="right", no_wrap=True)
    table.add_column("proves epsilon", justify="right", no_wrap=True)
    for each in attack.attackers:
        hits = {hit.false_alarms: f"{hit.share:.2%}" for hit in each.hits}
        cells = (hits.get(rate, "-") for rate in FALSE_ALARMS)
        table.add_row(each.name, f"{each.auc:.3f}", *cells, f"{each.bound:.3g}")
    if claimed is not None:
        most = (float(most_hits(a, epsilon=float(claimed), delta=attack.delta)) for a in FALSE_ALARMS)
        table.add_row("the claim allows", "", *(f"{each:.2%}" for each in most), f"{float(claimed):g}", style="dim")
    _print("Membership inference: who was trained on, inferred from synthetic records", table)
    who = f"{attack.members:,} members and {attack.others:,} others, {attack.reference:,} reference records"
    console.print(
        f"[dim]{who}, {attack.synthetic:,} synthetic, {attack.shadows} shadow models; {attack.seconds:.0f} s. "
        "Found: proportion of members, at that false positive rate.[/]",
        highlight=False,
        soft_wrap=True,
    )
    if found.refuted:
        said = f"At least epsilon {attack.bound:.3g} with confidence {attack.confidence:.0%}, claimed {float(claimed or 0):g}"
        console.print(
            f"[bold white on red] CLAIM REFUTED [/] {said}: do not release them.", highlight=False, soft_wrap=True
        )
    else:
        said = f"at least epsilon {attack.bound:.3g} is proved" if attack.bound else "nothing is proved about epsilon"
        word = "[bold green]Not refuted[/]" if claimed is not None else "[yellow]Nothing was claimed[/]"
        console.print(f"{word}: {said}.", highlight=False, soft_wrap=True)
    if attack.split_differs:
        console.print(
            "[yellow]The split was not random: training and test records differ by themselves, which may explain these figures.[/]",
            soft_wrap=True,
        )


def _reasons(scores: Sequence[Score]) -> dict[str, list[str]]:
    """Which scores are missing, by reason; those of the ceiling are not repeated."""
    out: dict[str, list[str]] = {}
    for s in scores:
        if s.reason is not None and s.source == "synthetic":
            names = out.setdefault(s.reason, [])
            name = s.subject or title(s.metric)
            if name not in names:
                names.append(name)
    return out
