"""A harness's plan becomes sorties: lists that follow each other, and what is left of each."""

from typing import NamedTuple

import pytest

from fleetd.domain.core.tx import LogLine
from fleetd.domain.missions import missions, sorties
from fleetd.domain.snapshots.plan_steps import DROPPED
from fleetd.harness.report import PlanItem, Planned
from fleetd.protocol.requests.mission import MissionCancel, MissionComplete
from fleetd.protocol.requests.sortie import (
    SortieAssign,
    SortieBlock,
    SortieComplete,
    SortieStart,
)
from tests.unit.sessions.session_rules import AGENT, SessionRules


class History(NamedTuple):
    """Whole lists in their order, the sorties that are left, and what the last list did."""

    name: str
    lists: list[list[str]]
    sorties: list[str]
    log: list[str]


HISTORIES = [
    History("nothing", [[]], [], []),
    History(
        "a first list",
        [["> Read", "Write", "Test"]],
        ["> Read", "Write", "Test"],
        ["created Read", "created Write", "created Test", "started Read"],
    ),
    History(
        "work goes on",
        [["> Read", "Write", "Test"], ["x Read", "> Write", "Test"]],
        ["x Read", "> Write", "Test"],
        ["started Write", "completed Read", "fleet_checkpointed 33"],
    ),
    History(
        "what was never started is started first",
        [["Read", "Write", "Test", "Ship", "Rest"], ["x Read", "Write", "Test", "Ship", "Rest"]],
        ["x Read", "Write", "Test", "Ship", "Rest"],
        ["started Read", "completed Read"],
    ),
    History(
        "done at first sight",
        [["x Read", "Write", "Test", "Ship", "Rest"]],
        ["x Read", "Write", "Test", "Ship", "Rest"],
        [f"created {each}" for each in ("Read", "Write", "Test", "Ship", "Rest")]
        + ["started Read", "completed Read"],
    ),
    History(
        "an untouched item that disappears is removed",
        [["> Read", "Write", "Test"], ["> Read", "Test"]],
        ["> Read", "Test"],
        ["removed Write"],
    ),
    History(
        "one that was begun and disappears has failed",
        [["> Read", "Write"], ["Write"]],
        ["! Read", "Write"],
        ["failed Read"],
    ),
    History(
        "one that was put back had been begun",
        [["> Read", "Write"], ["Read", "Write"], ["Write"]],
        ["! Read", "Write"],
        ["failed Read"],
    ),
    History(
        "a finished one that disappears stays finished",
        [["x Read", "> Write"], ["> Write", "Test"]],
        ["x Read", "> Write", "Test"],
        ["created Test"],
    ),
    History(
        "a finished one that comes back finished is the same",
        [["x Read", "> Write"], ["> Write"], ["x Read", "> Write"]],
        ["x Read", "> Write"],
        [],
    ),
    History(
        "what is to do again in a later list is another piece of work",
        [["x Test", "> Write"], ["> Write"], ["> Write", "Test"]],
        ["x Test", "> Write", "Test"],
        ["created Test"],
    ),
    History(
        "one that failed by disappearing and comes back goes on",
        [["> Read", "Write"], ["Write"], ["> Read", "Write"]],
        ["> Read", "Write"],
        ["reopened Read", "started Read"],
    ),
    History(
        "done and then to do",
        [["x Read", "Write"], ["Read", "Write"]],
        ["Read", "Write"],
        ["reopened Read"],
    ),
    History(
        "done and then under way",
        [["x Read", "Write"], ["> Read", "Write"]],
        ["> Read", "Write"],
        ["reopened Read", "started Read"],
    ),
    History(
        "put back",
        [["> Read", "Write"], ["Read", "> Write"]],
        ["Read", "> Write"],
        ["reopened Read", "started Write"],
    ),
    History(
        "reworded with an id",
        [["#1 Read", "#2 Write"], ["#1 Look at the code", "#2 Write"]],
        ["Look at the code", "Write"],
        ["updated Look at the code"],
    ),
    History(
        "reworded without an id",
        [["> Write tests", "Ship it"], ["> Write the tests for login", "Ship it"]],
        ["> Write the tests for login", "Ship it"],
        ["updated Write the tests for login"],
    ),
    History(
        "other words in the same place are another item",
        [["Read the parser", "Ship it"], ["Call the customer", "Ship it"]],
        ["Call the customer", "Ship it"],
        ["created Call the customer", "removed Read the parser"],
    ),
    History(
        "similar words never open what is done",
        [["x Fix the bug in the parser", "Ship"], ["Fix the bug in the lexer", "Ship"]],
        ["x Fix the bug in the parser", "Fix the bug in the lexer", "Ship"],
        ["created Fix the bug in the lexer"],
    ),
    History(
        "case and spaces are no other text, but another title",
        [["read  the code"], ["Read the code"]],
        ["Read the code"],
        ["updated Read the code"],
    ),
    History(
        "an id is stronger than a text",
        [["#1 Read", "#2 Write"], ["> #2 Read", "#1 Write"]],
        ["> Read", "Write"],
        ["updated Read", "updated Write", "started Read"],
    ),
    History(
        "a text is enough when the ids are new",
        [["#1 Read", "> #2 Write"], ["#a Read", "x #b Write"]],
        ["Read", "x Write"],
        ["completed Write", "fleet_checkpointed 50"],
    ),
    History(
        "an id that is used again means another item",
        [["x #1 Read the code", "#2 Write"], ["#1 Ship it", "#2 Write"]],
        ["x Read the code", "Ship it", "Write"],
        ["created Ship it"],
    ),
    History(
        "items of one text are kept apart",
        [["Test", "Test"], ["x Test", "Test"]],
        ["x Test", "Test"],
        ["started Test", "completed Test", "fleet_checkpointed 50"],
    ),
    History(
        "of items of one text the finished one leaves",
        [["x Test", "Test", "Write"], ["Test", "Write"]],
        ["x Test", "Test", "Write"],
        [],
    ),
    History(
        "a new item in the middle stands there",
        [["Read", "Test"], ["Read", "Write", "Test"]],
        ["Read", "Write", "Test"],
        ["created Write"],
    ),
    History(
        "another order",
        [["Read", "Write", "Test"], ["Test", "Read", "Write"]],
        ["Test", "Read", "Write"],
        [],
    ),
    History(
        "everything is dropped",
        [["> Read", "Write", "x Test"], []],
        ["! Read", "x Test"],
        ["failed Read", "removed Write", "fleet_checkpointed 50"],
    ),
    History("empty texts are nothing", [["", "  ", "Read"]], ["Read"], ["created Read"]),
    History(
        "a whole list may say what it drops",
        [["Read", "> Write"], ["- Read", "> Write"]],
        ["> Write"],
        ["removed Read"],
    ),
    History(
        "half of a list done at once is one step up, never beyond",
        [
            ["x A", "x B", "C", "D"],
            ["x A", "x B", "x C", "D", "E", "F", "G", "H", "I"],
        ],
        ["x A", "x B", "x C", "D", "E", "F", "G", "H", "I"],
        [*(f"created {each}" for each in "EFGHI"), "started C", "completed C"],
    ),
]


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)
def test_lists_become_sorties(history: History) -> None:
    desk = SessionRules()
    log: list[str] = []
    for told in history.lists:
        log = desk.plan(*told)
    assert desk.sorties() == history.sorties
    assert log == history.log
    before, rows = desk.changes(), desk.rows()
    assert desk.plan(*history.lists[-1]) == []
    assert (desk.changes(), desk.rows()) == (before, rows)


