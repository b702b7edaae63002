r"""Numbers and names as people read them.

>>> number(0.00001), number(1234567.0), number(0.9072), number(-0.004, places=2)
('0.00001', '1,234,567', '0.907', '0')
>>> percent(0.731), percent(0.0004), percent(0.99996)
('73%', '0.04%', 'nearly 100%')
>>> whole_options("<b> --quick")
Markup('&lt;b&gt; <span class="whole">--quick</span>')
>>> coded("install the extra `fid` <b>")
Markup('install the extra <code>fid</code> &lt;b&gt;')
>>> name("age\u202e<b>", most=12)
'age\ufffd<b>'
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

MINUS, TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
_HIDDEN = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
"""Kinds of characters that show nothing, or turn the direction of the text around them."""


def number(value: float, *, places: int | None = None) -> str:
    """Three digits that count, and no more than `places` decimals; thousands apart, no exponent between a millionth and a
    billion, no sign before zero.
    """
    if places is not None:
        value = round(value, places)
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    size = abs(value)
    if size >= 1e9 or 0 < size < 1e-6:
        return _exponent(value)
    if size >= 1000 or value == int(value):
        return f"{value:z,.0f}".replace("-", MINUS)
    text = f"{value:.{2 - math.floor(math.log10(size))}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", MINUS)


def _exponent(value: float) -> str:
    digits, power = f"{value:.2e}".split("e")
    digits = digits.rstrip("0").rstrip(".").replace("-", MINUS)
    return f"{digits} {TIMES} 10{str(int(power)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def percent(share: float) -> str:
    """A share between 0 and 1, as a percentage that never rounds to certainty."""
    if 0.995 <= share < 1:
        return f"{share:.1%}" if share < 0.9995 else "nearly 100%"
    return f"{number(float(f'{100 * share:.2g}'))}%"


def name(value: Any, *, most: int = 40) -> str:
    """A name from a schema or a file: nothing hidden in it, and no longer than `most` characters."""
    text = "".join("\ufffd" if unicodedata.category(sign) in _HIDDEN else sign for sign in str(value))
    return text if len(text) <= most else text[: most - 1] + "…"


def listed(items: Sequence[str], *, most: int = 5) -> str:
    """a, b and c; a long list is cut and counted."""
    if len(items) > most:
        return f"{', '.join(items[:most])} and {len(items) - most:,} more"
    return " and ".join((", ".join(items[:-1]), items[-1]) if len(items) > 1 else items)


def counted(count: int, one: str, many: str = "") -> str:
    """1 record, 2 records."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def coded(text: str) -> Markup:
    """Text in which what stands between backticks is code."""
    parts = re.split(r"`([^`]+)`", text)
    return Markup().join(Markup("<code>{}</code>").format(part) if i % 2 else part for i, part in enumerate(parts))


def whole_options(text: str) -> Markup:
    """Text for the page, its options kept whole: a browser would begin a line after a dash."""
    parts = re.split(r"((?<![\w-])--?[a-z][a-z-]*)", text)
    span = Markup('<span class="whole">{}</span>')
    return Markup("").join(span.format(part) if i % 2 else part for i, part in enumerate(parts))
