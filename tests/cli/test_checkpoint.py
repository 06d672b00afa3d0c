"""``fleetctl checkpoint``: CLI-001 to CLI-004 and CLI-015 of the test plan."""

import json
import re
from pathlib import Path

import pytest

EXPECTED = re.compile(
    r"Checkpoint created: chk-[0-9a-f]{8}\n"
    r"Mission: msn-[0-9a-f]{8}\n"
    r"Progress: 50%\n"
    r"Sorties: 2\n"
    r"Locks: 1 active\n"
    r"Messages: 1 pending\n"
)


@pytest.mark.case("CLI-001")
def test_CLI_001_checkpoint_creates_a_checkpoint(done, mission):
    first = done("sortie", "list", "--json").json[0]["id"]
    done("sortie", "start", first, "--agent", "spec-1")
    done("sortie", "complete", first)
    done("lock", "acquire", "a.py", "--agent", "spec-1", "--mission", mission)
    done("mail", "send", "Hello", "--from", "spec-1", "--to", "spec-2", "--mission", mission)

    result = done("checkpoint")

    assert EXPECTED.fullmatch(result.out)
    assert result.err == ""


@pytest.mark.case("CLI-002")
def test_CLI_002_checkpoint_targets_the_mission_that_is_named(done, mission):
    other = done("mission", "create", "Mission 2").id("msn")

    result = done("checkpoint", "--mission", other)

    assert other in result.out
    assert mission not in result.out


@pytest.mark.case("CLI-003")
def test_CLI_003_checkpoint_keeps_the_note(done, mission):
    created = done("checkpoint", "--note", "Before refactoring").id("chk")

    shown = done("checkpoints", "show", created)

    assert "Trigger: manual (Before refactoring)" in shown.out


@pytest.mark.case("CLI-004")
def test_CLI_004_checkpoint_returns_the_id_of_what_it_made(done, mission):
    created = done("checkpoint", "--json").json

    assert created["mission_id"] == mission
    assert created["trigger"] == "manual"
    assert created["created_by"] == "cli"
    assert created["version"] == "1.0.0"
    listed = done("checkpoints", "list", "--json").json
    assert [each["id"] for each in listed] == [created["id"]]


@pytest.mark.case("CLI-015")
def test_CLI_015_checkpoint_works_with_nothing_but_this_machine(done, mission, home: Path):
    created = done("checkpoint").id("chk")

    backup = home / "flightline" / "checkpoints" / mission / f"{created}.json"
    assert json.loads(backup.read_text())["id"] == created


def test_quiet_prints_nothing(done, mission):
    result = done("checkpoint", "--quiet")

    assert (result.out, result.err) == ("", "")
    assert len(done("checkpoints", "list", "--json").json) == 1


def test_without_an_active_mission_it_says_how_to_name_one(run, daemon):
    result = run("checkpoint")

    assert result.status == 1
    assert result.out == ""
    assert result.err.splitlines()[0] == (
        "Error: No active mission found. Use --mission <id> to specify."
    )


def test_warnings_go_to_stderr(done, daemon):
    sorties = [{"title": f"Sortie {n}"} for n in range(101)]
    large = done("call", "mission.create", json.dumps({"title": "Large", "sorties": sorties}))

    result = done("checkpoint", "--mission", large.json["id"], "--json")

    assert len(result.json["sorties"]) == 101
    assert result.err.startswith("Warning: ")


def test_an_unknown_mission_is_not_found(run, daemon):
    result = run("checkpoint", "--mission", "msn-00000000")

    assert result.status == 4
    assert result.err.startswith("Error: Mission not found: msn-00000000")


def test_several_active_missions_are_listed(run, done, mission, monkeypatch, home: Path):
    elsewhere = done("mission", "create", "Other", "--project-dir", str(home / "other")).id("msn")
    done("mission", "start", elsewhere)
    monkeypatch.chdir(home)

    result = run("checkpoint")

    assert result.status == 2
    # The sentence names a few, the lines below it name them one by one.
    assert f"\n  {mission}  {home / 'project'}  Test\n" in result.err
    assert f"\n  {elsewhere}  {home / 'other'}  Other\n" in result.err