# Partial lists: the items that they name, and nothing about the others


UPDATES = [
    History(
        "a task is made, begun and done",
        [["#1 Read"], ["#2 Write"], ["> #1"], ["x #1", "> #2"]],
        ["x Read", "> Write"],
        ["started Write", "completed Read", "fleet_checkpointed 50"],
    ),
    History(
        "the same task told twice, by a tool and by an event",
        [["#1 Read"], ["#1 Read"]],
        ["Read"],
        [],
    ),
    History(
        "two tasks of one text",
        [["#1 Test"], ["#2 Test"], ["x #2"]],
        ["Test", "x Test"],
        ["started Test", "completed Test", "fleet_checkpointed 50"],
    ),
    History(
        "updates of several tasks interleave",
        [["#1 A", "#2 B", "#3 C", "#4 D", "#5 E"], ["> #1"], ["> #2"], ["x #1"], ["> #3", "x #2"]],
        ["x A", "x B", "> C", "D", "E"],
        ["started C", "completed B", "fleet_checkpointed 40"],
    ),
    History("an id that was never announced is no task without a text", [["> #7"]], [], []),
    History(
        "an id that was never announced is one with a text",
        [["> #7 Read"]],
        ["> Read"],
        ["created Read", "started Read"],
    ),
    History(
        "a text may be changed and kept",
        [["#1 Read"], ["> #1 Read the parser"], ["x #1", "#2 Ship"]],
        ["x Read the parser", "Ship"],
        ["created Ship", "completed Read the parser", "fleet_checkpointed 50"],
    ),
    History(
        "an untouched task is dropped",
        [["#1 Read", "#2 Write"], ["- #1"]],
        ["Write"],
        ["removed Read"],
    ),
    History(
        "a task under way is dropped",
        [["> #1 Read", "#2 Write"], ["- #1"]],
        ["! Read", "Write"],
        ["failed Read"],
    ),
    History("dropped before it was announced", [["- #1 Read", "- #2"]], [], []),
    History(
        "dropped by mistake",
        [["> #1 Read", "#2 Write"], ["- #1"], ["> #1"]],
        ["Write", "> Read"],
        ["reopened Read", "started Read"],
    ),
    History(
        "done twice over",
        [["x #1 Read", "#2 Write"], ["> #1"], ["x #1"]],
        ["x Read", "Write"],
        ["completed Read"],
    ),
    History(
        "an id that counts from the beginning again",
        [["x #1 Read the code", "x #2 Write"], ["#1 Ship the release"]],
        ["x Read the code", "x Write", "Ship the release"],
        ["created Ship the release"],
    ),
    History(
        "tasks without ids are told apart by their texts",
        [["Read", "Write"], ["> read"], ["x Read"]],
        ["x Read", "Write"],
        ["updated Read", "completed Read", "fleet_checkpointed 50"],
    ),
    History(
        "a task learns its id later",
        [["Read", "Write"], ["> #1 Read"], ["x #1"]],
        ["x Read", "Write"],
        ["completed Read", "fleet_checkpointed 50"],
    ),
    History(
        "one list says two things of one task",
        [["#1 Read", "#2 Write"], ["> #1", "x #1"]],
        ["x Read", "Write"],
        ["started Read", "completed Read", "fleet_checkpointed 50"],
    ),
]


