"""Which states are due: each is told once, after a moment, and not to who has just been there."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.notify.due import DEFAULT_REASONS, REASONS, REMEMBERED, DueStates, key_of
from fleetd.protocol.requests.attention import AgentState
from fleetd.protocol.timestamps import to_ms
from tests.support.notify import NOW_MS, ThousandEvents, state


@pytest.fixture
def due() -> DueStates:
    return DueStates(DEFAULT_REASONS)


def test_the_reasons_are_those_that_the_command_offers():
    assert {*REASONS} == {
        *("permission", "question", "plan_approval", "finished", "limit", "failed", "lost")
    }
    assert {*REASONS} - {*DEFAULT_REASONS} == {"finished"}


def test_a_state_is_told_once_when_it_has_held_for_two_seconds(due: DueStates):
    waiting = state("permission", text="Bash: ls")
    due.observe([waiting], 0.0, NOW_MS)
    assert due.take_due(1.9) == []
    assert due.next_due() == 2.0
    assert due.take_due(2.0) == [waiting]
    due.observe([waiting], 3.0, NOW_MS + 3_000)
    assert due.take_due(9.0) == []
    assert due.next_due() == float("inf")


def test_a_state_that_is_over_within_two_seconds_is_not_told(due: DueStates):
    due.observe([state("permission")], 0.0, NOW_MS)
    due.observe([state("none")], 1.9, NOW_MS + 1_900, only="alice")
    assert due.take_due(60.0) == []


def test_an_agent_that_is_gone_needs_nothing(due: DueStates):
    due.observe([state("question"), state("lost", agent="bob")], 0.0, NOW_MS)
    due.observe([], 1.0, NOW_MS, only="bob")
    assert [each.agent_id for each in due.take_due(2.0)] == ["alice"]
    due.observe([], 1.0, NOW_MS)
    assert due.next_due() == float("inf")


def test_another_need_is_another_state(due: DueStates):
    due.observe([state("permission")], 0.0, NOW_MS)
    assert len(due.take_due(2.0)) == 1
    due.observe([state("permission", since=NOW_MS + 5_000)], 5.0, NOW_MS + 5_000)
    assert len(due.take_due(7.0)) == 1
    due.observe([state("question", since=NOW_MS + 5_000)], 8.0, NOW_MS + 8_000)
    assert len(due.take_due(10.0)) == 1


def test_the_text_of_now_is_told(due: DueStates):
    due.observe([state("limit", text="5 h")], 0.0, NOW_MS)
    due.observe([state("limit", text="5 h, until 17:00")], 1.0, NOW_MS + 1_000)
    assert [each.text for each in due.take_due(2.0)] == ["5 h, until 17:00"]


def test_nobody_is_told_within_twenty_seconds_of_their_own_prompt(due: DueStates):
    due.observe([state("question", prompted=NOW_MS - 3_000)], 0.0, NOW_MS)
    assert due.take_due(16.9) == []
    assert len(due.take_due(17.0)) == 1


def test_a_state_that_ends_within_twenty_seconds_of_a_prompt_is_not_told(due: DueStates):
    due.observe([state("question", prompted=NOW_MS - 3_000)], 0.0, NOW_MS)
    due.observe([], 16.0, NOW_MS + 16_000)
    assert due.take_due(99.0) == []


def test_a_later_prompt_begins_the_twenty_seconds_anew(due: DueStates):
    due.observe([state("failed")], 0.0, NOW_MS)
    due.observe([state("failed", prompted=NOW_MS + 1_000)], 1.0, NOW_MS + 1_000)
    assert due.take_due(20.9) == []
    assert len(due.take_due(21.0)) == 1


def test_a_prompt_by_a_clock_that_is_ahead_delays_for_no_longer(due: DueStates):
    due.observe([state("failed", prompted=NOW_MS + 9_000_000)], 0.0, NOW_MS)
    assert due.next_due() == 20.0


def test_a_time_that_is_none_delays_nothing(due: DueStates):
    due.observe([state("failed", prompted_at="soon")], 0.0, NOW_MS)
    assert due.next_due() == 2.0


@pytest.mark.parametrize(("age_ms", "told"), [(3_600_000, 1), (3_600_001, 0)])
def test_what_began_more_than_an_hour_ago_is_no_news(due: DueStates, age_ms: int, told: int):
    due.observe([state("lost", since=NOW_MS - age_ms)], 0.0, NOW_MS)
    assert len(due.take_due(2.0)) == told


def test_only_the_chosen_reasons_are_told():
    due = DueStates(["finished"])
    due.observe([state("permission"), state("finished", agent="bob")], 0.0, NOW_MS)
    assert [each.agent_id for each in due.take_due(2.0)] == ["bob"]


def test_what_an_earlier_process_told_is_not_told_again(due: DueStates):
    due.observe([state("permission")], 0.0, NOW_MS)
    due.take_due(2.0)
    later = DueStates(DEFAULT_REASONS, due.reported)
    later.observe([state("permission"), state("lost", agent="bob")], 0.0, NOW_MS)
    assert [each.agent_id for each in later.take_due(2.0)] == ["bob"]


def test_what_was_told_is_remembered_up_to_a_bound(due: DueStates):
    for number in range(REMEMBERED + 10):
        due.observe([state("permission", since=NOW_MS + number)], number * 3.0, NOW_MS)
        assert len(due.take_due(number * 3.0 + 2)) == 1
    assert len(due.reported) == REMEMBERED


def test_a_thousand_events_of_some_agents_tell_each_state_once():
    """States that hold for long enough are told once, the others never, over 1,000 changes."""
    events = ThousandEvents()
    told = [key_of(each) for found in events.told() for each in found]
    assert len(told) == len(set(told))
    assert set(told) == events.wanted
    assert len(told) > 300


def _ms(each: AgentState) -> int:
    return to_ms(each.since)


AGENTS = st.sampled_from(["a", "b", "c"])
NEEDS = st.sampled_from([*REASONS, "none", "background"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["changes", "read", "read all", "take"]),
        AGENTS,
        NEEDS,
        st.integers(0, 25_000),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_no_order_of_events_tells_a_state_twice_or_one_that_is_over(steps: list[Any]):
    due = DueStates(DEFAULT_REASONS)
    now_ms, told = 0, []
    current: dict[str, AgentState] = {}
    seen: dict[str, Any] = {}
    for step, agent, needs, pause in steps:
        now_ms += pause
        if step == "changes":
            since = NOW_MS + now_ms
            prompted = since - pause if needs == "question" else None
            current[agent] = state(needs, agent=agent, since=since, prompted=prompted)
        elif step == "read":
            found = [current[agent]] if agent in current else []
            due.observe(found, now_ms / 1_000, NOW_MS + now_ms, only=agent)
            seen[agent] = current.get(agent)
        elif step == "read all":
            due.observe(current.values(), now_ms / 1_000, NOW_MS + now_ms)
            seen |= current
        else:
            found = due.take_due(now_ms / 1_000)
            assert due.next_due() > now_ms / 1_000
            for each in found:
                # It held when it was read last, is wanted, and nobody has just been there.
                assert seen[each.agent_id] == each
                assert each.needs in DEFAULT_REASONS
                age_ms = NOW_MS + now_ms - _ms(each)
                assert age_ms >= 2_000
                if each.prompted_at:
                    assert NOW_MS + now_ms - _prompted(each) >= 20_000
            told += map(key_of, found)
    assert len(told) == len(set(told))


def _prompted(each: AgentState) -> int:
    return to_ms(each.prompted_at or "")
