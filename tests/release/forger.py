"""A thorough forger: changes a release, and redoes chain, seal, spend, hashes and fingerprint, so that only what was changed can tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from gpate.accounting import Receipt, grid_for, parse_ledger
from gpate.accounting.hash_chain import GENESIS, body_of, linked
from gpate.release import Certificate, FileRecord
from gpate.release import release_files as files

Lines = list[dict[str, Any]]


def forge(
    folder: Path,
    *,
    header: Callable[[dict[str, Any]], object] = lambda _: None,
    lines: Callable[[Lines], Lines] = lambda lines: lines,
    config: Callable[[dict[str, Any]], object] = lambda _: None,
    schema: Callable[[str], str] = lambda text: text,
    **certificate: Any,
) -> None:
    """Change a release in place.

    Args:
        folder: the release.
        header: changes the ledger's header.
        lines: gives back the ledger's entries as they should be.
        config: changes config.json.
        schema: changes schema.yaml.
        certificate: fields of the certificate, instead of what the files now say.
    """
    first, *entries = [json.loads(line) for line in (folder / files.LEDGER).read_text().splitlines()]
    for line in (first, *entries):
        del line["chain"]
    header(first)
    kept = lines([line for line in entries if "event" in line])
    write_ledger(folder, [first, *kept, {"seal": {"entries": len(kept)}}])
    settings = json.loads((folder / files.CONFIG).read_text())
    config(settings)
    (folder / files.CONFIG).write_bytes(files.to_json(settings))
    text = schema((folder / files.SCHEMA).read_text())
    (folder / files.SCHEMA).write_text(text)
    recertify(folder, **certificate)


def write_ledger(folder: Path, contents: Lines) -> None:
    """A ledger of these lines, with an intact chain."""
    chain, written = GENESIS, []
    for body in map(body_of, contents):
        chain, line = linked(chain, body)
        written.append(line)
    (folder / files.LEDGER).write_bytes(b"".join(written))


def recertify(folder: Path, **changes: Any) -> None:
    """A certificate that says what the files say, but for the changes."""
    old = json.loads((folder / files.CERTIFICATE).read_text())
    raw = (folder / files.LEDGER).read_bytes()
    ledger = parse_ledger(raw, source="forged")
    budget = ledger.header.budget
    cost = yaml.safe_load((folder / files.SCHEMA).read_text()).get("cost") or {"epsilon": 0.0, "delta": 0.0}
    epsilon, delta = (getattr(budget, name) + cost[name] for name in ("epsilon", "delta"))  # also what does not add up
    said: dict[str, Any] = {
        "gpate_version": old["gpate_version"],
        "epsilon": epsilon,
        "delta": delta,
        "spend": ledger.spend,
        "accountant": budget.accountant_for(ledger.tally).name,
        "neighbours": ledger.header.neighbours,
        "noise": ledger.header.noise,
        "not_for_release": (),
        "head": Receipt(line=ledger.head.line, chain=ledger.head.chain),
        "files": {name: FileRecord.of((folder / name).read_bytes()) for name in files.CERTIFIED},
    }
    (folder / files.CERTIFICATE).write_bytes(Certificate(**{**said, **changes}).to_bytes())


def raised(line: dict[str, Any], factor: float) -> dict[str, Any]:
    """The line with more noise, on the grid that belongs to it."""
    event = dict(line["event"])
    for name in ("sigma", "scale", "noise_multiplier"):
        if name in event:
            event[name] *= factor
    if event["kind"] != "Laplace":
        event["grid"] = grid_for(event.get("sigma") or event["noise_multiplier"] * event["sensitivity"])
    return {**line, "event": event}


def changed(line: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The line with other fields of its event."""
    return {**line, "event": {**line["event"], **fields}}
