"""`gpate account`: epsilon of a plan, noise for a budget, and the spend of a ledger."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from gpate.accounting import (
    ACCOUNTANTS,
    Budget,
    Event,
    Gaussian,
    GNMax,
    Laplace,
    NoisyMaxThreshold,
    PoissonSampledGaussian,
    accountant_for,
    accountant_named,
    calibrate,
    read_ledger,
)
from gpate.accounting.pate import gnmax_bound, log_q
from gpate.accounting.rdp import ORDERS
from gpate.cli.progress import progress
from gpate.cli.terminal import Json, Quiet, ending, print_facts, print_json
from gpate.errors import InvalidValue, require_count, require_probability

app = typer.Typer(
    no_args_is_help=True,
    help="Privacy accounting: epsilon from noise, noise from epsilon, the spend of a ledger.",
    epilog=ending(
        "gpate account gaussian --noise-multiplier 5 --count 10", "gpate account ledger run/release/ledger.jsonl"
    ),
)

Delta = Annotated[float, typer.Option(help="Delta of (epsilon, delta).")]
AccountantName = Annotated[str, typer.Option("--accountant", help="auto, " + ", ".join(ACCOUNTANTS) + ".")]
NEIGHBOURS_NOTE = "Neighbours: one record added or removed."


def _answer(
    events: list[Event],
    *,
    delta: float,
    accountant: str,
    quiet: bool,
    as_json: bool,
    title: str,
    extra: dict[str, Any] | None = None,
) -> None:
    chosen = accountant_for(events) if accountant == "auto" else accountant_named(accountant)
    with progress("computing epsilon", quiet=quiet or as_json):
        epsilon = chosen.epsilon(events, delta=delta)
    if as_json:
        print_json(
            {
                "epsilon": epsilon,
                "delta": delta,
                "accountant": chosen.name,
                "events": [e.to_json() for e in events],
                **(extra or {}),
            }
        )
    else:
        print_facts(title, {"epsilon": epsilon, "delta": delta, "accountant": chosen.title}, note=NEIGHBOURS_NOTE)


@app.command(
    epilog=ending(
        "gpate account gaussian --noise-multiplier 5 --count 10",
        "gpate account gaussian --noise-multiplier 1.1 --count 2000 --sampling-probability 0.01",
    )
)
def gaussian(
    noise_multiplier: Annotated[float, typer.Option(help="Noise standard deviation over L2 sensitivity.")],
    count: Annotated[int, typer.Option(help="Number of releases.")] = 1,
    sampling_probability: Annotated[
        float, typer.Option(help="Poisson sampling probability of a record, as in DP-SGD.")
    ] = 1.0,
    delta: Delta = 1e-5,
    accountant: AccountantName = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Epsilon of Gaussian releases, or of DP-SGD steps."""
    event: Event
    if sampling_probability == 1.0:
        event = Gaussian(sigma=noise_multiplier, count=count)
    else:
        event = PoissonSampledGaussian(
            noise_multiplier=noise_multiplier, sampling_probability=sampling_probability, count=count
        )
    _answer(
        [event], delta=delta, accountant=accountant, quiet=quiet, as_json=as_json, title=f"{count:,} Gaussian releases"
    )


@app.command(epilog=ending("gpate account laplace --scale 10 --count 5"))
def laplace(
    scale: Annotated[
        float, typer.Option(help="Scale b of the noise over L1 sensitivity; one release has epsilon 1/b.")
    ],
    count: Annotated[int, typer.Option(help="Number of releases.")] = 1,
    delta: Delta = 1e-5,
    accountant: AccountantName = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Epsilon of Laplace releases of integer counts."""
    events: list[Event] = [Laplace(scale=scale, count=count, grid=1.0)]
    _answer(
        events, delta=delta, accountant=accountant, quiet=quiet, as_json=as_json, title=f"{count:,} Laplace releases"
    )


@app.command(
    epilog=ending(
        "gpate account gnmax --teachers 4000 --threshold-sigma 3000 --vote-sigma 1000 --queries 35550 --answered 0.53"
    )
)
def gnmax(
    teachers: Annotated[int, typer.Option(help="Number of teachers.")],
    threshold_sigma: Annotated[float, typer.Option(help="Noise of the threshold check, sigma_1 of the paper.")],
    vote_sigma: Annotated[float, typer.Option(help="Noise of the votes, sigma_2 of the paper.")],
    queries: Annotated[int, typer.Option(help="Queries over the whole run, one per coordinate.")],
    answered: Annotated[float, typer.Option(help="Fraction of queries that pass the threshold.")] = 1.0,
    bins: Annotated[int, typer.Option(help="Bins of a histogram.")] = 10,
    agreement: Annotated[
        float | None,
        typer.Option(
            help="Also compute the data-dependent bound, assuming that this fraction of teachers votes for the top bin "
            "of each answered query and all others for one other bin. An assumption, not data."
        ),
    ] = None,
    delta: Delta = 1e-5,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Epsilon of Confident-GNMax by each accountant."""
    require_count("teachers", teachers, 1)
    require_count("queries", queries)
    if not 0.0 <= answered <= 1.0:
        raise InvalidValue("answered", answered, "a fraction between 0 and 1")
    votes = math.ceil(answered * queries)
    events: list[Event] = [
        NoisyMaxThreshold(sigma=threshold_sigma, count=queries),
        GNMax(sigma=vote_sigma, bins=bins, count=votes),
    ]
    best = accountant_for(events)
    with progress("computing epsilon", quiet=quiet or as_json):
        bounds = {name: each.epsilon(events, delta=delta) for name, each in ACCOUNTANTS.items()}
    shown = {f"{each.title} (data-independent)": bounds[name] for name, each in ACCOUNTANTS.items()}
    if agreement is not None:
        bounds["data-dependent-if"] = _what_if(
            agreement, teachers, threshold_sigma, vote_sigma, queries, votes, bins, delta
        )
        shown[f"data-dependent, assuming {agreement:.0%} agreement (RDP, tight)"] = bounds["data-dependent-if"]
    facts = {"teachers": teachers, "queries": queries, "answered": votes, "delta": delta}
    if as_json:
        print_json({"epsilon": bounds[best.name], "accountant": best.name, "bounds": bounds, **facts})
    else:
        print_facts(
            f"Confident-GNMax, {queries:,} queries of which {votes:,} answered, delta {delta:g}: epsilon",
            shown,
            note=NEIGHBOURS_NOTE,
        )


def _what_if(
    agreement: float,
    teachers: int,
    threshold_sigma: float,
    vote_sigma: float,
    queries: int,
    votes: int,
    bins: int,
    delta: float,
) -> float:
    """Data-dependent epsilon of a hypothetical ensemble; public, because no data enter."""
    if not 0.5 <= agreement <= 1.0:
        raise InvalidValue("agreement", agreement, "a fraction between 0.5 and 1")
    require_probability("delta", delta)
    top = round(agreement * teachers)
    miss = log_q([top, teachers - top, *[0] * (bins - 2)], vote_sigma)
    orders = ORDERS[ORDERS < 1e4]
    curve = np.array([votes * float(gnmax_bound(miss, sigma=vote_sigma, order=float(order))) for order in orders])
    curve += queries * orders / (2 * threshold_sigma**2)
    return float(np.min(curve + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)))


