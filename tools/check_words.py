"""Check that text that people read uses standard terms: strings and docstrings of all packages, and all pages.

    python tools/check_words.py [ROOT]

Prints `file:line: "words found": write "replacement"` for each finding and exits with 1 if there is any.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

REPLACEMENTS = {
    r"mend(s|ed)?": "Fix:",
    r"not private": "confidential",
    r"try-outs?": "a fast, lower-quality run",
    r"promis(e|es|ed|ing)": "guarantee",
    r"judg(e|es|ed|ing)": "evaluate",
    r"reckon(s|ed)?": "compute",
    r"(is|are|was|were) told": "is reported",
    r"whoever": "anyone who",
    r"give or take": "+- (two standard deviations)",
    r"in any company": "independent of the batch",
    r"(leave|leaves) the building": "safe to publish",
    r"may (not )?leave": "safe to publish",
    r"(a|the|one|this|of) cards?": "GPU",
    r"(a|the|no) rooms?": "package",
    r"strangers?": "unknown files, untrusted input",
}
ALLOWED = ("credit card", "instead of `Mend:`")  # the subject of a data set, not a GPU; what was written before
"""Phrases in which a word above is right."""

PLACES = (
    *("src/**/*.py", "research/**/*.py", "benchmarks/**/*.py", "examples/**/*.py"),
    *("*.md", "docs/**/*.md", "research/**/*.md", "src/**/*.html"),
)

_WORDS = re.compile("|".join(rf"(?P<w{i}>\b{words}\b)" for i, words in enumerate(REPLACEMENTS)), re.IGNORECASE)
_ALLOWED = re.compile("|".join(map(re.escape, ALLOWED)), re.IGNORECASE)


def findings(text: str, first_line: int = 1) -> Iterator[tuple[int, str, str]]:
    """Line, words found and replacement, for each finding in a text that starts at `first_line`."""
    masked = _ALLOWED.sub(lambda match: "-" * len(match[0]), text)
    for match in _WORDS.finditer(re.sub(r"\s", " ", masked)):
        replacement = next(new for i, new in enumerate(REPLACEMENTS.values()) if match[f"w{i}"])
        yield first_line + text.count("\n", 0, match.start()), match[0], replacement


def findings_in_python(source: str) -> Iterator[tuple[int, str, str]]:
    """Findings in the string literals of a module, docstrings included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from findings(node.value, node.lineno)


def main(root: Path) -> int:
    """Print all findings below `root`; 1 if there is any."""
    count = 0
    for path in sorted(path for pattern in PLACES for path in root.glob(pattern)):
        text = path.read_text(encoding="utf-8")
        for line, words, replacement in findings_in_python(text) if path.suffix == ".py" else findings(text):
            sys.stdout.write(f'{path.relative_to(root)}:{line}: "{words}": write "{replacement}"\n')
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]))
