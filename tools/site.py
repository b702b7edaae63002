"""Hooks of MkDocs: adds what is generated, and pages that stand elsewhere in the repository, to the site.

`mkdocs.yml` names this file. Pages in docs/ link to files of the repository, as they do on any host of the code. Links to a page that is
part of the site lead there; other files are named without a link.
"""

from __future__ import annotations

import base64
import json
import os
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # MkDocs loads a hook from its path alone

from tools import reference  # noqa: E402

ELSEWHERE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "research/research-log.md": "explanation/research-log.md",
    "research/results/results.md": "explanation/results.md",
}
"""Pages outside docs/, with their place in the site."""

NOTEBOOKS = {
    "examples/notebooks/hospital.ipynb": "tutorial/hospital.md",
    "examples/notebooks/digits.ipynb": "tutorial/digits.md",
}
"""Notebooks, shown with the outputs that they are kept with."""

_LAST = "---\nsearch: {boost: 0.3}\n---\n"
"""Long records of what was done: searched, and listed after pages that explain."""

_LINK = re.compile(r"(?P<sign>!?)\[(?P<text>[^]]+)\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")
_CODE = re.compile(r"<code>([^<\n]{1,24})</code>")
"""Code of at most two thirds of a phone's width."""

_placed: dict[str, str] = {}
"""Files of the repository that are part of the site, with their place in it."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the generated pages, those from elsewhere, and their pictures."""
    for path, text in reference.pages().items():
        files.append(File.generated(config, path, content=text))
    for source, path in ELSEWHERE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, path, content=_LAST + text))
        _placed[source] = path
        for match in _LINK.finditer(text):
            if match["sign"]:
                picture, place = _beside(source, match["path"]), _beside(path, match["path"])
                files.append(File.generated(config, place, abs_src_path=str(ROOT / picture)))
                _placed[picture] = place
    for source, path in NOTEBOOKS.items():
        text, plots = notebook(json.loads((ROOT / source).read_text(encoding="utf-8")), stem=Path(source).stem)
        files.append(File.generated(config, path, content=f"{text}\nThe notebook is `{source}` in the repository.\n"))
        for name, content in plots.items():
            files.append(File.generated(config, _beside(path, name), content=content))
        _placed[source] = path
    return files


def notebook(found: dict[str, Any], *, stem: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as a page: its text, code and outputs, and the plots by file name."""
    parts, plots = [], {}
    for cell in found["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{stem}-{1 + len(plots)}.png"
                plots[name] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![The plot of the cell above]({name})")
            else:
                parts.append("```text\n" + "".join(output.get("text") or data["text/plain"]).rstrip() + "\n```")
    return "\n\n".join(parts) + "\n", plots


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links of the repository as links of the site."""
    _ = config
    here = page.file.src_uri
    source = next((name for name, path in _placed.items() if path == here), f"docs/{here}")

    def linked(match: re.Match[str]) -> str:
        target = _beside(source, match["path"])
        place = _placed.get(target) or target.removeprefix("docs/")
        if files.get_file_from_path(place) is not None:
            path = os.path.relpath(place, posixpath.dirname(here) or ".")
            return f"{match['sign']}[{match['text']}]({path}{match['anchor'] or ''})"
        if (ROOT / target).exists() and not match["sign"]:  # a file of the repository
            return match["text"] if "`" in match["text"] else f"{match['text']} (`{target}`)"
        return match[0]  # leads nowhere: MkDocs says so

    blocks = re.split(r"(^```.*?^```$)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else _LINK.sub(linked, part) for part in blocks)


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Short code in a sentence stays on one line: a browser would break `--set` after a hyphen."""
    _ = page, config, files
    return _CODE.sub(r'<code class="whole">\1</code>', html)


def _beside(page: str, path: str) -> str:
    """What a relative path means on a page."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
