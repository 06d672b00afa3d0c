"""``fleetctl note``: kept for a mission, listed, pinned by a person, withdrawn with a reason."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import Daemon, Result

Done = Callable[..., Result]


@pytest.fixture
def mission(daemon: Daemon, done: Done) -> str:
    made = done("mission", "create", "Add login", "--json").json
    done("mission", "start", made["id"])
    return str(made["id"])


def register(done: Done, mission: str) -> None:
    asked = {"agent_id": "alice", "role": "specialist", "mission_id": mission}
    done("call", "agent.register", json.dumps(asked))


def test_a_note_is_kept_for_the_mission_of_the_directory(
    mission: str, done: Done, home: Path
) -> None:
    told = done("note", "ruled-out", "bcrypt", "--because", "It cuts", "--path", "src/a.py")
    [note] = done("note", "list", "--json").json
    assert told.out == f"Noted: {note['id']}  ruled-out  bcrypt\n"
    assert (note["mission_id"], note["kind"], note["because"], note["origin"]) == (
        *(mission, "ruled-out", "It cuts", "person"),
    )
    assert note["path"].endswith("src/a.py")
    register(done, mission)
    done("note", "decision", "argon2", "--mission", mission, "--agent", "alice")
    done("note", "constraint", "Never push")
    done("note", "finding", "Tests need Redis")
    rows = done("note", "list").out.splitlines()
    assert [row.split()[0] for row in rows[:1]] == ["ID"]
    assert len(rows) == 5
    assert "bcrypt, because It cuts [src/a.py]" in rows[1]
    assert "alice" in rows[2]
    [hers] = done("note", "list", "--agent", "alice", "--json").json
    assert hers["text"] == "argon2"
    assert len(done("note", "list", "--kind", "finding", "--json").json) == 1


def test_a_note_is_pinned_and_withdrawn(mission: str, done: Done, run: Done) -> None:
    note = done("note", "decision", "argon2", "--json").json["id"]
    assert done("note", "pin", note).out == f"Note pinned: {note}  argon2\n"
    assert "- Pinned by your user (decision): “argon2”" in done("context").out
    assert "pinned" in done("note", "list").out
    assert done("note", "pin", note, "--remove").out == f"Pin removed: {note}  argon2\n"
    assert done("note", "withdraw", note[:8], "--reason", "Too slow").out == (
        f"Note withdrawn: {note}  argon2\n"
    )
    assert done("note", "list").out == "No notes found.\n"
    assert "argon2 (withdrawn: Too slow)" in done("note", "list", "--withdrawn").out
    assert "argon2" not in done("context").out
    again = run("note", "withdraw", note, "--reason", "Twice")
    assert again.status == 1
    assert "was withdrawn" in again.err


def test_an_agents_shell_cannot_pin(
    mission: str, done: Done, run: Done, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(done, mission)
    monkeypatch.setenv("FLEET_AGENT_ID", "alice")
    note = done("note", "decision", "argon2", "--json").json
    assert (note["origin"], note["agent_id"]) == ("agent", "alice")
    refused = run("note", "pin", note["id"])
    assert refused.status == 1
    assert "Only a person can pin a note; alice is an agent." in refused.err


def test_what_is_no_note_is_refused_with_what_it_takes(mission: str, run: Done) -> None:
    unknown = run("note", "guess", "It works")
    assert unknown.status == 2
    for kind in ("decision", "ruled-out", "constraint", "finding"):
        assert kind in unknown.err
    empty = run("note", "decision", "  ")
    assert (empty.status, "1 to 2,000 characters" in empty.err) == (2, True)
    long = run("note", "decision", "x" * 2_001)
    assert (long.status, "2000 characters" in long.err) == (2, True)
    wire = json.dumps({"kind": "guess", "text": "x", "mission_id": mission})
    raw = run("call", "note.add", wire)
    assert raw.status == 2
    for kind in ("decision", "ruled-out", "constraint", "finding"):
        assert kind in raw.err


def test_what_others_said_does_not_reach_the_terminal_as_it_is(mission: str, done: Done) -> None:
    told = done("note", "decision", "a\x1b[2Jb\nc")
    assert "\x1b" not in told.out + done("note", "list").out
