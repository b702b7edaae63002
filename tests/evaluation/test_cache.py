"""The cache: found again for the same records and settings only, written for its owner, repaired if it was torn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gpate.evaluation import cache as module
from gpate.evaluation.cache import Cache

RECORDS = np.arange(12).reshape(3, 4)


def test_an_entry_is_found_for_the_same_records_settings_and_version_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Cache(tmp_path, RECORDS).find({"a": 1}) is None
    assert Cache(tmp_path, RECORDS).numbers({"a": 1}, lambda: [1.0]) == [1.0]
    assert Cache(tmp_path, RECORDS).numbers({"a": 1}, lambda: [2.0]) == [1.0]
    others = (RECORDS + 1, RECORDS[:2], RECORDS.reshape(4, 3))
    assert [Cache(tmp_path, other).numbers({"a": 1}, lambda: [2.0]) for other in others] == [[2.0]] * 3
    assert Cache(tmp_path, RECORDS).numbers({"a": 2}, lambda: [2.0]) == [2.0]
    monkeypatch.setattr(module, "__version__", "another")
    assert Cache(tmp_path, RECORDS).find({"a": 1}) is None


def test_entries_are_their_owners_and_torn_ones_are_made_again(tmp_path: Path) -> None:
    folder, weights = tmp_path / "new", {"w": torch.arange(3.0)}
    cache = Cache(folder, RECORDS)
    cache.keep({"part": "numbers"}, {"x": 0.5})
    assert torch.equal(cache.tensors({"part": "weights"}, lambda: weights)["w"], weights["w"])
    files = list((folder / "evaluation").iterdir())
    assert sorted(path.suffix for path in files) == [".json", ".safetensors"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in (*files, folder / "evaluation"))
    for path in files:
        path.write_bytes(b"{")
    assert cache.find({"part": "numbers"}) is None
    again = cache.tensors({"part": "weights"}, lambda: {"w": torch.zeros(1)})
    assert again["w"].tolist() == [0.0]


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [Cache(None, RECORDS).numbers({}, lambda n=n: n) for n in (1, 2)] == [1, 2]
    assert list(tmp_path.iterdir()) == []
