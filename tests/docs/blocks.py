"""Runs the code blocks of a page in Markdown, in order, in one folder and one process of its own.

| block | what is done |
|---|---|
| yaml | a file, named in the comment of its first line |
| python | run as a program |
| text | a picture: nothing; below `<!-- printed by the block above -->`, what was printed (`missing_lines`) |
| without a language | every line that starts with `gpate` is run; there must be one, unless the block holds `make` targets |

A block that cannot be run here says why, in the line above it: `<!-- not run in tests: REASON -->`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from tests.processes import run

_BLOCK = re.compile(
    r"(?:^<!-- not run in tests: (?P<why>[^\n]+?) -->\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$",
    flags=re.DOTALL | re.MULTILINE,
)


def blocks(text: str) -> list[tuple[str, str, str | None]]:
    """Language, content, and why it is not run (None if it is), of every block."""
    found = [(match["language"], match["body"], match["why"]) for match in _BLOCK.finditer(text)]
    assert 2 * len(found) == len(re.findall(r"^ *```", text, flags=re.MULTILINE)), "a fence without its end"
    return found


def printed(text: str) -> list[str]:
    """The blocks of a page that say what was printed."""
    return re.findall(
        r"^<!-- printed by the block above -->\n```text\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE
    )


def missing_lines(shown: str, output: str) -> list[str]:
    """Lines of a block that do not stand in the output in the same order, whatever the numbers and spaces in them.

    Noise makes other numbers in every run. A line of three dots stands for what the page leaves out.
    """
    left = [_loose(line) for line in output.splitlines()]
    missing = []
    for line in shown.splitlines():
        if not line.strip() or line.strip() == "...":
            continue
        if _loose(line) in left:
            left = left[left.index(_loose(line)) + 1 :]
        else:
            missing.append(line)
    return missing


def _loose(line: str) -> str:
    return re.sub(r"\d[\d,.]*(e-?\d+)?", "#", " ".join(line.split()))


def commands(block: str) -> list[list[str]]:
    return [shlex.split(line, comments=True) for line in block.splitlines() if line.startswith("gpate ")]


def run_blocks(chosen: Sequence[tuple[str, str]], folder: Path) -> str:
    """Runs (language, content) one after the other; what they print."""
    done = run(_run_all, list(chosen), cwd=folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def _run_all(chosen: Sequence[tuple[str, str]]) -> None:
    for language, body in chosen:
        _run_here(language, body)


def _run_here(language: str, body: str) -> None:
    if language == "yaml":
        Path(body.splitlines()[0].removeprefix("# ")).write_text(body)
    elif language == "python":
        exec(compile(body, "<block>", "exec"), {"__name__": "__main__"})
    elif language != "text":
        assert commands(body) or re.search(r"^make ", body, flags=re.MULTILINE), f"nothing to run in:\n{body}"
        for command in commands(body):
            _command(command)


def _command(words: list[str]) -> None:
    """As the shell would, but not in another process."""
    from tests.command import gpate  # loads what looks at its terminal

    code = gpate(*words[1:])
    assert not code, f"{shlex.join(words)} ended with code {code}"