@pytest.mark.parametrize("history", UPDATES, ids=lambda history: history.name)
def test_updates_change_what_they_name(history: History) -> None:
    desk = SessionRules()
    log: list[str] = []
    for told in history.lists:
        log = desk.update(*told)
    assert desk.sorties() == history.sorties
    assert log == history.log
    before = desk.changes()
    assert desk.update(*history.lists[-1]) == []
    assert desk.changes() == before


def test_updates_go_on_with_what_a_whole_list_said() -> None:
    desk = SessionRules()
    desk.plan("#1 Read", "#2 Write")
    desk.update("> #2", "#3 Test")
    assert desk.sorties() == ["Read", "> Write", "Test"]
    desk.plan("#3 Test", "> #2 Write")
    assert desk.sorties() == ["Test", "> Write"]


# Whose sorties they are


def test_a_plan_takes_the_sorties_that_wait_for_it() -> None:
    desk = SessionRules("Write tests", "Read", "Ship")
    assert desk.plan("> write  tests", "Think") == ["created Think", "started Write tests"]
    assert desk.sorties() == ["> Write tests", "? Read", "? Ship", "Think"]
    assert desk.plan("x write tests", "Think", "Read") == [
        "assigned Read",
        "completed Write tests",
        "fleet_checkpointed 25",
    ]
    assert desk.sortie("Read")["assigned_to"] == AGENT


