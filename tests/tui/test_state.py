"""What was told, put together: parts, events, links; whatever order it comes in."""

import pytest

from fleetctl.tui import visible
from fleetctl.tui.state import EVERYTHING, TAIL, UpdateQueue, WatchState, moment
from fleetd.protocol.event_types import event_type
from fleetd.protocol.events import PAYLOADS, REPORTED_ACTIVITY
from tests.tui.records import (
    MINUTE,
    NOON,
    agent,
    candidate,
    event,
    letter,
    line,
    lock,
    mission,
    record,
    shown_at,
    state_of,
    status,
)


def seqs(state: WatchState) -> list[int]:
    return [each.seq for each in state.events]


def test_events_that_came_before_the_tail_was_read_are_there_once() -> None:
    state = WatchState()
    state.add_events([event(5), event(6), event(7)])
    state.take("events", [event(3), event(4), event(5), event(6)], None, 0)
    assert seqs(state) == [3, 4, 5, 6, 7]
    state.add_events([event(7), event(8)])
    assert seqs(state) == [3, 4, 5, 6, 7, 8]


def test_only_the_newest_events_are_kept() -> None:
    state = WatchState()
    state.add_events(event(seq) for seq in range(10 * TAIL))
    assert seqs(state) == list(range(9 * TAIL, 10 * TAIL))


def test_another_store_makes_everything_forgotten_and_the_same_does_not() -> None:
    state = state_of(mission(1), told=status(line(1)))
    state.add_events([event(1)])
    state.away("gone", 1_000)
    state.connected("epoch-1", 3_000)
    assert state.was_away_ms == 2_000
    assert (len(state.listed), seqs(state)) == (1, [1])
    state.away("gone", 4_000)
    state.connected("epoch-2", 5_000)
    assert state.status is None
    assert (state.listed, seqs(state)) == ([], [])


def test_a_daemon_that_was_never_there_is_waited_for_and_one_that_was_is_away() -> None:
    state = WatchState()
    state.away("not running", 1_000)
    state.away("not running", 2_000)
    assert (state.connection, state.connection_since) == ("waiting", 1_000)
    state.connected("e", 3_000)
    assert state.was_away_ms == 0
    state.away("gone", 4_000)
    state.away("still gone", 5_000)
    assert (state.connection, state.connection_since) == ("away", 4_000)
    assert state.trouble == "still gone"


def refreshed(kind: str) -> set[str]:
    return set(event_type(kind).refreshes or ())


@pytest.mark.parametrize("kind", sorted([*PAYLOADS, *REPORTED_ACTIVITY, "a_type_of_tomorrow"]))
def test_every_event_says_what_is_to_be_read_again(kind: str) -> None:
    found = refreshed(kind)
    assert found <= EVERYTHING - {"events"}
    quiet = ("snapshot_recorded", "snapshots_pruned", "hook_noted", "backup_failed")
    quiet += ("window_briefed", "briefing_missed", "lock_wait_ended")
    assert bool(found) == (kind not in quiet)


def test_what_an_event_changed_is_read_again() -> None:
    assert "sorties" in refreshed("sortie_completed")
    assert "mail" in refreshed("message_acked")
    assert "locks" in refreshed("lock_released")
    assert "checkpoints" in refreshed("fleet_checkpointed")
    assert "status" in refreshed("file_modified")
    assert refreshed("context_compacted") == EVERYTHING - {"events"}


def test_a_time_that_is_none_is_the_beginning() -> None:
    assert moment("2026-01-05T12:00:00.000Z") == NOON
    assert moment(None) == moment("soon") == 0


def test_missions_are_in_progress_then_pending_then_over_and_keep_their_order() -> None:
    state = state_of(
        mission(4, status="completed", progress_percent=100),
        mission(3, status="pending"),
        mission(2),
        mission(1),
        told=status(line(1), line(2), line(9, automatic=True)),
    )
    seen = visible.missions(state, shown_at())
    assert [each.id[-1] for each in seen] == ["2", "1", "9", "3", "4"]
    assert seen[2].title == "Mission 9 (auto)"
    assert [visible.over(each) for each in seen] == [False, False, False, False, True]


def test_a_silence_grows_without_asking_the_daemon() -> None:
    state = state_of(mission(1), told=status(line(1, silence_ms=MINUTE)))
    (seen,) = visible.missions(state, shown_at(tick_ms=3 * MINUTE))
    assert seen.silence_ms == 4 * MINUTE


def test_who_waits_for_recovery_is_said() -> None:
    state = state_of(
        mission(1), mission(2), told=status(line(1), line(2), candidates=(candidate(2),))
    )
    assert [each.waits for each in visible.missions(state, shown_at())] == [False, True]


def test_a_recovery_that_waits_is_not_told_twice() -> None:
    pending = {"id": "rcv-1", "mission_id": "msn-00000002", "state": "pending", "agent_id": None}
    briefed = record(id="rcv-2", mission_id="msn-00000001", state="briefed", agent_id="alice")
    told = status(line(1), candidates=(candidate(2),), recoveries=(record(**pending), briefed))
    assert [each.id for each in visible.under_way(state_of(told=told))] == ["rcv-2"]


