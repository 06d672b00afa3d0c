"""``fleetctl mission timeline``: what happened on a mission, as people would tell it."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.client import Fleet
from fleetctl.commands import mission as mission_command
from fleetctl.output import console
from fleetctl.output.text import width, wrapped
from fleetctl.output.views import timeline
from fleetctl.output.views.timeline import timeline_entries
from fleetd.protocol.records import Event
from fleetd.protocol.timestamps import iso, to_ms
from tests.support.processes import environment
from tests.support.terminal import terminal

NOON = to_ms("2026-01-05T12:00:00.000Z")
MIN = 60_000


def event(minute: float, kind: str, agent: str | None = "alice", **data: object) -> Event:
    return Event(
        seq=int(minute * 100),
        type=kind,
        stream="mission:msn-1",
        timestamp=iso(NOON + int(minute * MIN)),
        mission_id="msn-1",
        agent_id=agent,
        data=data,
    )


def progress(minute: float, percent: int, agent: str = "alice", notes: str = "") -> Event:
    told = {"percent": percent, "notes": notes, "title": "Login", "sortie_id": agent}
    return event(minute, "sortie_progressed", agent, **told)


def texts(events: list[Event], **options: object) -> list[str]:
    return [entry.text for entry in timeline_entries(events, NOON + 60 * MIN, **options)]  # type: ignore[arg-type]


def test_progress_of_one_sortie_is_one_line_though_others_work_meanwhile():
    events = [each for n in range(40) for each in (progress(n / 10, n), progress(n / 10, n, "bob"))]

    assert texts(events) == [
        'alice went from 0% to 39% of "Login" in 40 steps',
        'bob went from 0% to 39% of "Login" in 40 steps',
    ]
    assert len(texts(events, full=True)) == 80


def test_what_the_agent_did_in_between_parts_a_run():
    events = [
        progress(0, 10),
        progress(1, 20, notes="Half"),
        event(2, "sortie_blocked", title="Login", reason="No server"),
        progress(3, 30),
    ]

    assert texts(events) == [
        'alice went from 10% to 20% of "Login" in 2 steps: Half',
        'alice is blocked on "Login": No server',
        'alice is at 30% of "Login"',
    ]


def test_what_is_told_as_one_line_was_not_silent_in_between():
    events = [progress(0, 10), progress(1, 20), progress(11, 30), progress(12, 40)]

    assert texts(events) == [
        'alice went from 10% to 20% of "Login" in 2 steps',
        "silent for 10 min",
        'alice went from 30% to 40% of "Login" in 2 steps',
    ]


def test_times_go_one_way_though_runs_overlap(capsys, monkeypatch):
    monkeypatch.setattr(console, "human_readable", lambda: True)
    monkeypatch.setattr(console, "width", lambda: 80)
    monkeypatch.setattr(console, "now_ms", lambda: NOON + 30 * MIN)
    files = [event(minute, "lock_acquired", file="/p/a.py") for minute in (0, 3, 6)]
    said = [event(minute, "agent_noted", "bob", text="x") for minute in (1, 2)]
    entries = timeline_entries(
        sorted([*files, *said], key=lambda each: each.timestamp), NOON + 30 * MIN
    )
    mission = SimpleNamespace(id="msn-1", title="Test", progress_percent=0)

    timeline.show_timeline(mission, [], entries, whole=False)  # type: ignore[arg-type]

    lines = capsys.readouterr().out.splitlines()[-2:]
    assert "30 min ago  alice locked /p/a.py 3 times" in lines[0]
    assert "29 min ago  bob" in lines[1]


def test_files_commands_sorties_and_messages_are_gathered():
    events = [
        *(event(0, "sortie_created", None, title=name) for name in "ABCD"),
        *(event(1, "file_modified", file=f"/p/{name}.py") for name in "abcda"),
        *(event(2, "command_finished", result=result) for result in ("PASS", "FAIL", "PASS")),
        *(event(3, "message_sent", to=[name], subject="Hi") for name in ("bob", "carol")),
        *(event(3, "lock_acquired", held_by="alice", file="/p/a.py") for _ in range(2)),
    ]

    assert texts(events, inside="/p") == [
        'The operator added 4 sorties: "A", "B", "C" and 1 more',
        "alice edited 4 files: a.py, b.py, c.py and 1 more",
        "alice ran 3 commands, 1 failed",
        "alice wrote 2 messages to bob, carol",
        "alice locked a.py 2 times",
    ]


def test_silences_stand_where_they_were_and_nothing_that_the_daemon_says_breaks_them():
    events = [
        event(0, "sortie_started", title="Login"),
        event(5, "context_compacted", None, inactivity_duration_ms=5 * MIN),
        event(6, "recovery_available", None, checkpoint_id="chk-1"),
        event(42, "sortie_completed", title="Login"),
    ]

    assert texts(events, goes_on=True) == [
        'alice began "Login"',
        "silent for 42 min",
        "The mission can be recovered from chk-1",
        'alice completed "Login"',
        "silent for 18 min, and still is",
    ]
    assert texts(events)[-1] == 'alice completed "Login"'


def test_what_hooks_told_late_stands_at_its_own_time():
    late = event(30, "file_modified", file="a.py", happened_at=iso(NOON + MIN))

    assert timeline_entries([late], NOON)[0].begun == NOON + MIN


@given(st.text(max_size=200), st.integers(min_value=2, max_value=50), st.sampled_from([None, 2]))
@settings(deadline=None)
def test_wrapped_text_fits_and_loses_nothing_but_spaces(text, columns, most):
    lines = wrapped(text, columns, most)

    assert all(width(each) <= columns for each in lines)
    assert most is None or len(lines) <= most
    if most is None:
        assert "".join("".join(lines).split()) == "".join(text.split())


@given(st.text(alphabet="ab 漢", max_size=200), st.integers(min_value=2, max_value=20))
@settings(deadline=None)
def test_words_that_are_to_be_copied_stay_whole(text, columns):
    lines = wrapped(text, columns, whole_words=True)

    assert " ".join(lines).split() == text.split()
    assert all(width(each) <= columns or " " not in each for each in lines)


def test_piped_it_is_one_exact_line_for_each_entry(done, mission):
    lines = done("mission", "timeline").out.splitlines()

    assert [line[24:] for line in lines] == [
        '  The operator created the mission "Test"',
        '  The operator added 2 sorties: "One", "Two"',
        "  The operator started the mission",
    ]
    assert all(to_ms(line[:24]) for line in lines)
    assert done("mission", "timeline", mission, "--limit", "1").out.splitlines() == lines[-1:]
    entries = done("mission", "timeline", "--json").json
    assert [entry["kind"] for entry in entries] == [
        "mission_created",
        "sortie_created",
        "mission_started",
    ]
    assert len(entries[1]["events"]) == 2


def test_a_mission_timeline_of_more_than_5000_events_drops_no_line(done, daemon):
    sorties = [{"title": f"Sortie {n}"} for n in range(5_500)]
    large = json.dumps({"title": "Large", "sorties": sorties})
    mission = done("call", "mission.create", large).json["id"]

    told = done("mission", "timeline", mission).out.splitlines()

    assert told[0].endswith('The operator created the mission "Large"')
    assert "5500 sorties" in told[1]
    assert done("mission", "timeline", mission, "--since", "1h").out.splitlines() == told


def test_a_mission_timeline_goes_back_only_as_far_as_it_shows(done, mission, monkeypatch):
    monkeypatch.setattr(mission_command, "EVENTS", 4)
    for number in range(30):
        done("call", "event.append", json.dumps({"type": f"kind_{number}", "mission_id": mission}))
    asked = []
    call = Fleet.call

    def counted(self: Fleet, request: Any, **more: Any) -> Any:
        asked.append(request)
        if request.method == "event.list":
            request.limit = min(request.limit, 4)
        return call(self, request, **more)

    monkeypatch.setattr(Fleet, "call", counted)
    whole = done("mission", "timeline", mission, "--all", "--json").json
    seen = len([each for each in asked if each.method == "event.list"])
    asked.clear()
    newest = done("mission", "timeline", mission, "--limit", "3", "--json").json

    assert newest == whole[-3:]
    assert len([each for each in asked if each.method == "event.list"]) == 1 < seen


@pytest.mark.parametrize("given", ["2w", "h", "2 h", "", "1.5h"])
def test_an_age_that_is_none_is_refused(run, given):
    result = run("mission", "timeline", "--since", given)

    assert result.status == 2
    assert "30m, 2h or 3d" in result.err


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_on_a_terminal_it_fits_and_has_days_and_bars(done, mission, home: Path, columns):
    sortie = done("sortie", "list", "--json").json[0]["id"]
    done("sortie", "start", sortie, "--agent", "alice")
    done("sortie", "block", sortie, "--reason", "Nobody knows where 漢字 are to be had " * 3)
    command = [sys.executable, "-m", "fleetctl", "mission", "timeline"]

    env = environment(home) | {"TZ": "UTC"}
    with terminal(command, env=env, cwd=home / "project", columns=columns) as seen:
        assert seen.rest() == 0
        lines = [line for line in seen.lines() if line]

    assert lines[0].startswith(f"Test ({mission})  ░░░░░░░░   0%")
    [rule] = [n for n, line in enumerate(lines) if line.startswith("── ")]
    assert lines[rule].rstrip("─").endswith(", UTC ")
    assert any("━" in line for line in lines[1:rule]) is (columns >= 60)
    assert lines[rule + 1].split(" ", 1)[1].strip().removeprefix("now").strip().startswith("The op")
    assert lines[-1].endswith("…")
