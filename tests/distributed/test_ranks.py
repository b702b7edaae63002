"""Several ranks are one run: the same bits, paid once, and a clear end when a rank is lost."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gpate import verify
from gpate.accounting import Budget, Gaussian, read_ledger
from gpate.boundary import ClosedGate, FastNoise, Ranks, Sensitive, ranks_here
from gpate.boundary.ranks import backend_for
from gpate.boundary.values import opened
from gpate.errors import InvalidValue
from gpate.methods import method_named
from tests.distributed import rank
from tests.distributed.launch import ranks, torchrun
from tests.methods.answers import read_answers
from tests.methods.small import images, table
from tests.processes import ROOT, Child
from tests.records.test_readers import written


def weights(run: Path) -> bytes:
    return (run / "release" / "generator.safetensors").read_bytes()


def paid(run: Path) -> int:
    return read_ledger(run / "release" / "ledger.jsonl").head.line


@pytest.fixture(autouse=True)
def _one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition of the ranks that are started, here too."""
    monkeypatch.setattr("gpate.synthesizer.new_key", lambda: bytes(32))


def fitted(kind: str, run: Path, size: int, what: str = "fit", *file: str) -> Path:
    """A finished run; alone it is made here, which saves a process."""
    if size == 1:
        rank.run(kind, run, what, *file)
        return run
    for process in ranks(size, kind, str(run), what, *file):
        code, said = ended(process)
        assert code == 0, said[-2000:]
    return run


def ended(process: Child) -> tuple[int, str]:
    with process:
        _, said = process.communicate()
        return process.wait(), said


def assert_same_before_noise(run: Path, whole: Path) -> None:
    """Each release, exactly."""
    with np.load(rank.before_noise(run)) as own, np.load(rank.before_noise(whole)) as one:
        assert own.files == one.files
        assert all(np.array_equal(own[name], one[name]) for name in one.files)
        assert any(one[name].any() for name in one.files)


