"""``fleetctl resume``: CLI-005 to CLI-007 of the test plan, and how it asks."""

import os
import re
import subprocess
import sys

import pytest

COUNTS = r"- Sorties: \d+\n- Locks: \d+\n- Messages: \d+\n"


@pytest.fixture
def stale(monkeypatch, mission, done):
    """Return a checkpoint of a mission that counts as silent in this shell."""
    checkpoint = done("checkpoint").id("chk")
    monkeypatch.setenv("FLEET_ACTIVITY_THRESHOLD_MS", "1")
    return checkpoint


@pytest.mark.case("CLI-005")
def test_CLI_005_resume_loads_the_latest_checkpoint(done, mission):
    done("checkpoint")
    latest = done("checkpoint").id("chk")

    result = done("resume", "-y")

    assert f"Checkpoint: {latest} (0%)" in result.out
    assert re.search(rf"Recovery complete:\n{COUNTS}", result.out)


@pytest.mark.case("CLI-006")
def test_CLI_006_resume_loads_the_checkpoint_that_is_named(done, mission):
    first = done("checkpoint", "--note", "first").id("chk")
    done("checkpoint", "--note", "second")

    result = done("resume", "--checkpoint", first, "--yes", "--json").json

    assert result["checkpoint_id"] == first
    assert result["mission_id"] == mission
    assert result["success"] is True


@pytest.mark.case("CLI-007")
def test_CLI_007_resume_dry_run_shows_and_changes_nothing(done, mission):
    done("checkpoint")
    before = done("checkpoints", "list", "--json").json

    result = done("resume", "--dry-run")

    assert re.match(rf"\[DRY RUN\] Would restore:\n{COUNTS}", result.out)
    assert "Recovery complete" not in result.out
    assert done("checkpoints", "list", "--json").json == before


def test_a_stale_mission_is_announced_and_briefed(done, stale, answer):
    answer("y")

    result = done("resume")

    lines = result.out.splitlines()
    assert lines[0] == "Found stale mission: Test"
    assert re.fullmatch(r"Last activity: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", lines[1])
    assert lines[2] == f"Checkpoint: {stale} (0%)"
    assert result.err == "Proceed with recovery? [y/N] "
    assert "\n--- Recovery Context ---\n## Recovery Context\n" in result.out


def test_a_stale_mission_may_be_named(done, stale, mission):
    result = done("resume", "--mission", mission, "--yes")

    assert result.out.startswith("Found stale mission: Test\n")
    assert f"Checkpoint: {stale} (0%)" in result.out


def test_a_recovery_that_the_rules_forbid_says_what_failed(run, done, mission):
    checkpoint = done("checkpoint").id("chk")
    done("mission", "cancel", "--reason", "Enough")

    result = run("resume", "--checkpoint", checkpoint, "--yes")

    assert result.status == 1
    assert result.err.startswith("Error: Failed to restore from checkpoint: ")
    assert done("mission", "show", mission, "--json").json["status"] == "cancelled"


def test_a_mission_that_is_not_silent_is_resumed_without_being_called_stale(done, mission):
    done("checkpoint")

    result = done("resume", "-y")

    assert result.out.startswith("Resuming mission: Test\n")


@pytest.mark.parametrize("words", ["n", "", "maybe"])
def test_anything_but_yes_cancels(run, done, stale, answer, words):
    answer(words)

    result = run("resume")

    assert result.status == 3
    assert result.out.endswith("Recovery cancelled.\n")
    assert "Recovery complete" not in result.out
    assert done("call", "recovery.list").json["recoveries"] == []


def begun(done, title):
    """Return the id of a mission of this directory that is under way and has a checkpoint."""
    mission = done("mission", "create", title).id("msn")
    done("mission", "start", mission)
    done("checkpoint", "--mission", mission)
    return mission


@pytest.fixture
def elsewhere(home, monkeypatch):
    """Go to a directory that has no mission."""
    other = home / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    return other


def recovered(done):
    """Return the missions that somebody was briefed about."""
    return [each["mission_id"] for each in done("call", "recovery.list").json["recoveries"]]


