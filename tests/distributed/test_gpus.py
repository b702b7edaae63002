"""Ranks on a GPU: nccl where each has a GPU of its own, gloo where two share one. Skipped without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpate import verify
from gpate.accounting import read_ledger
from tests.distributed.launch import ranks

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def on_gpus(kind: str, run: Path, size: int, what: str) -> str:
    """A finished run on the GPU, and what its first rank said."""
    started = ranks(size, kind, str(run), what, DEVICE="cuda", CUDA_VISIBLE_DEVICES="0")
    said = [process.communicate() for process in started]
    assert [process.wait() for process in started] == [0] * size, [wrong[-2000:] for _, wrong in said]
    return said[0][0]


@pytest.mark.parametrize("kind", ["votes", "embedding"])
def test_a_rank_with_a_gpu_of_its_own_adds_up_by_nccl(kind: str, tmp_path: Path) -> None:
    said = on_gpus(kind, tmp_path / "run", 1, "nccl")
    sums = [line for line in said.splitlines() if line.startswith("added up on cuda")]
    assert sums
    assert all("cuda:nccl" in line and line.endswith(": same") for line in sums)


@pytest.mark.parametrize("kind", ["votes", "embedding"])
def test_two_ranks_share_a_gpu_and_pay_as_one_does(kind: str, tmp_path: Path) -> None:
    runs = [tmp_path / str(size) for size in (1, 2)]
    for size, run in enumerate(runs, 1):
        on_gpus(kind, run, size, "fit")
    one, two = (read_ledger(run / "release" / "ledger.jsonl") for run in runs)
    assert one.tally == two.tally
    assert {c.name for c in verify(runs[1] / "release").checks if not c.passed} == {
        c.name for c in verify(runs[0] / "release").checks if not c.passed
    }
