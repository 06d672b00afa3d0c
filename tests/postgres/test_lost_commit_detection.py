"""What a server lacks is found out once, whoever asks when."""

from typing import Any

import pytest

from fleetd.store.postgres.errors import ServerBehind
from fleetd.store.postgres.lost_commits import LostCommitDetector
from fleetd.store.postgres.url import ServerAddress


class Line:
    """A server that stands where a test says, and lets something happen while it is asked."""

    def __init__(self, batch: int, end: int, epoch: str | None, meanwhile: Any = None) -> None:
        self._row = (batch, end, epoch, 1, 0)
        self._meanwhile = meanwhile

    def execute(self, *_: object) -> "Line":
        return self

    def fetchone(self) -> tuple[int, int, str | None, int, int]:
        if self._meanwhile:
            self._meanwhile()
        return self._row


@pytest.fixture
def lost_commits() -> LostCommitDetector:
    made = LostCommitDetector("a", ServerAddress("postgresql://h/fleet"))
    made.look(Line(5, 100, "x"))  # type: ignore[arg-type]
    return made


def look(lost_commits: LostCommitDetector, *stand: Any) -> None:
    lost_commits.look(Line(*stand))  # type: ignore[arg-type]


@pytest.mark.parametrize(("batch", "end"), [(4, 100), (5, 99), (0, 0)])
def test_a_server_that_lacks_something_is_told_of_once(
    lost_commits: LostCommitDetector, batch: int, end: int
) -> None:
    with pytest.raises(ServerBehind, match="without the last commits"):
        look(lost_commits, batch, end, "x")
    look(lost_commits, batch, end, "x")
    assert lost_commits.lost is not None
    assert (lost_commits.lost.end, lost_commits.lost.reached) == (end, 100)
    assert lost_commits.batch == batch


@pytest.mark.parametrize("stand", [(4, 103, "y"), (5, 103, "y"), (4, 99, "y")])
def test_each_machine_hears_that_another_has_begun_an_epoch(
    lost_commits: LostCommitDetector, stand: tuple[int, int, str]
) -> None:
    with pytest.raises(ServerBehind):
        look(lost_commits, *stand)
    assert lost_commits.lost is not None
    # An epoch that was begun at 101 or above is above all that was told here.
    assert (lost_commits.lost.end, lost_commits.lost.reached) == (min(100, stand[1]), 100)
    look(lost_commits, *stand)
    assert lost_commits.batch == stand[0]


def test_an_epoch_that_began_below_ones_own_commit_is_no_news(
    lost_commits: LostCommitDetector,
) -> None:
    lost_commits.note(6, 104)
    look(lost_commits, 6, 104, "y")
    assert lost_commits.lost is None


def test_who_does_not_act_leaves_it_to_the_next_who_looks(lost_commits: LostCommitDetector) -> None:
    for _ in range(2):
        with pytest.raises(ServerBehind):
            lost_commits.look(Line(4, 99, "x"), acts=False)  # type: ignore[arg-type]
    assert lost_commits.lost is None
    with pytest.raises(ServerBehind):
        look(lost_commits, 4, 99, "x")
    assert lost_commits.lost is not None


def test_what_is_committed_while_a_server_is_asked_is_not_missed(
    lost_commits: LostCommitDetector,
) -> None:
    look(lost_commits, 5, 100, "x", lambda: lost_commits.note(6, 101))
    assert lost_commits.batch == 6
    with pytest.raises(ServerBehind):
        look(lost_commits, 5, 101, "x")


def test_what_others_committed_is_missed_too(lost_commits: LostCommitDetector) -> None:
    lost_commits.follow(Line(5, 120, "x"))  # type: ignore[arg-type]
    with pytest.raises(ServerBehind):
        look(lost_commits, 5, 110, "x")


def test_an_epoch_that_begins_is_followed(lost_commits: LostCommitDetector) -> None:
    lost_commits.follow(Line(5, 100, "y"))  # type: ignore[arg-type]
    with pytest.raises(ServerBehind):
        look(lost_commits, 4, 100, "y")
