"""Runs a peer in its own process: files in, files out, a time limit, and errors that say what to install.

The folder of the exchange holds real records: it is made readable by its owner alone, and removed at the end, whatever happens.
What a peer prints may quote records, so it goes to a log that the caller names, or nowhere; no message of ours holds any of it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpate.errors import require_count, require_epsilon, require_positive, require_probability
from gpate.schema import TableSchema
from gpate_research.errors import PeerFailed, PeerMissing, PeerTooSlow
from gpate_research.peers.exchange import domain, given, taken

if TYPE_CHECKING:
    import pandas as pd

ENVIRONMENT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH")
"""What a peer's process sees of ours: no PYTHONPATH, or it would import our packages instead of its own."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another synthesizer.

    Attributes:
        name: ours for it.
        package: what it is in.
        algorithm: its name in the script.
        script: a file, beside this one unless its path is absolute, run by the package's own Python.
        install: what makes an environment for it.
    """

    name: str
    package: str
    algorithm: str
    script: str
    install: str

    @property
    def variable(self) -> str:
        """The environment variable that names its Python."""
        return f"GPATE_{self.package.upper()}_PYTHON"

    def python(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Its Python: the one named, or that of the environment variable.

        Raises:
            PeerMissing: there is none.
        """
        named = path or os.environ.get(self.variable)
        if not named:
            raise PeerMissing(
                f"{self.package} has no Python of its own here. "
                f"Fix: {self.install}; then set {self.variable} to its bin/python."
            )
        found = shutil.which(named)
        if found is None:
            raise PeerMissing(f"{named} is no program that can be run. Fix: {self.install}; then name its bin/python.")
        return Path(found).absolute()  # not resolved: a virtual environment is known by the link


_DPMM = "python3.11 -m venv dpmm && dpmm/bin/pip install torch dpmm 'pyarrow<20'"
_SMARTNOISE = "python3.11 -m venv smartnoise && smartnoise/bin/pip install smartnoise-synth pyarrow packaging"

PEERS = {
    peer.name: peer
    for peer in (
        *(
            Peer(name=f"dpmm-{a}", package="dpmm", algorithm=a, script="dpmm_script.py", install=_DPMM)
            for a in ("privbayes", "mst", "aim")
        ),
        *(
            Peer(
                name=f"smartnoise-{a}",
                package="smartnoise",
                algorithm=a,
                script="smartnoise_script.py",
                install=_SMARTNOISE,
            )
            for a in ("mst", "pategan")
        ),
    )
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PeerRun:
    """What a peer made.

    Attributes:
        records: synthetic, with the schema's columns.
        fit_seconds: of its own clock, without start and files.
        fit_cpu_seconds: of its process meanwhile.
        sample_seconds: likewise.
        version: of its package.
        settings: what the script chose for it.
    """

    records: pd.DataFrame
    fit_seconds: float
    fit_cpu_seconds: float
    sample_seconds: float
    version: str
    settings: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How a peer's process is run.

    Attributes:
        python: of its environment; by default what its variable says.
        seconds: after so many it is stopped.
        cpu_seconds: of its process; likewise. The limit to compare by on a shared machine.
        log: a file for what it prints. Private.
    """

    python: str | os.PathLike[str] | None = None
    seconds: float = 1200.0
    cpu_seconds: int | None = None
    log: Path | None = None

    def __post_init__(self) -> None:
        require_positive("seconds", self.seconds)
        if self.cpu_seconds is not None:
            require_count("cpu_seconds", self.cpu_seconds, 1)


def run_peer(
    peer: Peer,
    records: pd.DataFrame,
    *,
    schema: TableSchema,
    epsilon: float,
    delta: float,
    seed: int = 0,
    rows: int | None = None,
    launch: Launch | None = None,
) -> PeerRun:
    """Fits a peer and draws from it.

    Args:
        peer: which.
        records: real ones. Private.
        schema: public; all that the peer learns of the domain.
        epsilon: its whole budget, with what it spends on its own bins.
        delta: likewise.
        seed: of whatever it lets one seed.
        rows: to draw; as many as there are records if not given, which tells their number.
        launch: how its process is run; with the defaults if not given.

    Raises:
        PeerMissing: it is not installed.
        PeerTooSlow: it was stopped.
        PeerFailed: it ended without a table that fits the schema.
    """
    require_epsilon(epsilon)
    require_probability("delta", delta)
    require_count("seed", seed)
    launch = launch or Launch()
    program = peer.python(launch.python)
    with tempfile.TemporaryDirectory(prefix="gpate-peer-") as place:  # mode 0700
        folder = Path(place)
        given(records, schema).to_parquet(folder / "records.parquet", index=False)
        job = {
            "algorithm": peer.algorithm,
            "domain": domain(schema),
            "epsilon": epsilon,
            "delta": delta,
            "seed": seed,
            "rows": len(records) if rows is None else rows,
        }
        (folder / "job.json").write_text(json.dumps(job))
        script = Path(__file__).parent / peer.script
        _wait([str(program), "-I", str(script), str(folder)], peer, launch)
        import pandas as pd

        try:
            result = json.loads((folder / "result.json").read_text())
            table = pd.read_parquet(folder / "synthetic.parquet")
        except (OSError, ValueError):
            raise PeerFailed(f"{peer.name} left no table behind. Fix: give a log, and look into it.") from None
        return PeerRun(
            records=taken(table, schema),
            fit_seconds=float(result["fit_seconds"]),
            fit_cpu_seconds=float(result["fit_cpu_seconds"]),
            sample_seconds=float(result["sample_seconds"]),
            version=str(result["version"]),
            settings=dict(result["settings"]),
        )


def _wait(command: list[str], peer: Peer, launch: Launch) -> None:
    kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    program = command[0]
    if launch.cpu_seconds is not None:
        command = ["sh", "-c", f'ulimit -S -t {launch.cpu_seconds} && exec "$@"', "sh", *command]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with launch.log.open("wb") if launch.log is not None else open(os.devnull, "wb") as out:
        try:
            code = subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, timeout=launch.seconds, env=kept | threads, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            raise PeerTooSlow(
                f"{peer.name} was stopped after {launch.seconds:g} seconds. Fix: give it more, or less to do."
            ) from None
        except OSError:
            raise PeerMissing(f"{program} cannot be run. Fix: {peer.install}; then name its bin/python.") from None
    if code == -signal.SIGXCPU:
        raise PeerTooSlow(
            f"{peer.name} was stopped after {launch.cpu_seconds} CPU seconds. Fix: give it more, or less to do."
        )
    if code == MISSING:
        raise PeerMissing(f"{program} does not have {peer.package}. Fix: {peer.install}; then name its bin/python.")
    if code:
        raise PeerFailed(f"{peer.name} ended with code {code}. Fix: give a log, and look into it.")


MISSING = 66
"""The exit code of a script whose package is not installed."""