def same(run: Path, whole: Path) -> None:
    """To the last bit, before the noise and after it, for the same price, and as good a release."""
    assert_same_before_noise(run, whole)
    assert weights(run) == weights(whole)
    assert paid(run) == paid(whole)
    failed = [{check.name for check in verify(each / "release").checks if not check.passed} for each in (run, whole)]
    assert failed[0] == failed[1]


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run of a single rank with all records in memory, made once for each kind."""
    folder = tmp_path_factory.mktemp("wholes")

    def whole(kind: str) -> Path:
        return folder / kind if (folder / kind).exists() else fitted(kind, folder / kind, 1)

    return whole


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("votes", 2),
        ("embedding", 2),
        ("tuned", 2),
        ("merf-persons", 2),
        pytest.param("embedding-persons", 3, marks=SLOW),
        pytest.param("votes-persons", 2, marks=SLOW),
        pytest.param("table-persons", 3, marks=SLOW),
        pytest.param("votes", 4, marks=SLOW),
        pytest.param("tuned-persons", 3, marks=SLOW),
        pytest.param("table", 3, marks=SLOW),
        pytest.param("merf", 2, marks=SLOW),
        pytest.param("rounds", 2, marks=SLOW),
        pytest.param("refined", 2, marks=SLOW),
    ],
)
def test_the_number_of_ranks_changes_no_bit(
    kind: str, size: int, wholes: Callable[[str], Path], tmp_path: Path
) -> None:
    run = fitted(kind, tmp_path / "run", size)
    same(run, wholes(kind))
    assert not list((run / "private").rglob("checkpoint*"))


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=SLOW)])
def test_what_persons_add_to_tables_does_not_depend_on_the_ranks_that_have_their_records(
    size: int, tmp_path: Path
) -> None:
    run, whole = (fitted("tables-persons", tmp_path / str(number), number) for number in (size, 1))
    assert_same_before_noise(run, whole)


@pytest.mark.parametrize(
    ("kind", "format_", "size"),
    [
        ("votes", "stored", 2),
        ("embedding", "compressed", 2),
        pytest.param("votes", "folder", 4, marks=SLOW),
        pytest.param("embedding", "stored", 4, marks=SLOW),
        pytest.param("table", "csv", 2, marks=SLOW),
        pytest.param("merf", "parquet", 3, marks=SLOW),
        pytest.param("merf", "csv", 2, marks=SLOW),
    ],
)
def test_ranks_that_read_their_part_of_a_file_release_what_one_does(
    kind: str, format_: str, size: int, wholes: Callable[[str], Path], tmp_path: Path
) -> None:
    path, _ = written(format_, tmp_path, 200 if kind == "votes" else 2500)
    in_order = format_ in ("stored", "compressed")  # that of the records in memory
    whole = wholes(kind) if in_order else fitted(kind, tmp_path / "whole", 1, "fit", str(path))
    same(fitted(kind, tmp_path / "run", size, "fit", str(path)), whole)
    with pytest.MonkeyPatch.context() as patch:  # what is not held is read again each time
        patch.setattr("gpate.records.private_records.HOLD", 0)
        same(fitted(kind, tmp_path / "walked", 1, "fit", str(path)), whole)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["fit", "sites"])
def test_persons_are_found_in_all_parts_of_a_file_and_at_their_site(
    what: str, wholes: Callable[[str], Path], tmp_path: Path
) -> None:
    owners = rank.persons(rank.RECORDS)
    people = table(rank.RECORDS).assign(person=owners)
    for number in (0, 1):  # a person is at one site only
        rows = people if what == "fit" else people[owners % 2 == number]
        rows.to_parquet(tmp_path / f"{number}.parquet", row_group_size=100, index=False)
    file = str(tmp_path / ("0.parquet" if what == "fit" else "{rank}.parquet"))
    same(fitted("merf-persons", tmp_path / "run", 2, what, file), wholes("merf-persons"))


def test_sites_with_records_of_their_own_release_what_one_rank_with_all_of_them_does(
    wholes: Callable[[str], Path], tmp_path: Path
) -> None:
    pixels, labels = images(2500)
    for name, rows in {"0": slice(0, 900), "1": slice(900, None)}.items():  # not at a whole chunk
        np.savez(tmp_path / f"{name}.npz", images=pixels[rows], labels=labels[rows])
    same(fitted("embedding", tmp_path / "run", 2, "sites", str(tmp_path / "{rank}.npz")), wholes("embedding"))


@pytest.mark.slow
def test_sites_vote_by_teachers_of_their_own_and_go_on_after_a_stop(
    wholes: Callable[[str], Path], tmp_path: Path
) -> None:
    pixels, labels = images(200)
    for name, rows in {"0": slice(0, 120), "1": slice(120, None)}.items():
        np.savez(tmp_path / f"{name}.npz", images=pixels[rows], labels=labels[rows])
    data, run = str(tmp_path / "{rank}.npz"), str(tmp_path / "run")
    started = ranks(2, "votes", run, "sites", data)
    assert started[0].stdout is not None
    for _ in range(3):
        assert started[0].stdout.readline()
    started[1].kill()
    assert [ended(process)[0] for process in started] == [1, -signal.SIGKILL]
    done = torchrun(2, "votes", run, "resume", data)
    assert done.returncode == 0, done.stderr[-2000:]
    assert paid(tmp_path / "run") == paid(wholes("votes"))


@SLOW
@pytest.mark.parametrize("launcher", ["variables", "torchrun"])
def test_a_killed_rank_ends_the_others_and_a_resumed_run_pays_nothing_twice(
    launcher: str, wholes: Callable[[str], Path], tmp_path: Path
) -> None:
    first, second = ranks(2, "votes", str(tmp_path / "run"), "wait")
    assert first.stdout is not None
    assert [first.stdout.readline() for _ in range(3)] == ["1\n", "2\n", "3\n"]
    second.kill()
    assert ended(second)[0] == -signal.SIGKILL
    rank.go_on(tmp_path / "run").touch()
    code, said = ended(first)
    assert code == 1
    assert re.search("RankLost: Rank 0 of 2 could not .* Fix", said)
    if launcher == "torchrun":
        done = torchrun(2, "votes", str(tmp_path / "run"), "resume")
        assert done.returncode == 0, done.stderr[-2000:]
    else:
        fitted("votes", tmp_path / "run", 2, "resume")
    kept = read_answers(tmp_path / "run" / "private" / "answers-since-checkpoint.bin")
    numbers = [int(about["name"]) for about, _ in kept]
    assert numbers == list(range(len(numbers)))  # each was asked for once
    assert len(numbers) >= 3
    assert (
        abs(paid(tmp_path / "run") - paid(wholes("votes"))) <= 2
    )  # at most one iteration's two lines were paid for and lost


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("data", "records"),
        ("version", "library versions"),
        pytest.param("differ", "settings", marks=pytest.mark.slow),
    ],
)
def test_ranks_that_differ_say_so_and_spend_nothing(what: str, named: str, tmp_path: Path) -> None:
    for process in ranks(2, "embedding", str(tmp_path / "run"), what):
        code, said = ended(process)
        assert code == 1
        assert f"RanksDisagree: Ranks differ in their {named}: 1 from rank 0." in said
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_ranks_with_different_files_say_so_though_each_reads_its_part(tmp_path: Path) -> None:
    for number in (0, 1):  # one picture of many has one other pixel
        pictures, labels = images(2500)
        pictures[7, 0, 0] += number
        np.savez(tmp_path / f"{number}.npz", images=pictures, labels=labels)
    for process in ranks(2, "embedding", str(tmp_path / "run"), "fit", str(tmp_path / "{rank}.npz")):
        code, said = ended(process)
        assert code == 1
        assert "RanksDisagree: Ranks differ in their records: 1 from rank 0." in said
    assert not (tmp_path / "run").exists()


def test_a_full_disk_of_rank_0_is_told_to_all(tmp_path: Path) -> None:
    started = ranks(2, "votes", str(tmp_path / "run"), "full")
    codes, said = zip(*(ended(process) for process in started), strict=True)
    assert codes == (1, 1)
    assert re.search(r"(RunFolderError|LedgerWriteFailed): .*could not be written.* Fix", said[0])
    assert re.search(r"OtherRankStopped: Rank 0 stopped\. (RunFolderError|LedgerWriteFailed): .* Fix", said[1])
    assert not (tmp_path / "run" / "release" / "certificate.json").exists()


@pytest.mark.slow
def test_a_slow_rank_is_named_as_such(tmp_path: Path) -> None:
    first, second = ranks(2, "votes", str(tmp_path / "run"), "slow", GPATE_RANK_SECONDS="5")
    with second:
        code, said = ended(first)
    assert code == 1
    assert re.search("RankSlow: Rank 0 of 2 could not .* did not answer within 5 seconds.*GPATE_RANK_SECONDS", said)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("cards", "size", "expected"),
    [(0, 2, "gloo"), (1, 2, "gloo"), (2, 2, "cpu:gloo,cuda:nccl"), (8, 2, "cpu:gloo,cuda:nccl")],
)
def test_messages_on_cards_go_by_nccl_where_each_rank_has_its_own(cards: int, size: int, expected: str) -> None:
    assert backend_for(gpus=cards, ranks=size) == expected


@pytest.mark.slow
def test_a_silent_rank_is_given_up_after_the_time_limit(tmp_path: Path) -> None:
    first, second = ranks(2, "votes", str(tmp_path / "run"), "fit", GPATE_RANK_SECONDS="3")
    assert first.stdout is not None
    with second:
        first.stdout.readline()
        second.send_signal(signal.SIGSTOP)
        code, said = ended(first)
    assert code == 1
    assert "RankSlow" in said
    assert "did not answer within 3 seconds" in said


def test_one_rank_alone_needs_no_torch_distributed() -> None:
    alone = ranks_here({})
    part = Sensitive(torch.tensor([1, 2]))
    assert type(alone) is Ranks
    assert alone.add_up(part) is part
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize("seconds", ["soon", "0", "nan"])
def test_a_time_limit_is_a_number(seconds: str) -> None:
    with pytest.raises(InvalidValue, match="GPATE_RANK_SECONDS"):
        ranks_here({"WORLD_SIZE": "2", "GPATE_RANK_SECONDS": seconds})


@pytest.mark.parametrize(
    ("items", "size", "block"), [(10, 3, 1), (11, 4, 2), (1, 4, 1), (0, 2, 5), (2000, 2, 64), (7, 7, 1)]
)
def test_parts_are_disjoint_whole_blocks_and_together_everything(items: int, size: int, block: int) -> None:
    seen: list[int] = []
    for number in range(size):
        one = Ranks()
        one.rank, one.size = number, size
        mine = range(items)[one.part(items, block=block)]
        assert not mine or mine.start % block == 0
        seen += mine
    assert seen == list(range(items))


@pytest.mark.parametrize("method", ["marginals", "dpgan"])
def test_methods_whose_records_cannot_be_divided_are_refused_by_name(method: str) -> None:
    two = Ranks()
    two.size = 2
    with pytest.raises(
        InvalidValue, match=f"ranks must be 1 for {method}; several can share embedding, refined, tuned-votes, votes"
    ):
        method_named(method).check_ranks(two)
    method_named(method).check_ranks(Ranks())


def test_no_rank_but_the_first_can_pay() -> None:
    gate = ClosedGate(Budget(epsilon=1.0, delta=1e-5), FastNoise())
    with pytest.raises(InvalidValue, match="0 to pay"):
        gate.pay(Gaussian(sigma=1000.0, dimension=1, grid=None), purpose="sum")


def test_only_the_boundary_speaks_to_other_ranks() -> None:
    speaking = [path.name for path in (ROOT / "src").rglob("*.py") if "distributed.reduce" in path.read_text()]
    importing = {
        path.relative_to(ROOT / "src" / "gpate").as_posix()
        for path in (ROOT / "src").rglob("*.py")
        if re.search(
            r"^\s*(from torch.* import .*\bdistributed\b|import torch\.distributed|from torch\.distributed)",
            path.read_text(),
            re.M,
        )
    }
    assert speaking == ["ranks.py"]
    assert importing == {"boundary/ranks.py"}


def test_opened_parts_stay_what_they_were() -> None:
    """Alone, adding up is the identity: nothing is copied and nothing is converted."""
    part = torch.tensor([[3, -4]])
    assert opened(Ranks().add_up(Sensitive(part))) is part