def test_several_stale_missions_of_this_directory_are_shown_and_the_newest_is_taken(
    done, stale, mission
):
    begun(done, "Newer")

    result = done("resume", "--yes")

    assert "2 missions of this directory wait for recovery:" in result.out
    assert mission in result.out
    assert "Found stale mission: Newer" in result.out


def test_resume_takes_the_stale_mission_of_this_directory_before_a_newer_one_elsewhere(
    done, stale, mission, elsewhere, monkeypatch
):
    begun(done, "Newer, elsewhere")
    monkeypatch.chdir(elsewhere.parent / "project")

    result = done("resume", "--yes")

    assert result.out.startswith("Found stale mission: Test\n")
    assert "Newer" not in result.out
    assert recovered(done) == [mission]


@pytest.mark.parametrize("more", [("--yes",), ("--dry-run",), ("--json",)])
def test_resume_touches_no_mission_of_another_directory_but_lists_them(
    run, done, stale, mission, elsewhere, more
):
    result = run("resume", *more)

    assert result.status == 2
    assert mission in result.err
    assert str(elsewhere.parent / "project") in result.err
    assert result.out == ""
    assert recovered(done) == []


def test_resume_with_nothing_to_recover_anywhere_is_told_so_elsewhere_too(run, mission, elsewhere):
    result = run("resume", "--yes")

    assert result.status == 1
    assert result.err.splitlines()[0] == "Error: No missions need recovery."


def test_resume_takes_the_mission_of_the_agent_before_that_of_the_directory(
    done, stale, mission, elsewhere
):
    done("agent", "start", "spec-1", "--mission", mission)
    begun(done, "Here")

    assert done("resume", "--agent", "spec-1", "--yes", "--json").json["mission_id"] == mission


def test_resume_in_an_agent_s_shell_takes_the_agent_s_mission(
    done, stale, mission, elsewhere, monkeypatch
):
    done("agent", "start", "spec-1", "--mission", mission)
    begun(done, "Here")
    monkeypatch.setenv("FLEET_AGENT_ID", "spec-1")

    assert done("resume", "--yes", "--json").json["mission_id"] == mission


@pytest.mark.parametrize("registered", [True, False])
def test_resume_takes_the_mission_of_the_agent_that_is_taken_over_before_the_successor_s(
    done, stale, mission, elsewhere, registered
):
    if registered:
        done("agent", "start", "spec-1", "--mission", mission)
    sortie = done("sortie", "list", "--mission", mission, "--json").json[0]["id"]
    done("sortie", "start", sortie, "--agent", "spec-1")
    done("agent", "start", "spec-2", "--mission", begun(done, "Here"))

    result = done("resume", "--take-over-from", "spec-1", "--agent", "spec-2", "--yes", "--json")

    assert result.json["mission_id"] == mission
    assert done("sortie", "show", sortie, "--json").json["assigned_to"] == "spec-2"


def test_resume_dry_run_names_mission_directory_and_agent(done, stale, mission, home):
    result = done("resume", "--dry-run").out
    assert f"\nMission: {mission}  Test\nDirectory: {home / 'project'}\nAgent: none named" in result

    done("sortie", "create", "Three")
    done("agent", "start", "spec-1", "--mission", mission)
    result = done("resume", "--dry-run", "--agent", "spec-2", "--take-over-from", "spec-1")
    assert "\nAgent: spec-2, takes over from spec-1\n" in result.out

    told = done("resume", "--dry-run", "--agent", "spec-2", "--json").json
    assert (told["mission_id"], told["mission_title"]) == (mission, "Test")
    assert (told["project_dir"], told["agent_id"]) == (str(home / "project"), "spec-2")


def test_resume_dry_run_lists_the_other_missions_of_this_directory(done, stale, mission):
    newer = begun(done, "Newer")

    out = done("resume", "--dry-run").out

    assert out.startswith("[DRY RUN] Would restore:\n")
    assert f"\nMission: {newer}  Newer\n" in out
    assert "2 missions of this directory wait for recovery:" in out


