"""Reading what others wrote with libraries that others wrote.

A parser that meets bytes it was not made for may raise almost anything: Pillow raises TypeError, pyarrow KeyError, zipfile
zlib.error, numpy TokenError. Whoever calls gpate is promised an error of `gpate.errors`. So every such call goes through
`attempt`, and its caller then raises an error of its own, to which the library's is not chained: that one may quote a
private value.

    >>> import json
    >>> attempt(lambda: json.loads("[1, 2]")), attempt(lambda: json.loads("[1, 2"))
    ([1, 2], None)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gpate.errors import GpateError

T = TypeVar("T")


def attempt(read: Callable[[], T]) -> T | None:
    """What `read` gives, or None if a library could not make sense of its input. Errors of gpate pass."""
    try:
        return read()
    except GpateError:
        raise
    except Exception:  # noqa: BLE001 - no list is complete: some libraries' errors are children of Exception itself
        return None
