"""Missions that sessions get by themselves: begun, closed, opened again; a person's stay theirs."""

import json
from typing import Any

import msgspec
import pytest

from fleetd.config import Config
from fleetd.domain.core.tx import Row
from fleetd.domain.missions import auto_mission, missions, sorties
from fleetd.domain.missions.selection import current_row, mission_of_directory, mission_to_join
from fleetd.protocol.events import MissionCancelled
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionComplete,
    MissionCreate,
    MissionFail,
    MissionStart,
    MissionUpdate,
)
from fleetd.protocol.requests.sortie import SortieFail
from tests.unit.sessions.session_rules import AGENT, SessionRules

PROJECT = "/home/me/project"


def begun(desk: SessionRules, title: str | None = "Add a login", **more: Any) -> Row:
    """Give the agent's session a mission, which the desk's plans go to from now on."""
    wanted = {"agent_id": AGENT, "project_dir": PROJECT, "title": title, "harness": "claude"}
    desk.mission = auto_mission.begin(desk.tx, desk.ctx, **(wanted | more))
    desk.tx.run("UPDATE agents SET mission_id = :id", id=desk.mission)
    return mission(desk)


def mission(desk: SessionRules) -> Row:
    row = desk.tx.one("SELECT * FROM missions WHERE id = :id", id=desk.mission)
    assert row is not None
    return row


def end(desk: SessionRules) -> list[str]:
    """Let the agent leave; return what the log says of the end."""
    desk.tx.run("UPDATE agents SET status = 'gone' WHERE id = :id", id=AGENT)
    before = desk.end()
    auto_mission.end(desk.tx, desk.ctx, desk.mission, "logout")
    return [told.partition(" ")[0] for told in desk.log(before)]


def resume(desk: SessionRules) -> bool:
    desk.now_ms += 60_000
    return auto_mission.reopen(desk.tx, desk.ctx, desk.mission)


def test_a_session_s_mission_is_under_way_and_says_that_it_is_automatic() -> None:
    desk = SessionRules()
    row = begun(desk)
    assert (row["status"], row["title"], row["project_dir"]) == (
        "in_progress",
        "Add a login",
        PROJECT,
    )
    assert row["started_at"] == desk.ctx.now
    assert (row["origin"], row["metadata_json"]) == ("session", "{}")
    told = desk.tx.all("SELECT type, agent_id FROM events WHERE mission_id = :id", id=desk.mission)
    assert told == [
        {"type": "mission_created", "agent_id": AGENT},
        {"type": "mission_started", "agent_id": AGENT},
    ]


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("Add a login\nwith all that belongs to it", "Add a login"),
        ("\n\n  \n## Add a login", "Add a login"),
        ("> - \n* Add  a\tlogin\x1b", "Add a login"),
        (
            "Look at the parser, which fails for empty files, and then mend it so that it does not",
            "Look at the parser, which fails for empty files, and then mend it so that it…",
        ),
        ("x" * 80, "x" * 80),
        ("x" * 81, "x" * 79 + "…"),
        ("short " + "x" * 200, "short " + "x" * 73 + "…"),
        (None, "claude session in project"),
        ("", "claude session in project"),
        (" \n# ", "claude session in project"),
    ],
)
def test_the_title_is_the_first_line_of_the_first_prompt(prompt: str | None, title: str) -> None:
    assert begun(SessionRules(), prompt)["title"] == title
    assert len(title) <= 80


@pytest.mark.parametrize(
    ("project_dir", "title"),
    [
        (None, "codex session"),
        ("/", "codex session"),
        ("/a/b\x1b[31m/", "codex session in b[31m"),
        ("relative", "codex session"),
    ],
)
def test_without_a_prompt_the_directory_gives_the_title(
    project_dir: str | None, title: str
) -> None:
    assert begun(SessionRules(), None, project_dir=project_dir, harness="codex")["title"] == title


def test_no_prompt_is_kept_in_a_title_when_none_is_kept_at_all() -> None:
    desk = SessionRules(config=Config(keep_prompts=False))
    assert begun(desk, "My password is hunter2")["title"] == "claude session in project"


