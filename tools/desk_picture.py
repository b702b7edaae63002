"""The picture in docs/how-to/desk.md: the page of a new fit. Needs Chromium.

python tools/desk_picture.py docs/images/desk.png
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.desk.client import SCHEMA, filled, serving
from tests.report.browser import browser

from gpate.accounting import Budget, BudgetBook, new_run

PAGE = "/fit?data=visits.csv&schema=people.yaml&budget=clinic.budget"
COLOURS = 48


def main(target: Path) -> None:
    """Draws the page, cuts its footer off and keeps few colours."""
    with tempfile.TemporaryDirectory() as name:
        folder = filled(Path(name) / "clinic")
        (folder / "people.yaml").write_text(
            SCHEMA.replace("columns:", "unit: {column: patient_id, max_records: 3}\ncolumns:")
        )
        book = BudgetBook.create(folder / "clinic.budget", epsilon=4.0, delta=1e-6)
        relation = "all records of one unit added or removed: unit patient_id, at most 3 records count"
        asked = book.quote(Budget(epsilon=1.0, delta=1e-6))
        book.reserve(new_run(), asked, ledger="run/release/ledger.jsonl", purpose="fit", neighbours=relation)
        with serving(folder) as client, browser() as tab:
            tab.open(client.server.first_address)
            tab.open(client.server.address + PAGE, width=820)
            end = tab.run("document.querySelector('footer').getBoundingClientRect().top + scrollY")
            tab.screenshot(Path(name) / "page.png")
            with Image.open(Path(name) / "page.png") as whole:
                cut = whole.convert("RGB").crop((0, 0, whole.width, round(end)))
            cut.quantize(COLOURS).save(target, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