def test_a_lease_that_ran_out_is_gone_though_nobody_said_so() -> None:
    state = WatchState()
    state.take("locks", [lock("b.py"), lock("a.py", MINUTE)], None, 0)
    assert [each.file for each in visible.locks(state, shown_at())] == ["a.py", "b.py"]
    later = shown_at(NOON + 2 * MINUTE)
    assert [each.file for each in visible.locks(state, later)] == ["b.py"]


def test_a_lease_without_an_end_ends_after_its_time() -> None:
    assert (
        visible.lease_left(lock("a.py", MINUTE, expires_at=None), shown_at(NOON + 1)) == MINUTE - 1
    )


def test_the_dispatch_is_first_and_who_was_lost_long_ago_is_not_shown() -> None:
    state = WatchState()
    old = {"status": "lost", "last_seen_at": "2026-01-01T12:00:00.000Z"}
    people = [agent("bob"), agent("zoe", role="dispatch"), agent("eve", **old)]
    state.take("agents", [*people, agent("ann", status="lost")], None, 0)
    assert [each.id for each in visible.agents(state, shown_at())] == ["zoe", "ann", "bob"]


def test_one_mission_only_leaves_out_what_is_not_its_own() -> None:
    state = WatchState()
    other = {"mission_id": "msn-00000002"}
    state.take("agents", [agent("ann"), agent("bob", **other)], None, 0)
    state.take("locks", [lock("a"), lock("b", **other)], None, 0)
    state.take("mail", [letter(1, "queued"), letter(2, "queued", **other)], None, 0)
    state.add_events([event(1), event(2, **other)])
    view = shown_at()
    view.only = True
    assert [each.id for each in visible.agents(state, view)] == ["ann"]
    assert [each.file for each in visible.locks(state, view)] == ["a"]
    assert [each.subject for each in visible.messages(state, view)] == ["Letter 1"]
    assert [each.seq for each in visible.events(state, view)] == [1]


def test_a_letter_is_as_far_as_its_last_reader() -> None:
    assert visible.message_state(letter(1, "acked", "queued")) == "queued"
    assert visible.message_state(letter(1, "acked", "delivered")) == "delivered"
    assert visible.message_state(letter(1, "acked")) == "acked"
    counts = visible.deliveries([letter(1, "acked", "queued"), letter(2, "queued")])
    assert counts == {"queued": 2, "delivered": 0, "acked": 1, "failed": 0}


def test_sorties_that_are_worked_on_come_first_and_what_is_done_last() -> None:
    state = WatchState()
    states = ["completed", "pending", "blocked", "failed", "assigned", "in_progress"]
    states += ["completed", "in_progress"]
    told = [record(status=state, place=place) for place, state in enumerate(states)]
    state.take("sorties", told, "msn-00000001", 0)
    seen = [(each.status, each.place) for each in visible.sorties(state, shown_at())]
    assert seen == [
        ("in_progress", 5),
        ("in_progress", 7),
        ("blocked", 2),
        ("pending", 1),
        ("assigned", 4),
        ("failed", 3),
        ("completed", 0),
        ("completed", 6),
    ]


def test_sorties_of_another_mission_are_not_shown() -> None:
    state = WatchState()
    state.take("sorties", [record(status="pending")], "msn-00000002", 0)
    assert visible.sorties(state, shown_at()) == []
    assert len(visible.sorties(state, shown_at(mission_id="msn-00000002"))) == 1


class Bell:
    def __init__(self) -> None:
        self.rung = 0

    def __call__(self) -> None:
        self.rung += 1


def test_a_storm_rings_once_and_leaves_the_newest() -> None:
    bell = Bell()
    queue = UpdateQueue(bell, lambda: 0)
    for seq in range(50_000):
        queue.event(_Numbered(seq))
    assert (bell.rung, queue.waiting()) == (1, 50_000)
    state = WatchState()
    queue.take(state)
    assert seqs(state) == list(range(50_000 - TAIL, 50_000))
    assert queue.waiting() == 0
    queue.event(_Numbered(60_000))
    assert bell.rung == 2


class _Numbered:
    def __init__(self, seq: int) -> None:
        self.seq = seq


def test_of_answers_to_the_same_question_the_last_counts() -> None:
    queue, state = UpdateQueue(Bell(), lambda: 7), WatchState()
    queue.connected("e")
    queue.answer("missions", [mission(1)], None)
    queue.answer("missions", [mission(2)], None)
    queue.answer("sorties", [], "msn-00000002")
    queue.take(state)
    assert [each.id for each in state.listed] == ["msn-00000002"]
    assert (state.connection, state.sorties_of) == ("connected", "msn-00000002")


def test_answers_of_a_connection_that_is_over_are_not_taken_for_those_of_the_next() -> None:
    queue, state = UpdateQueue(Bell(), lambda: 0), WatchState()
    queue.connected("one")
    queue.answer("missions", [mission(1)], None)
    queue.event(event(1))
    queue.away("gone")
    queue.connected("two")
    queue.take(state)
    assert (state.listed, seqs(state), state.epoch) == ([], [], "two")


def test_a_daemon_that_comes_and_goes_while_nobody_looks_leaves_little() -> None:
    queue, state = UpdateQueue(Bell(), lambda: 0), WatchState()
    for n in range(1_000):
        queue.connected(f"epoch-{n}")
        queue.away("gone")
    assert len(queue._connection_changes) <= 3
    queue.take(state)
    assert (state.connection, state.epoch) == ("away", "epoch-999")
