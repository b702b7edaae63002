"""Speed of codecs and feature maps: `python -m benchmarks.encoding`, or `make bench`.

Bars: a million rows of 15 columns decoded in under 4 s on one core; on a GPU, a thousand images scattered in under 20 ms. The
last column compares with reading the same tensor once, timed in turns in the same run.
"""

from __future__ import annotations

import torch

from benchmarks.tables import interleaved_seconds, keep, show
from gpate.features.scattering import Scattering
from gpate.schema import Schema
from gpate.schema.codec import TableCodec

ROWS, IMAGES = 1_000_000, 1000


def decoding() -> dict[str, float | int | str]:
    numbers = {f"n{i}": {"type": "numeric", "bounds": [0, 100]} for i in range(7)}
    texts = {f"c{i}": {"type": "categorical", "categories": [f"v{j}" for j in range(14)]} for i in range(7)}
    date = {"type": "datetime", "bounds": ["2000-01-01", "2020-01-01"], "missing": True}
    codec = TableCodec(Schema.from_dict({"kind": "table", "columns": {**numbers, **texts, "d": date}}))
    features = torch.rand(ROWS, codec.width)
    seconds = interleaved_seconds({"decode": lambda: codec.decode(features), "read": features.sum}, repeats=3)
    return row(f"{ROWS:,} rows x {len(codec.schema.columns)} columns decoded", seconds, "decode", 4.0)


def scattering(device: str) -> dict[str, float | int | str]:
    transform = Scattering((1, 28, 28))
    batch = torch.rand(IMAGES, 1, 28, 28, device=device)

    def scatter() -> None:
        transform(batch)
        if device == "cuda":
            torch.cuda.synchronize()

    seconds = interleaved_seconds({"scatter": scatter, "read": lambda: batch.sum().item()})
    return row(f"{IMAGES:,} images scattered, {device}", seconds, "scatter", 0.02 if device == "cuda" else None)


def row(what: str, seconds: dict[str, float], name: str, bar: float | None) -> dict[str, float | int | str]:
    times = seconds[name] / seconds["read"]
    return {"what": what, "ms": seconds[name] * 1e3, "bar ms": bar and bar * 1e3, "times reading once": times}


def main() -> None:
    torch.set_num_threads(1)
    rows = [decoding(), *(scattering(device) for device in ["cpu", "cuda"][: 1 + torch.cuda.is_available()])]
    show("Codecs and feature maps", rows)
    keep("encoding", {"encoding": rows})


if __name__ == "__main__":
    main()
