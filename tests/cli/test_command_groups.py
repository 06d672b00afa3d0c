"""Missions, sorties, agents, locks and mail on the command line, as text and as JSON."""

import json
from pathlib import Path

import pytest


def test_a_mission_from_creation_to_deletion(run, done, daemon, answer):
    created = done("mission", "create", "Add login", "--sortie", "Form", "--priority", "high")
    mission = created.id("msn")
    assert created.out.startswith(f"Mission created: {mission}\nTitle: Add login\nSorties: 1\n")

    assert done("mission", "start").out == f"Mission started: {mission}  Add login\n"
    assert done("mission", "current", "--json").json["id"] == mission
    assert f"Mission: {mission}\n" in done("mission", "current").out
    done("mission", "update", mission, "--title", "Add logout", "--description", "All of it")
    shown = done("mission", "show").out
    assert (
        "Title: Add logout\nDescription: All of it\nStatus: in_progress\nPriority: high\n" in shown
    )
    assert "Form" in shown
    assert done("mission", "list").out.splitlines()[1].split()[:4] == [
        mission,
        "in_progress",
        "0%",
        "high",
    ]

    refused = run("mission", "complete")
    assert refused.status == 1
    done("sortie", "start", done("sortie", "list", "--json").json[0]["id"], "--agent", "s")
    done("sortie", "complete", done("sortie", "list", "--json").json[0]["id"])
    assert done("mission", "complete", "--json").json["status"] == "completed"

    assert run("mission", "delete", mission).status == 2
    answer("n")
    assert run("mission", "delete", mission).status == 3
    answer("y")
    assert done("mission", "delete", mission).out == f"Mission deleted: {mission}  Add logout\n"
    assert run("mission", "show", mission).status == 4
    assert done("mission", "list").out == "No missions found.\n"


@pytest.mark.parametrize(("verb", "status"), [("fail", "failed"), ("cancel", "cancelled")])
def test_a_mission_that_is_given_up(done, mission, verb, status):
    result = done("mission", verb, "--reason", "No budget")

    assert result.out == f"Mission {status}: {mission}  Test\n"
    listed = done("mission", "list", "--status", status, "--json").json
    assert [each["id"] for each in listed] == [mission]


def test_the_project_is_the_git_repository_around_the_directory(
    done, daemon, home: Path, monkeypatch
):
    inner = home / "project" / "src"
    inner.mkdir()
    (home / "project" / ".git").mkdir()
    monkeypatch.chdir(inner)

    created = done("mission", "create", "Here", "--json").json
    assert created["project_dir"] == str(home / "project")
    relative = done("mission", "create", "There", "--project-dir", "x", "--json").json
    assert relative["project_dir"] == str(inner / "x")
    listed = done("mission", "list", "--project-dir", "x", "--json").json
    assert [each["id"] for each in listed] == [relative["id"]]


def test_start_without_a_pending_mission_says_where_it_looked(run, daemon, home: Path):
    result = run("mission", "start")

    assert result.status == 1
    assert result.err.startswith(f"Error: No pending mission found in {home / 'project'}.")


def test_start_without_an_id_takes_the_newest_pending_mission(done, daemon):
    older = done("mission", "create", "Older").id("msn")
    newer = done("mission", "create", "Newer").id("msn")

    assert done("mission", "start").id("msn") == newer
    assert done("mission", "start").id("msn") == older


def test_no_current_mission(run, daemon):
    result = run("mission", "current")

    assert result.status == 1
    assert result.err.startswith("Error: No active mission found.")


def test_a_sortie_from_creation_to_completion(run, done, mission):
    sortie = done("sortie", "create", "Three", "--file", "c.py").id("srt")
    unassigned = run("sortie", "start", sortie)
    assert unassigned.status == 2
    assert "--agent" in unassigned.err
    assert (
        done("sortie", "assign", sortie, "spec-1").out == f"Sortie assigned: {sortie} to spec-1\n"
    )
    assert done("sortie", "start", sortie).out == f"Sortie started: {sortie}  Three by spec-1\n"
    progress = done("sortie", "progress", sortie, "--percent", "40", "--notes", "Half of it")
    assert progress.out == f"Sortie progress: {sortie}  40%\n"
    done("sortie", "block", sortie, "--reason", "No key")
    assert "Blocked: No key\n" in done("sortie", "show", sortie).out
    done("sortie", "unblock", sortie, "--agent", "spec-1")
    completed = done("sortie", "complete", sortie, "--result", "Works", "--json").json
    assert (completed["status"], completed["result"]) == ("completed", "Works")
    shown = done("sortie", "show", sortie, "--json").json
    assert shown["files"] == ["c.py"]
    rows = done("sortie", "list", "--assigned-to", "spec-1").out.splitlines()
    assert rows[0].split() == ["ID", "STATUS", "PROGRESS", "AGENT", "TITLE"]
    assert rows[1].split() == [sortie, "completed", "100%", "spec-1", "Three"]