def test_a_person_s_sortie_is_not_dropped_nor_reworded_nor_moved() -> None:
    desk = SessionRules("Read", "Write", "Ship")
    desk.plan("#1 Ship", "> #2 Read", "#3 Think")
    assert desk.sorties() == ["> Read", "? Write", "Ship", "Think"]
    desk.plan("#3 Think", "#1 Ship the release")
    assert desk.sorties() == ["> Read", "? Write", "Ship", "Think"]
    assert desk.plan() == ["removed Think"]
    assert desk.sorties() == ["> Read", "? Write", "Ship"]


def test_a_sortie_that_was_begun_by_hand_does_not_go_back() -> None:
    desk = SessionRules("Read")
    sorties.start(desk.tx, desk.ctx, SortieStart(desk.rows()[0]["id"], AGENT))
    assert desk.plan("Read") == []
    assert desk.sorties() == ["> Read"]
    assert desk.plan("x Read") == ["completed Read", "fleet_checkpointed 100"]


def test_what_somebody_else_closed_stays_closed() -> None:
    desk = SessionRules()
    desk.plan("Read", "> Write")
    for title in ("Read", "Write"):
        request = SortieComplete(desk.sortie(title)["id"])
        sorties.complete(desk.tx, desk.ctx, request)
    assert desk.plan("Read", "> Write") == []
    assert desk.plan("> Read", "Write") == []
    assert desk.sorties() == ["x Read", "x Write"]


def test_what_blocks_an_agent_is_not_undone_by_a_list_that_is_sent_again() -> None:
    desk = SessionRules()
    desk.plan("> Read", "Write")
    request = SortieBlock(desk.sortie("Read")["id"], "no key", AGENT)
    sorties.block(desk.tx, desk.ctx, request)
    desk.plan("> Read", "Write", "Test")
    assert desk.sorties() == ["| Read", "Write", "Test"]
    desk.plan("Read", "> Write", "Test")
    assert desk.sorties() == ["| Read", "> Write", "Test"]
    desk.plan("> Read", "> Write", "Test")
    assert desk.sorties() == ["> Read", "> Write", "Test"]


def test_a_sortie_that_went_to_another_agent_is_that_agent_s() -> None:
    desk = SessionRules()
    desk.plan("Read", "> Write")
    for title in ("Read", "Write"):
        sorties.assign(desk.tx, desk.ctx, SortieAssign(desk.sortie(title)["id"], "other"))
    assert desk.plan("> Read", "x Write") == []
    assert desk.plan("> #1 Read it", "x Write it") == []
    assert desk.plan() == []
    assert desk.sorties() == ["other: Read", "other: > Write"]


def test_a_successor_takes_over_the_plan_with_the_sorties() -> None:
    desk = SessionRules()
    desk.plan("x Read", "> Write", "Test")
    for title in ("Write", "Test"):
        sorties.assign(desk.tx, desk.ctx, SortieAssign(desk.sortie(title)["id"], "heir"))
    assert desk.plan("> Write", "Test", agent="heir") == []
    assert desk.plan("x Write", agent="heir") == [
        "removed Test",
        "fleet_checkpointed 50",
        "completed Write",
        "fleet_checkpointed 100",
    ]


def test_each_agent_has_a_plan_of_its_own() -> None:
    desk = SessionRules()
    desk.plan("> Read", "Write")
    desk.plan("> Read", "Test", agent="other")
    assert desk.sorties() == ["> Read", "Write", "other: > Read", "other: Test"]
    desk.plan(agent="other")
    assert desk.sorties() == ["> Read", "Write", "other: ! Read"]


