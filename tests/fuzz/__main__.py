"""`python -m tests.fuzz TARGET --cases 100000 --seed 0`: many cases of hostile input; exit code 1 if one is a fault."""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.harness import run
from tests.fuzz.targets import TARGETS


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="the first case: to run one again, --start N --cases 1")
    parser.add_argument("--messages", action="store_true", help="print every message that was met")
    asked = parser.parse_args(arguments)
    faults = 0
    for name in TARGETS if asked.target == "all" else [asked.target]:
        outcome = run(TARGETS[name], cases=asked.cases, seed=asked.seed, start=asked.start)
        ends = ", ".join(f"{count} {end}" for end, count in outcome.ends.most_common())
        print(
            f"{name}: {outcome.cases} cases in {outcome.seconds:.0f} s, {len(outcome.faults)} faults; {ends}",
            flush=True,
        )
        for number, fault in outcome.faults:
            print(f"  case {number}: {fault}")
        for message in sorted(outcome.messages) if asked.messages else []:
            print(f"  {message}")
        faults += len(outcome.faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