def test_a_sortie_that_fails_and_one_that_is_removed(run, done, mission):
    first, second = (each["id"] for each in done("sortie", "list", "--json").json)
    done("sortie", "start", first, "--agent", "spec-1")

    failed = done("sortie", "fail", first, "--reason", "Too hard", "--json").json
    assert failed["status"] == "failed"
    assert done("sortie", "remove", second).out == f"Sortie removed: {second}\n"
    assert run("sortie", "show", second).status == 4
    assert done("sortie", "list", "--status", "pending").out == "No sorties found.\n"


@pytest.mark.parametrize(
    "command",
    [
        ("sortie", "progress", "srt-1a2b3c4d"),
        ("agent", "note", "a"),
        ("mission", "update", "msn-1"),
    ],
)
def test_a_report_that_says_nothing_is_a_usage_error(run, home, command):
    result = run(*command)

    assert result.status == 2
    assert "There is nothing to" in result.err


def test_an_agent_from_start_to_leaving(run, done, mission):
    started = done("agent", "start", "spec-1", "--mission", mission, "--harness", "claude")
    assert started.out == "Agent registered: spec-1 (specialist)\n"
    done(
        "agent",
        "note",
        "spec-1",
        "--last-action",
        "Wrote it",
        "--next-step",
        "Test",
        "--blocker",
        "x",
    )
    shown = done("agent", "show", "spec-1").out
    assert f"Harness: claude\nMission: {mission}\n" in shown
    assert "Noted last action: Wrote it\n" in shown
    assert "Next steps:\n  - Test\n" in shown
    note = done("agent", "show", "spec-1", "--json").json["note"]
    assert note == {"last_action": "Wrote it", "next_steps": ["Test"], "blockers": ["x"]}
    assert done("agent", "heartbeat", "spec-1").out == "Agent spec-1 is active.\n"
    assert "spec-1  specialist  active  claude" in done("agent", "list").out
    assert done("agent", "deregister", "spec-1").out == "Agent deregistered: spec-1\n"
    gone = done("agent", "list", "--status", "gone", "--json").json
    assert [each["id"] for each in gone] == ["spec-1"]
    assert run("agent", "show", "spec-9").status == 4


@pytest.fixture
def waiting(done, mission, monkeypatch):
    """Let the mission count as silent in this shell."""
    done("checkpoint")
    monkeypatch.setenv("FLEET_ACTIVITY_THRESHOLD_MS", "1")
    return mission


def test_agent_start_without_a_terminal_names_what_waits(done, waiting):
    result = done("agent", "start", "spec-1")

    assert len(result.out.splitlines()) == 2
    assert waiting in result.out
    assert f"fleetctl resume --mission {waiting}" in result.out


def test_agent_start_with_auto_resume_restores_and_briefs(done, waiting):
    result = done("agent", "start", "spec-1", "--auto-resume")

    assert "Recovery complete:\n" in result.out
    assert "--- Recovery Context ---\n" in result.out


def test_agent_start_asks_at_a_terminal(done, waiting, answer):
    answer("n")
    refused = done("agent", "start", "spec-1")
    assert "Found stale mission: Test\n" in refused.out
    assert refused.err == "Proceed with recovery? [y/N] "
    assert "Not restored." in refused.out

    answer("y")
    assert "Recovery complete:\n" in done("agent", "start", "spec-1").out


def test_agent_start_as_json_is_one_document(done, waiting):
    plain = done("agent", "start", "spec-1", "--json").json
    assert plain["recovery"]["needed"] is True
    assert plain["restored"] is None

    restored = done("agent", "start", "spec-1", "--json", "--auto-resume").json
    assert restored["agent"]["id"] == "spec-1"
    assert restored["restored"]["mission_id"] == waiting