def test_without_a_terminal_it_refuses_and_names_yes(stale, mission, subprocess_run):
    result = subprocess_run("resume")

    assert result.returncode == 2
    assert result.stderr.startswith("Error: ")
    assert "--yes" in result.stderr.splitlines()[0]


def test_json_without_a_terminal_implies_yes(stale, mission, subprocess_run, done):
    result = subprocess_run("resume", "--json")

    assert result.returncode == 0
    assert result.stderr == ""
    assert '"success": true' in result.stdout


def test_json_at_a_terminal_asks_on_stderr(run, stale, answer):
    answer("n")

    result = run("resume", "--json")

    assert result.status == 3
    assert result.out == ""
    assert "Found stale mission: Test" in result.err
    assert '"kind": "cancelled"' in result.err


def test_a_person_at_a_real_terminal_is_asked(stale, mission):
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    with open(ours, "r+b", buffering=0) as terminal:
        process = subprocess.Popen(
            [sys.executable, "-m", "fleetctl", "resume"],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
        )
        terminal.write(b"y\n")
        out, _ = process.communicate(timeout=60)
        shown = terminal.read(1_000)
        os.close(theirs)

    assert process.returncode == 0
    assert b"Proceed with recovery? [y/N] " in shown
    assert b"Recovery complete:" in out


def test_nothing_to_resume(run, daemon):
    result = run("resume")

    assert result.status == 1
    assert result.err.splitlines()[0] == "Error: No missions need recovery."


def test_a_mission_without_a_checkpoint_cannot_be_resumed(run, mission):
    result = run("resume", "--mission", mission, "--yes")

    assert result.status == 1
    assert result.err.splitlines()[0] == f"Error: No checkpoint found for mission: {mission}"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--mission", "msn-00000000", "Error: Mission not found: msn-00000000"),
        ("--checkpoint", "chk-00000000", "Error: Checkpoint not found: chk-00000000"),
    ],
)
def test_unknown_ids_are_not_found(run, mission, option, value, message):
    result = run("resume", option, value, "--yes")

    assert result.status == 4
    assert result.err.startswith(message)


def test_a_checkpoint_of_another_mission_is_refused(run, done, mission):
    other = done("mission", "create", "Other").id("msn")
    checkpoint = done("checkpoint", "--mission", mission).id("chk")

    result = run("resume", "--checkpoint", checkpoint, "--mission", other, "--yes")

    assert result.status == 2
    assert f"belongs to mission {mission}" in result.err


def test_lock_conflicts_that_are_left_are_listed_and_no_failure(done, mission):
    lock = done("lock", "acquire", "a.py", "--agent", "spec-1", "--mission", mission).id("lck")
    done("checkpoint")
    done("lock", "release", lock, "--agent", "spec-1")
    done("lock", "acquire", "a.py", "--agent", "spec-2", "--mission", mission)

    result = done("resume", "--yes")

    assert re.search(r"\nErrors:\n  - Lock conflict: \S*a\.py held by spec-2\n", result.out)


def test_what_the_one_who_recovers_holds_is_no_conflict(done, mission):
    lock = done("lock", "acquire", "a.py", "--agent", "spec-1", "--mission", mission).id("lck")
    done("checkpoint")
    done("lock", "release", lock, "--agent", "spec-1")
    done("agent", "start", "spec-2")
    done("lock", "acquire", "a.py", "--agent", "spec-2", "--mission", mission)

    result = done("resume", "--yes", "--agent", "spec-2")

    assert "Lock conflict" not in result.out
    assert re.search(r"Lock not restored: \S*a\.py \(spec-2, who recovers, holds it\)", result.out)


def test_force_locks_takes_what_others_hold(done, mission):
    lock = done("lock", "acquire", "a.py", "--agent", "spec-1", "--mission", mission).id("lck")
    done("checkpoint")
    done("lock", "release", lock, "--agent", "spec-1")
    done("lock", "acquire", "a.py", "--agent", "spec-2", "--mission", mission)

    result = done("resume", "--force-locks", "--json", "--yes").json

    assert result["errors"] == []
    held = done("lock", "list", "--json").json
    assert [each["held_by"] for each in held] == ["spec-1"]


