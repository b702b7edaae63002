"""Texts with half a character of UTF-16 (lone surrogates), which pandas knows by their `repr`, are no other text."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpate.records.content_hash import hash_rows, table_content
from gpate.records.contribution import bounded, unit_hashes

KEY = bytes(range(16))
HALF = "\ud800"
PAIRS = [(HALF, repr(HALF)), (repr(HALF), HALF), (f"it's {HALF}", repr(f"it's {HALF}")), (HALF, "\udfff")]


@pytest.mark.parametrize("beside", [(), ("clinic",), (7,), (None,)], ids=str)
@pytest.mark.parametrize("pair", PAIRS, ids=ascii)
def test_two_units_are_two_whatever_is_beside_them(pair: tuple[str, str], beside: tuple[object, ...]) -> None:
    ids = np.array([*pair, *pair, *beside], dtype=object)
    words = unit_hashes(ids, key=KEY)
    alone = [unit_hashes(np.array([value], dtype=object), key=KEY)[0] for value in ids]
    np.testing.assert_array_equal(words, alone)
    kept = bounded(ids, np.arange(len(ids), dtype=np.uint64), most=1, key=KEY)
    assert len(kept[0]) == 2 + len(beside)


@pytest.mark.parametrize("pair", PAIRS, ids=ascii)
def test_a_record_has_its_own_hash_whatever_is_beside_it(pair: tuple[str, str]) -> None:
    frame = pd.DataFrame({"note": np.array([*pair, "plain", *pair], dtype=object)}, dtype=object)
    hashes = hash_rows(table_content(frame), key=KEY)
    alone = [hash_rows(table_content(frame[i : i + 1]), key=KEY)[0] for i in range(len(frame))]
    assert hashes.tolist() == alone
    assert len(set(alone)) == 3