def test_a_lock_is_given_back_and_renewed_by_its_file(run, done, daemon, home: Path):
    lock = done("lock", "acquire", "a.py", "--agent", "spec-1", "--json").json["id"]
    assert f"Lock renewed: {lock}\n" in done("lock", "renew", "a.py", "--agent", "spec-1").out
    taken = done("lock", "force-release", "a.py", "--agent", "spec-2", "--reason", "r")
    assert f"Lock released by force: {lock}" in taken.out
    gone = run("lock", "release", "a.py", "--agent", "spec-1")
    assert (gone.status, gone.err.splitlines()[0]) == (4, "Error: There is no lock on a.py.")


def test_a_lock_from_acquiring_to_release(run, done, daemon, home: Path):
    granted = done("lock", "acquire", "a.py", "--agent", "spec-1", "--json").json
    lock, token = granted["id"], str(granted["fencing_token"])
    assert granted["normalized_path"] == str(home / "project" / "a.py")
    assert done("lock", "check", "a.py", token).out == "The token is valid.\n"

    conflict = run("lock", "acquire", "a.py", "--agent", "spec-2", "--json")
    assert conflict.status == 1
    assert conflict.out == ""
    error = json.loads(conflict.err)["error"]
    assert (error["kind"], error["code"]) == ("lock_conflict", -32003)
    assert error["existing_lock"]["held_by"] == "spec-1"

    renewed = done("lock", "renew", lock, "--agent", "spec-1", "--timeout-ms", "900000")
    assert f"Lock renewed: {lock}\n" in renewed.out
    table = done("lock", "list", "--file", "a.py").out.splitlines()
    assert table[0].split() == [
        *("ID", "STATUS", "MODE", "HELD", "BY", "PURPOSE", "TOKEN", "EXPIRES", "FILE")
    ]
    assert table[1].split()[:5] == [lock, "active", "exclusive", "spec-1", "edit"]
    assert done("lock", "check", "a.py").out.splitlines() == table
    assert done("lock", "release", lock, "--agent", "spec-1").out.startswith("Lock released: ")
    stale = run("lock", "check", "a.py", token, "--json")
    assert (stale.status, stale.json) == (
        1,
        {"valid": False, "locks": [], "paths": {}},
    )
    assert done("lock", "check", "a.py").out == "No lock covers this file.\n"
    assert done("lock", "list").out == "No locks found.\n"


def test_locks_are_listed_as_seen_from_here_or_only_those_of_here(
    done, run, daemon, home, monkeypatch
):
    for name in ("one", "two"):
        (home / "home" / name / ".git").mkdir(parents=True)
        (home / "home" / name / "src").mkdir()
        monkeypatch.chdir(home / "home" / name)
        done("lock", "acquire", "src/form.py", "--agent", name)
    monkeypatch.chdir(home / "home" / "one" / "src")

    def files(*options):
        return [line.split()[-1] for line in done("lock", "list", *options).out.splitlines()[1:]]

    assert files() == ["src/form.py", "~/two/src/form.py"]
    assert files("--here") == ["src/form.py"]
    assert files("--here", "--agent", "two") == []
    place = f"{home}/home/two/src/form.py"
    named = "~/two/src/form.py"
    assert done("lock", "release", named, "--agent", "two").out.endswith(f"  {place}\n")


def test_locks_are_listed_in_a_directory_that_was_deleted(done, run, daemon, home, monkeypatch):
    done("lock", "acquire", "/srv/a.py", "--agent", "spec-1")
    (home / "gone").mkdir()
    monkeypatch.chdir(home / "gone")
    (home / "gone").rmdir()

    assert done("lock", "list").out.splitlines()[1].endswith(" /srv/a.py")
    assert "does not exist any more" in run("lock", "list", "--here").err