def test_rewind_undoes_finished_work_and_otherwise_it_is_kept(done, mission):
    sortie = done("sortie", "list", "--json").json[0]["id"]
    checkpoint = done("checkpoint").id("chk")
    done("sortie", "start", sortie, "--agent", "spec-1")
    done("sortie", "complete", sortie)

    kept = done("resume", "--checkpoint", checkpoint, "--yes")
    assert f"\nKept:\n  - {sortie}: " in kept.out
    assert done("sortie", "show", sortie, "--json").json["status"] == "completed"

    done("resume", "--checkpoint", checkpoint, "--yes", "--rewind")
    assert done("sortie", "show", sortie, "--json").json["status"] == "pending"


def test_a_successor_takes_over_from_a_lost_agent(done, mission):
    sortie = done("sortie", "list", "--json").json[0]["id"]
    done("sortie", "start", sortie, "--agent", "spec-1")
    done("checkpoint")

    result = done(
        "resume", "--agent", "spec-2", "--take-over-from", "spec-1", "--scope", "agent", "--yes"
    )

    assert "spec-1" in result.out
    assert done("sortie", "show", sortie, "--json").json["assigned_to"] == "spec-2"


def test_a_take_over_prints_an_undo_line_and_can_be_undone(done, mission):
    own = done("mission", "create", "Mend the parser").id("msn")
    sortie = done("sortie", "list", "--mission", mission, "--json").json[0]["id"]
    done("sortie", "start", sortie, "--agent", "spec-1")
    done("agent", "start", "spec-2", "--mission", own)
    done("checkpoint", "--mission", mission)

    result = done(
        *(
            "resume",
            "--mission",
            mission,
            "--agent",
            "spec-2",
            "--take-over-from",
            "spec-1",
            "--yes",
        )
    )

    assert f"- agent spec-2: in {own} -> in {mission}" in result.out
    undo = re.search(r"To undo this: fleetctl (.*)\n", result.out)
    assert undo is not None
    assert done("agent", "show", "spec-2", "--json").json["mission_id"] == mission
    done(*undo[1].split(), "--yes")
    assert done("agent", "show", "spec-2", "--json").json["mission_id"] == own
    assert done("sortie", "show", sortie, "--json").json["assigned_to"] == "spec-1"


@pytest.mark.parametrize("options", [("--take-over-from", "spec-1"), ("--scope", "agent")])
def test_options_that_need_an_agent_say_so(run, mission, options):
    result = run("resume", *options)

    assert result.status == 2
    assert "--agent" in result.err


def test_a_wrong_threshold_in_the_shell_is_named(run, mission, monkeypatch):
    monkeypatch.setenv("FLEET_ACTIVITY_THRESHOLD_MS", "soon")

    result = run("resume", "--yes")

    assert result.status == 2
    assert result.err.startswith("Error: FLEET_ACTIVITY_THRESHOLD_MS")
    assert "'soon'" in result.err


def test_a_recovery_tells_what_it_changed_and_how_to_undo_it(done, mission):
    start = done("checkpoint").id("chk")
    sortie = done("sortie", "create", "Write it").id("srt")
    checkpoint = done("checkpoint").id("chk")
    done("sortie", "complete", sortie, "--agent", "spec-1")

    rewound = done("resume", "--checkpoint", checkpoint, "--rewind", "--yes").out

    assert start not in rewound
    assert f"- sortie {sortie}: completed 100%, spec-1 -> pending 0%" in rewound
    undo = re.search(r"To undo this: fleetctl (.*)\n", rewound)
    assert undo is not None
    # What was undone is not told as the last action, also not later.
    assert "spec-1 completed" not in done("context").out
    done(*undo[1].split(), "--yes")
    assert done("sortie", "show", sortie, "--json").json["status"] == "completed"
