"""What others published on the image sets, without public data: their figures beside what these hold for.

Accuracy depends on delta, on the number of records and on who evaluates, so that no figure stands here without them.

    >>> peer = next(peer for peer in PEERS if peer.dataset == "cifar10")
    >>> peer.name, peer.records, f"{peer.guaranteed_delta:.1e}"
    ('DP-FETA', 45000, '2.1e-06')
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_BENCH = "best of three networks, DPImageBench"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """What others published, without public data.

    Attributes:
        name: of the method.
        dataset: a benchmark's name.
        accuracy: (epsilon, accuracy); `fid` likewise, on Inception's features.
        records: that it was trained on.
        delta: of the guarantee; 1 / (records ln records), as DPImageBench sets it, if None.
        evaluator: what the accuracy is of.
        note: what else differs.
    """

    name: str
    dataset: str
    accuracy: tuple[tuple[float, float], ...]
    records: int
    fid: tuple[tuple[float, float], ...] = ()
    delta: float | None = None
    evaluator: str = _BENCH
    note: str = ""

    @property
    def guaranteed_delta(self) -> float:
        """The delta of its guarantee."""
        return 1 / (self.records * math.log(self.records)) if self.delta is None else self.delta


def _dpdm(dataset: str, *accuracy: tuple[float, float], fid: tuple[tuple[float, float], ...]) -> Peer:
    """From the authors' paper."""
    own = {"records": 60_000, "delta": 1e-5, "evaluator": "a CNN, by its authors"}
    return Peer(name="DPDM", dataset=dataset, accuracy=accuracy, fid=fid, **own)  # type: ignore[arg-type]


PEERS = (
    Peer(
        name="FETA-Pro",
        dataset="mnist",
        accuracy=((0.2, 0.862), (1, 0.971), (10, 0.986)),
        fid=((1, 8.8), (10, 2.5)),
        records=55_000,
    ),
    _dpdm("mnist", (0.2, 0.863), (1, 0.953), (10, 0.981), fid=((1, 36.0), (10, 6.7))),
    Peer(name="DP-MERF", dataset="mnist", accuracy=((0.2, 0.791), (1, 0.839), (10, 0.832)), records=55_000),
    Peer(
        name="FETA-Pro",
        dataset="fashion-mnist",
        accuracy=((0.2, 0.702), (1, 0.823), (10, 0.883)),
        fid=((1, 27.9), (10, 11.9)),
        records=55_000,
    ),
    Peer(
        name="DP-FETA",
        dataset="fashion-mnist",
        accuracy=((0.2, 0.734), (1, 0.817), (10, 0.873)),
        fid=((0.2, 59.6),),
        records=55_000,
    ),
    _dpdm("fashion-mnist", (0.2, 0.723), (1, 0.794), (10, 0.862), fid=((1, 51.0), (10, 19.0))),
    Peer(name="DP-MERF", dataset="fashion-mnist", accuracy=((0.2, 0.697), (1, 0.724), (10, 0.717)), records=55_000),
    Peer(name="FETA-Pro", dataset="celeba-gender-s", accuracy=((1, 0.900),), fid=((1, 48.0),), records=145_064),
    Peer(name="DP-FETA", dataset="celeba-gender-s", accuracy=((10, 0.942),), fid=((10, 24.8),), records=145_064),
    Peer(name="DP-FETA", dataset="cifar10", accuracy=((1, 0.351), (10, 0.433)), fid=((10, 95.3),), records=45_000),
    Peer(
        name="DP-FETA",
        dataset="cifar10",
        accuracy=((10, 0.506),),
        fid=((10, 81.2),),
        records=45_000,
        note="78.5 million parameters",
    ),
)
"""From the authors' papers and repositories and DPImageBench (github.com/2019ChenGong/DPImageBench), whose training parts are
of these sizes."""