@app.command("calibrate", epilog=ending("gpate account calibrate --epsilon 1 --thresholds 35550 --votes 18842"))
def calibrate_command(
    epsilon: Annotated[float, typer.Option(help="Total epsilon.")],
    thresholds: Annotated[int, typer.Option(help="Number of threshold queries.")] = 0,
    votes: Annotated[int, typer.Option(help="Number of answered votes.")] = 0,
    threshold_ratio: Annotated[float, typer.Option(help="threshold_sigma over vote_sigma; 3 in the paper.")] = 3.0,
    releases: Annotated[
        int, typer.Option(help="Number of Gaussian releases of sensitivity 1, with the same noise as a vote.")
    ] = 0,
    sgd_steps: Annotated[int, typer.Option(help="Number of DP-SGD steps.")] = 0,
    sampling_probability: Annotated[float, typer.Option(help="Of a record, in each DP-SGD step.")] = 0.01,
    delta: Delta = 1e-5,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """The smallest noise with which a plan fits a budget."""
    plan: list[Event] = []
    if thresholds:
        plan.append(NoisyMaxThreshold(sigma=threshold_ratio, count=thresholds))
    if votes:
        plan.append(GNMax(sigma=1.0, bins=10, count=votes))
    if releases:
        plan.append(Gaussian(sigma=1.0, count=releases))
    if sgd_steps:
        plan.append(
            PoissonSampledGaussian(noise_multiplier=1.0, sampling_probability=sampling_probability, count=sgd_steps)
        )
    tolerance = 1e-4 if sgd_steps else 1e-9
    with progress("searching for the noise", quiet=quiet or as_json):
        found = calibrate(plan, Budget(epsilon=epsilon, delta=delta), tolerance=tolerance)
    scales = {type(event).__name__: getattr(event, event.scales[0]) for event in found}
    if as_json:
        print_json({"epsilon": epsilon, "delta": delta, "sigma": scales, "events": [e.to_json() for e in found]})
    else:
        print_facts(f"Smallest noise for epsilon {epsilon:g}, delta {delta:g}", scales, note=NEIGHBOURS_NOTE)


@app.command(epilog=ending("gpate account ledger run/release/ledger.jsonl"))
def ledger(
    path: Annotated[Path, typer.Argument(help="A ledger file.", exists=True, dir_okay=False)],
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Check a ledger's hash chain and recompute the epsilon spent."""
    with progress("checking the ledger", quiet=quiet or as_json):
        contents = read_ledger(path)
        budget, spent = contents.header.budget, contents.tally
        accountant = budget.accountant_for(spent)
        facts = {
            "epsilon spent": contents.spend,
            "epsilon allowed": budget.epsilon,
            "delta": budget.delta,
            "accountant": accountant.name,
            "noise": contents.header.noise,
            "neighbours": contents.header.neighbours,
            "lines": contents.head.line,
            "sealed": contents.sealed,
            "torn last line": contents.torn,
        }
    by_event = {type(event).__name__: count for event, count in spent.items()}
    if as_json:
        print_json(
            {
                **{name.replace(" ", "_"): value for name, value in facts.items()},
                "head": contents.head.chain,
                "events": by_event,
            }
        )
    else:
        counts = {f"{name} events": count for name, count in by_event.items()}
        print_facts("Ledger: the hash chain is intact", {**facts, **counts})