def test_a_sortie_that_somebody_removed_comes_back_only_when_it_is_worked_on() -> None:
    desk = SessionRules()
    desk.plan("Read", "Write")
    desk.tx.run("DELETE FROM sorties WHERE title = 'Write'")
    assert desk.plan("Read", "Write") == []
    assert desk.plan("Read", "> Write") == ["created Write", "started Write"]
    assert desk.sorties() == ["Read", "> Write"]


def test_a_mission_that_is_over_hears_no_plan() -> None:
    desk = SessionRules()
    desk.plan("Read")
    missions.cancel(desk.tx, desk.ctx, MissionCancel(desk.mission, "enough"))
    assert desk.plan("> Read", "Write") == []
    desk.mission = "msn-gone"
    assert desk.plan("> Read") == []


def test_work_on_a_plan_begins_a_pending_mission() -> None:
    desk = SessionRules()
    desk.tx.run("UPDATE missions SET status = 'pending'")
    desk.plan("Read")
    assert desk.tx.value("SELECT status FROM missions") == "pending"
    assert desk.plan("> Read")[0] == "mission_started"


def test_what_the_plan_does_is_the_agent_s_doing() -> None:
    desk = SessionRules()
    before = desk.end()
    desk.plan("> Read", "Write", "> Test")
    desk.plan("x Read", "> Ship", "Test")
    desk.plan("Ship")
    rows = desk.tx.all(
        "SELECT DISTINCT agent_id FROM events WHERE seq > :seq AND activity = 1", seq=before
    )
    assert rows == [{"agent_id": AGENT}]


def test_a_sortie_that_was_dropped_says_why_and_blocks_no_completion() -> None:
    desk = SessionRules()
    desk.plan("> Read", "x Write")
    desk.plan("x Write")
    assert desk.sortie("Read")["blocked_reason"] == DROPPED
    assert missions.complete(desk.tx, desk.ctx, MissionComplete(desk.mission)).status == "completed"


def test_what_is_opened_again_bears_no_mark_of_its_end() -> None:
    desk = SessionRules()
    desk.plan("x Read", "> Write")
    desk.plan("Read")
    desk.plan("Read", "Write")
    for title in ("Read", "Write"):
        row = desk.sortie(title)
        assert row["completed_at"] is row["result"] is row["blocked_reason"] is None
        assert row["progress"] == 0
        assert row["started_at"]


def test_long_and_odd_texts_become_titles() -> None:
    desk = SessionRules()
    text = "Read\n\tthe \x1b[31mcode " + "and more " * 100
    desk.send(Planned(items=(PlanItem(text=text, status="pending"),), whole=True))
    (row,) = desk.rows()
    assert row["title"].startswith("Read the [31mcode and more")
    assert len(row["title"]) <= 500
    assert desk.send(Planned(items=(PlanItem(text=text, status="pending"),), whole=True)) == []


# Large plans


def lines(desk: SessionRules) -> list[str]:
    return [effect.text for effect in desk.tx.effects if isinstance(effect, LogLine)]


def test_a_thousand_items_are_followed_and_the_rest_is_passed_over() -> None:
    desk = SessionRules()
    desk.plan(*(f"Step {n} of many words" for n in range(1_010)))
    assert len(desk.rows()) == 1_000
    assert "10 items too many" in "".join(lines(desk))
    told = [f"Step {n} of many other words" for n in range(1_010)]
    desk.plan(*reversed(told))
    assert len(desk.rows()) == 1_000
    before = len(lines(desk))
    assert desk.plan(*reversed(told)) == []
    assert len(lines(desk)) == before


def test_updates_do_not_make_a_plan_larger_than_that() -> None:
    desk = SessionRules()
    desk.plan(*(f"#{n} Step {n}" for n in range(999)))
    desk.update("#a One", "#b Two", "> #5")
    assert len(desk.rows()) == 1_000
    assert desk.sortie("Step 5")["status"] == "in_progress"