def test_directories_and_patterns_are_locked_alone_or_shared(done, run, daemon, home):
    project = home / "project"
    (project / ".git").mkdir()
    (project / "what*.py").touch()
    whole = done("lock", "acquire", "src/", "--agent", "spec-1", "--shared")
    assert f"File: {project}/src/\nHeld by: spec-1, shared\n" in whole.out
    done("lock", "acquire", "src/**/*.py", "--agent", "spec-2", "--shared")
    done("lock", "acquire", "lib/[ab].py", "--agent", "spec-2", "--pattern")
    done("lock", "acquire", "app/[id].ts", "--agent", "spec-1")
    done("lock", "acquire", "what*.py", "--agent", "spec-1")

    def listed(*command):
        lines = done("lock", *command).out.splitlines()[1:]
        return sorted((line.split()[-1], line.split()[2], line.split()[3]) for line in lines)

    both = [("src/", "shared", "spec-1"), ("src/**/*.py", "shared", "spec-2")]
    assert listed("check", "src/deep/a.py") == both
    assert listed("list", "--file", "src/") == both[:1]
    assert listed("list", "--here") == sorted(
        [
            *both,
            ("lib/[ab].py", "exclusive", "spec-2"),
            ("app/[id].ts", "exclusive", "spec-1"),
            ("what*.py", "exclusive", "spec-1"),
        ]
    )
    refused = run("lock", "acquire", "src/a.py", "--agent", "spec-3")
    assert (refused.status, refused.out) == (1, "")
    assert "src/a.py overlaps src/, which is locked by spec-1 until" in refused.err
    assert run("lock", "acquire", "lib/b.py", "--agent", "spec-1").status == 1
    assert run("lock", "acquire", "app/i.ts", "--agent", "spec-2").status == 0
    assert run("lock", "acquire", "whatever.py", "--agent", "spec-2").status == 0
    for whole_of_it in ("**", ".", "./"):
        refused = run("lock", "acquire", whole_of_it, "--agent", "spec-1")
        assert (refused.status, refused.out) == (2, "")
        assert "(--all)" in refused.err

    released = done("lock", "release", "src/**/*.py", "--agent", "spec-2")
    assert released.out.endswith(f"  {project}/src/**/*.py\n")
    assert done("lock", "release", "src/", "--agent", "spec-1").out.endswith(f"  {project}/src/\n")
    assert done("lock", "check", "src/a.py").out == "No lock covers this file.\n"


def test_a_lock_that_is_taken_away(done, daemon):
    lock = done("lock", "acquire", "a.py", "--agent", "spec-1").id("lck")

    taken = done("lock", "force-release", lock, "--agent", "boss", "--reason", "Stuck")

    assert taken.out.startswith(f"Lock released by force: {lock}")
    assert taken.out.endswith("(was held by spec-1)\n")
    ended = done("lock", "list", "--all", "--json").json
    assert [each["status"] for each in ended] == ["forced"]


def test_a_message_from_sending_to_acknowledging(run, done, daemon):
    sent = done(
        "mail", "send", "Need the list", "--from", "spec-1", "--to", "dispatch", "--body", "a\nb"
    )
    message = sent.id("msg")
    assert sent.out == f"Message sent: {message} to dispatch\n"
    assert done("mail", "list", "--pending", "--json").json[0]["from"] == "spec-1"

    inbox = done("mail", "inbox", "dispatch").out
    assert "From: spec-1  To: dispatch\nSubject: Need the list\na\nb\n" in inbox
    assert done("mail", "list").out.splitlines()[1].split()[-4:] == [
        "delivered",
        "Need",
        "the",
        "list",
    ]
    requeued = done("mail", "requeue", message, "--agent", "dispatch")
    assert requeued.out == f"Message queued again: {message}\n"
    assert len(done("mail", "inbox", "dispatch", "--json").json) == 1
    acked = done("mail", "ack", message, "--agent", "dispatch")
    assert acked.out == f"Message acknowledged: {message}\n"
    assert done("mail", "inbox", "dispatch").out == "No messages found.\n"
    assert len(done("mail", "inbox", "dispatch", "--all", "--json").json) == 1
    assert run("mail", "ack", message, "--agent", "dispatch").status == 1


def test_the_command_that_a_refused_deletion_names_can_be_followed(run, done, mission):
    refused = run("mission", "delete", mission, "--yes")
    assert refused.status == 1
    words = refused.err.split("fleetctl ")[1].split()
    assert words[-2:] == ["--reason", "…"]
    done(*words)
    done("mission", "delete", mission, "--yes")


def test_what_is_said_of_a_removed_sortie_that_was_begun_can_be_followed(run, done, mission):
    sortie = done("sortie", "list", "--json").json[0]["id"]
    done("agent", "start", "spec-1")
    done("sortie", "start", sortie, "--agent", "spec-1")
    refused = run("sortie", "remove", sortie)
    assert refused.status == 1
    done(*refused.err.split("fleetctl ")[1].split())