@pytest.mark.parametrize("plan", [[], ["x Read", "x Write"]])
def test_with_nothing_open_a_mission_ends_completed(plan: list[str]) -> None:
    desk = SessionRules()
    begun(desk)
    desk.plan(*plan)
    assert end(desk) == ["fleet_checkpointed", "mission_completed"]
    row = mission(desk)
    assert (row["status"], row["completed_at"]) == ("completed", desk.ctx.now)
    final = desk.tx.one("SELECT * FROM checkpoints ORDER BY seq DESC LIMIT 1")
    assert final is not None
    assert (final["trigger_details"], final["progress_percent"]) == ("Mission completed", 100)


def test_what_was_given_up_is_not_open() -> None:
    desk = SessionRules()
    begun(desk)
    desk.plan("> Read", "x Write")
    sorties.fail(desk.tx, desk.ctx, SortieFail(desk.sortie("Read")["id"], "no"))
    end(desk)
    assert mission(desk)["status"] == "completed"


def test_with_something_open_it_is_called_off_after_a_checkpoint_and_says_so() -> None:
    desk = SessionRules()
    begun(desk)
    desk.plan("x Read", "> Write", "Test")
    assert end(desk) == ["mission_cancelled", "fleet_checkpointed"]
    assert mission(desk)["status"] == "cancelled"
    told = desk.tx.one("SELECT * FROM events WHERE type = 'mission_cancelled'")
    assert told is not None
    assert msgspec.json.decode(told["data_json"])["reason"] == (
        "Closed with its session (logout), 2 of 3 sorties open; resumes with it"
    )
    kept = desk.tx.one("SELECT * FROM checkpoints ORDER BY seq DESC LIMIT 1")
    assert kept is not None
    assert msgspec.json.decode(kept["mission_json"])["status"] == "cancelled"
    assert kept["sortie_count"] == 3


def test_an_end_by_itself_is_nobody_s_activity() -> None:
    desk = SessionRules()
    begun(desk)
    desk.plan("> Read")
    before = mission(desk)["last_activity_seq"]
    end(desk)
    resume(desk)
    assert mission(desk)["last_activity_seq"] == before


@pytest.mark.parametrize("status", ["active", "waiting", "idle"])
def test_a_mission_stays_open_while_somebody_lives_in_it(status: str) -> None:
    desk = SessionRules()
    begun(desk)
    desk.agent("other", status)
    assert end(desk) == []
    desk.tx.run("UPDATE agents SET status = 'gone'")
    assert end(desk) == ["fleet_checkpointed", "mission_completed"]


def test_who_is_lost_or_in_another_mission_keeps_no_mission_open() -> None:
    desk = SessionRules()
    elsewhere = desk.mission
    begun(desk)
    desk.agent("lost", "lost")
    desk.agent("busy", "active", mission=elsewhere)
    assert end(desk) == ["fleet_checkpointed", "mission_completed"]


def test_the_agent_that_leaves_may_count_as_living_still() -> None:
    desk = SessionRules()
    begun(desk)
    auto_mission.end(desk.tx, desk.ctx, desk.mission, "logout")
    assert mission(desk)["status"] == "in_progress"
    auto_mission.end(desk.tx, desk.ctx, desk.mission, "logout", leaving=AGENT)
    assert mission(desk)["status"] == "completed"


def test_what_is_over_gone_or_a_person_s_is_not_ended() -> None:
    desk = SessionRules()
    assert end(desk) == []
    assert mission(desk)["status"] == "in_progress"
    begun(desk)
    end(desk)
    assert end(desk) == []
    auto_mission.end(desk.tx, desk.ctx, "msn-gone", "logout")


def test_a_session_that_resumes_finds_everything_as_it_was() -> None:
    desk = SessionRules()
    begun(desk)
    desk.plan("x Read", "> Write", "Test")
    before, sorties = mission(desk), desk.rows()
    end(desk)
    desk.now_ms += 60_000
    assert resume(desk)
    row = mission(desk)
    changing = ("updated_at", "active_awake_ms")
    assert {k: v for k, v in row.items() if k not in changing} == {
        k: v for k, v in before.items() if k not in changing
    }
    assert row["active_awake_ms"] == desk.ctx.awake_ms
    assert desk.rows() == sorties
    assert desk.log()[-1] == "mission_reopened"
    # The plan goes on, and a milestone that was passed is not passed again.
    assert desk.plan("x Read", "> Write", "Test") == []
    assert desk.plan("Read", "> Write", "Test") == ["reopened Read"]
    assert desk.plan("x Read", "> Write", "Test") == ["started Read", "completed Read"]


