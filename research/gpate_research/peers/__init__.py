"""Other people's synthesizers of private tables, run beside ours on the same records and evaluated in the same way.

Their pins do not fit ours (dpmm wants numpy 1.26.4, pandas 2.1.0 and opendp 0.12.1), so none of them can be a dependency, not
even an optional one. Each runs in a process and an environment of its own; files go in and come out:

    python -m venv dpmm && dpmm/bin/pip install torch dpmm 'pyarrow<20'
    export GPATE_DPMM_PYTHON=$PWD/dpmm/bin/python

    >>> sorted(PEERS)
    ['dpmm-aim', 'dpmm-mst', 'dpmm-privbayes', 'smartnoise-mst', 'smartnoise-pategan']

`gpate_research.peers.exchange` says what a peer is given: the records on the scale of our public schema, and the schema's domain, so
that nobody reads a bound or a category off the data. `dpmm_script.py` and `smartnoise_script.py` are run by the peer's own
Python and import nothing of gpate.
"""

from gpate_research.peers.peer_process import PEERS, Launch, Peer, PeerRun, run_peer

__all__ = ["PEERS", "Launch", "Peer", "PeerRun", "run_peer"]