def test_a_mission_closes_and_opens_as_often_as_its_session() -> None:
    desk = SessionRules()
    begun(desk)
    desk.plan("> Read")
    for _ in range(3):
        end(desk)
        assert mission(desk)["status"] == "cancelled"
        assert resume(desk)
    desk.plan("x Read")
    end(desk)
    assert mission(desk)["status"] == "completed"
    assert resume(desk)
    assert desk.plan("Read") == ["reopened Read"]


def test_an_open_mission_needs_no_opening() -> None:
    desk = SessionRules()
    before = desk.end()
    assert resume(desk)
    begun(desk)
    assert resume(desk)
    assert "mission_reopened" not in desk.log(before)


def test_what_a_person_ended_stays_ended() -> None:
    desk = SessionRules()
    missions.cancel(desk.tx, desk.ctx, MissionCancel(desk.mission, "enough"))
    assert not resume(desk)
    begun(desk)
    missions.complete(desk.tx, desk.ctx, MissionComplete(desk.mission))
    assert not resume(desk)
    assert mission(desk)["status"] == "completed"
    desk.mission = "msn-gone"
    assert not resume(desk)


def test_what_a_person_ended_after_it_had_opened_again_stays_ended() -> None:
    desk = SessionRules()
    begun(desk)
    end(desk)
    # A recovery that rewinds opens a mission without a word to us.
    desk.tx.run(
        "UPDATE missions SET status = 'in_progress', closed_reason = NULL, completed_at = NULL"
    )
    desk.now_ms += 60_000
    missions.cancel(desk.tx, desk.ctx, MissionCancel(desk.mission, "enough"))
    assert not resume(desk)


def test_who_gives_it_a_title_makes_it_their_own() -> None:
    desk = SessionRules()
    begun(desk)
    before = desk.end()
    made = missions.update(desk.tx, desk.ctx, MissionUpdate(desk.mission, title="Login"))
    assert (made.title, made.origin) == ("Login", "person")
    told = desk.tx.one("SELECT data_json FROM events WHERE seq > :seq", seq=before)
    assert told is not None
    assert msgspec.json.decode(told["data_json"]) == {"fields": ["title", "origin"]}
    assert end(desk) == []
    assert mission_to_join(desk.tx, desk.ctx, PROJECT) is not None


def test_one_that_gets_its_title_after_its_end_still_resumes_with_its_session() -> None:
    desk = SessionRules()
    begun(desk)
    desk.plan("> Read")
    end(desk)
    missions.update(desk.tx, desk.ctx, MissionUpdate(desk.mission, title="Login"))
    assert resume(desk)
    assert mission(desk)["status"] == "in_progress"


def test_a_clients_metadata_automatic_makes_no_mission_one_that_the_daemon_made() -> None:
    desk = SessionRules(metadata={"automatic": True, "ended_with_session": "now"})
    row = mission(desk)
    assert row["origin"] == "person"
    assert json.loads(row["metadata_json"]) == {"automatic": True, "ended_with_session": "now"}
    assert end(desk) == []
    missions.cancel(desk.tx, desk.ctx, MissionCancel(desk.mission, "enough"))
    assert not resume(desk)


def test_no_metadata_of_an_update_drops_what_the_daemon_needs_of_its_origin() -> None:
    desk = SessionRules()
    begun(desk)
    missions.update(desk.tx, desk.ctx, MissionUpdate(desk.mission, metadata={"team": "a"}))
    assert mission(desk)["origin"] == "session"
    desk.plan("> Read")
    assert end(desk) == ["mission_cancelled", "fleet_checkpointed"]
    update = MissionUpdate(desk.mission, metadata={"team": "b"}, priority="high")
    assert missions.update(desk.tx, desk.ctx, update).closed_reason == "session"
    assert resume(desk)
    assert json.loads(mission(desk)["metadata_json"]) == {"team": "b"}


def test_every_end_says_its_closed_reason_and_every_opening_clears_it() -> None:
    desk = SessionRules()
    assert mission(desk)["closed_reason"] is None
    ended = missions.cancel(desk.tx, desk.ctx, MissionCancel(desk.mission, "enough"))
    assert ended.closed_reason == "person"
    begun(desk)
    assert missions.fail(desk.tx, desk.ctx, MissionFail(desk.mission, "no")).closed_reason == (
        "person"
    )
    begun(desk)
    ended = missions.complete(desk.tx, desk.ctx, MissionComplete(desk.mission))
    assert ended.closed_reason == "person"
    begun(desk)
    end(desk)
    assert (mission(desk)["status"], mission(desk)["closed_reason"]) == ("completed", "session")
    assert resume(desk)
    assert mission(desk)["closed_reason"] is None
    desk.plan("> Read")
    end(desk)
    assert (mission(desk)["status"], mission(desk)["closed_reason"]) == ("cancelled", "session")
    told = desk.tx.one(
        "SELECT data_json FROM events WHERE type = 'mission_cancelled' ORDER BY seq DESC"
    )
    assert told is not None
    assert json.loads(told["data_json"])["closed_reason"] == "session"


def test_what_was_merged_into_another_mission_opens_no_more() -> None:
    desk = SessionRules()
    begun(desk)
    payload = MissionCancelled(reason="Merged", closed_reason="merged", merged_into="msn-1")
    missions.close_unfinished(desk.tx, desk.ctx, desk.mission, payload)
    assert mission(desk)["closed_reason"] == "merged"
    assert not resume(desk)


# Which mission a directory belongs to


def created(
    desk: SessionRules, title: str, project_dir: str = PROJECT, *, start: bool = True
) -> str:
    made = missions.create(desk.tx, desk.ctx, MissionCreate(title, project_dir=project_dir))
    if start:
        missions.start(desk.tx, desk.ctx, MissionStart(made.id))
    return made.id


def test_nobody_joins_another_session_s_mission() -> None:
    desk = SessionRules()
    begun(desk)
    assert mission_of_directory(desk.tx, desk.ctx, PROJECT) is None
    assert mission_to_join(desk.tx, desk.ctx, PROJECT) is None
    assert mission_to_join(desk.tx, desk.ctx, None) is None


def test_a_session_joins_what_somebody_created_for_its_directory() -> None:
    desk = SessionRules()
    pending = created(desk, "Pending", start=False)
    created(desk, "Elsewhere", "/home/me/other")
    row = mission_to_join(desk.tx, desk.ctx, f"{PROJECT}/src")
    assert row is not None
    assert row["id"] == pending
    under_way = created(desk, "Under way", "/home/me")
    begun(desk)
    row = mission_to_join(desk.tx, desk.ctx, f"{PROJECT}/src")
    assert row is not None
    assert row["id"] == under_way
    row = mission_of_directory(desk.tx, desk.ctx, PROJECT)
    assert row is not None
    assert row["id"] == under_way
    missions.cancel(desk.tx, desk.ctx, MissionCancel(under_way, "enough"))
    row = mission_to_join(desk.tx, desk.ctx, PROJECT)
    assert row is not None
    assert row["id"] == pending
    assert mission_to_join(desk.tx, desk.ctx, "/home/mean") is None


def current(desk: SessionRules, cwd: str, agent_id: str | None = None) -> str | None:
    row = current_row(desk.tx, desk.ctx, cwd, agent_id)
    return row["title"] if row else None


def test_the_current_mission_is_one_s_own_then_a_person_s_then_the_last_at_work() -> None:
    desk = SessionRules()
    own = begun(desk, "First")["id"]
    begun(desk, "Second")
    desk.tx.run("UPDATE agents SET mission_id = :id", id=own)
    assert current(desk, PROJECT) == "Second"
    assert current(desk, PROJECT, AGENT) == "First"
    assert current(desk, PROJECT, "nobody") == "Second"
    created(desk, "Created")
    assert current(desk, PROJECT) == "Created"
    assert current(desk, PROJECT, AGENT) == "First"


def test_elsewhere_the_only_mission_that_somebody_created_is_the_current_one() -> None:
    desk = SessionRules()
    begun(desk, "First")
    begun(desk, "Second")
    assert current(desk, "/elsewhere") == "Mission"
    desk.tx.run("UPDATE missions SET status = 'completed' WHERE title IN ('Mission', 'First')")
    assert current(desk, "/elsewhere") is None
