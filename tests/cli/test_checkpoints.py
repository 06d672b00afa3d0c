"""``fleetctl checkpoints``: CLI-008 to CLI-014 of the test plan."""

import json
import re
from pathlib import Path

import pytest

ROW = re.compile(
    r"chk-[0-9a-f]{8}    \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z  manual     0%       2"
)


@pytest.fixture
def five(done, mission):
    """Return the ids of five checkpoints, oldest first."""
    return [done("checkpoint", "--note", f"Note {n}").id("chk") for n in range(5)]


@pytest.mark.case("CLI-008")
def test_CLI_008_list_shows_all_newest_first(done, five):
    lines = done("checkpoints", "list").out.splitlines()

    assert lines[0].split() == ["ID", "TIMESTAMP", "TRIGGER", "PROGRESS", "SORTIES"]
    assert lines[1] == "-" * 70
    assert all(ROW.fullmatch(line) for line in lines[2:7])
    assert [line.split()[0] for line in lines[2:7]] == five[::-1]
    assert lines[7:] == ["", "Total: 5 checkpoints"]


@pytest.mark.case("CLI-009")
def test_CLI_009_list_targets_the_mission_that_is_named(done, five):
    other = done("mission", "create", "Other").id("msn")
    only = done("checkpoint", "--mission", other).id("chk")

    listed = done("checkpoints", "list", "--mission", other, "--json").json

    assert [each["id"] for each in listed] == [only]


def test_list_has_a_limit_and_says_that_there_is_more(done, five):
    result = done("checkpoints", "list", "--limit", "2")

    assert five[4] in result.out
    assert five[2] not in result.out
    assert "Total: 5 checkpoints\nShowing the newest 2" in result.out


def test_a_mission_without_checkpoints(done, mission):
    assert done("checkpoints", "list").out == "No checkpoints found.\n"
    assert done("checkpoints", "list", "--json").json == []


def test_list_without_an_active_mission_fails(run, daemon):
    result = run("checkpoints", "list")

    assert result.status == 1
    assert result.err.startswith("Error: No active mission found. Use --mission <id> to specify.")


@pytest.mark.case("CLI-010")
def test_CLI_010_show_displays_details(done, mission, home: Path):
    sortie = done("sortie", "list", "--json").json[0]["id"]
    done("sortie", "start", sortie, "--agent", "spec-1")
    done("sortie", "progress", sortie, "--file", "a.py", "--file", "b.py")
    done("lock", "acquire", "a.py", "--agent", "spec-1", "--mission", mission)
    done("mail", "send", "Hi", "--from", "spec-1", "--to", "x", "--to", "y", "--mission", mission)
    checkpoint = done("checkpoint", "--note", "Why").id("chk")

    lines = done("checkpoints", "show", checkpoint).out.splitlines()

    assert lines[0] == f"Checkpoint: {checkpoint}"
    assert lines[1] == f"Mission: {mission}"
    assert lines[2].startswith("Created: ")
    assert lines[3:8] == [
        "Trigger: manual (Why)",
        "Progress: 0%",
        "Created by: cli",
        "",
        "Sorties (2):",
    ]
    assert lines[8] == f"  {sortie}  in_progress  spec-1         a.py, b.py"
    assert lines[9].endswith("  pending      -              -")
    assert lines[11] == "Active Locks (1):"
    assert re.fullmatch(r"  \S*a\.py +spec-1         edit", lines[12])
    assert lines[14:16] == [
        "Pending Messages (1):",
        "  From: spec-1  To: [x, y]  Subject: Hi",
    ]
    assert lines[17] == "Recovery Context:"
    assert lines[18].startswith("  Last Action: ")
    assert lines[19] == "  Next Steps:"
    assert any(line.startswith("  Blockers: ") for line in lines)
    assert any(line.startswith("  Files Modified: ") for line in lines)


@pytest.mark.case("CLI-011")
def test_CLI_011_show_json_is_the_whole_checkpoint(done, five):
    shown = done("checkpoints", "show", five[0], "--json").json

    assert shown["id"] == five[0]
    assert shown["trigger_details"] == "Note 0"
    assert {"sorties", "active_locks", "pending_messages", "recovery_context"} <= shown.keys()
    assert len(shown["sorties"]) == 2


def test_show_takes_a_unique_prefix(done, mission):
    checkpoint = done("checkpoint").id("chk")

    assert checkpoint in done("checkpoints", "show", checkpoint[:8]).out


def test_show_of_an_unknown_checkpoint(run, daemon):
    result = run("checkpoints", "show", "chk-00000000")

    assert result.status == 4
    assert result.err.splitlines()[0] == "Error: Checkpoint not found: chk-00000000"


@pytest.mark.case("CLI-012")
def test_CLI_012_prune_deletes_old_ones(done, five):
    result = done("checkpoints", "prune", "--older-than", "0", "--keep", "2", "-y")

    assert result.out.startswith("Found 3 checkpoints to prune:\n")
    assert result.out.endswith("\n\nDeleted 3 checkpoints.\n")
    listed = done("checkpoints", "list", "--json").json
    assert [each["id"] for each in listed] == [five[4], five[3]]


@pytest.mark.case("CLI-013")
def test_CLI_013_prune_dry_run_deletes_nothing(done, five, mission):
    result = done("checkpoints", "prune", "--older-than", "0", "--keep", "2", "--dry-run")

    lines = result.out.splitlines()
    assert lines[0] == "Found 3 checkpoints to prune:"
    assert sorted(line.split()[0] for line in lines[1:4]) == sorted(five[:3])
    assert all(line.split()[1:4:2] == [mission, "manual"] for line in lines[1:4])
    assert all(re.search(r"  manual  \d+(\.\d)? k?B$", line) for line in lines[1:4])
    assert re.fullmatch(r"Total: 3 checkpoints, \d\.\d kB", lines[4])
    assert lines[5:] == ["", "[DRY RUN] No checkpoints were deleted."]
    assert len(done("checkpoints", "list", "--json").json) == 5


@pytest.mark.case("CLI-014")
@pytest.mark.parametrize("keep", [1, 4])
def test_CLI_014_prune_keeps_the_newest_n(done, five, keep):
    done("checkpoints", "prune", "--older-than", "0", "--keep", str(keep), "--yes")

    listed = done("checkpoints", "list", "--json").json
    assert [each["id"] for each in listed] == five[::-1][:keep]


def test_nothing_to_prune(done, five):
    assert done("checkpoints", "prune").out == "No checkpoints to prune.\n"
    assert done("checkpoints", "prune", "--json", "--yes").json["deleted"] == 0


def test_prune_asks_and_a_no_cancels(run, done, five, answer):
    answer("n")
    cancelled = run("checkpoints", "prune", "--older-than", "0", "--keep", "2")
    assert cancelled.status == 3
    assert cancelled.out.endswith("Prune cancelled.\n")
    assert cancelled.err == "Proceed? [y/N] "

    answer("y")
    result = done("checkpoints", "prune", "--older-than", "0", "--keep", "2")
    assert result.out.count("Found 3 checkpoints to prune:") == 1
    assert result.out.endswith("\nDeleted 3 checkpoints.\n")


def test_prune_without_a_terminal_names_yes(run, five):
    result = run("checkpoints", "prune", "--older-than", "0", "--keep", "2")

    assert result.status == 2
    assert "--yes" in result.err


def test_delete_removes_row_and_file(run, done, mission, home: Path):
    checkpoint = done("checkpoint").id("chk")
    backup = home / "flightline" / "checkpoints" / mission / f"{checkpoint}.json"
    assert backup.exists()

    result = done("checkpoints", "delete", checkpoint)

    assert result.out == f"Deleted checkpoint: {checkpoint}\n"
    assert run("checkpoints", "show", checkpoint).status == 4
    assert not backup.exists()


def test_verify_checks_the_current_mission_or_all(run, done, mission):
    here = done("checkpoint").id("chk")
    other = done("mission", "create", "Other").id("msn")
    there = done("checkpoint", "--mission", other).id("chk")

    def subjects(*argv):
        return {
            each["subject"]
            for each in done("checkpoints", "verify", *argv, "--json").json["findings"]
        }

    assert subjects() == {here}
    assert subjects("--mission", other) == subjects(there) == {there}
    assert subjects("--all") == {here, there}
    assert run("checkpoints", "verify", "--all", "--mission", other).status == 2
    done("mission", "cancel", mission, "--reason", "over")
    result = run("checkpoints", "verify")
    assert result.status == 1
    assert "Use --mission <id>, or --all for every mission." in result.err


def test_verify_tells_of_a_wrong_latest_and_of_foreign_names(run, done, mission, home: Path):
    first, second = (done("checkpoint").id("chk") for _ in range(2))
    folder = home / "flightline" / "checkpoints" / mission
    (folder / "latest.json").unlink()
    (folder / "latest.json").symlink_to(f"{first}.json")
    (folder / "notes.txt").write_text("mine")

    bad = run("checkpoints", "verify")
    assert bad.status == 1
    assert f"{folder}/latest.json  points at {first}.json" in bad.out
    assert f"{folder}/notes.txt  is not a name that fleetd uses; it is ignored" in bad.out
    mended = done("checkpoints", "verify", "--repair")
    assert f"it names {second} now" in mended.out
    assert (folder / "latest.json").readlink() == Path(f"{second}.json")
    assert (folder / "notes.txt").read_text() == "mine"
    done("checkpoints", "verify")


def test_verify_finds_a_damaged_file_and_repairs_it(run, done, mission, home: Path):
    checkpoint = done("checkpoint").id("chk")
    backup = home / "flightline" / "checkpoints" / mission / f"{checkpoint}.json"
    assert done("checkpoints", "verify").out.endswith("Everything is in order.\n")

    backup.write_text("{}")
    damaged = run("checkpoints", "verify", checkpoint)
    assert damaged.status == 1
    assert "WRONG" in damaged.out
    assert run("checkpoints", "verify", "--json").json["ok"] is False

    repaired = done("checkpoints", "verify", "--repair")
    assert "fixed" in repaired.out
    assert json.loads(backup.read_text())["id"] == checkpoint


def test_a_briefing_says_which_copy_was_no_good(done, mission, home: Path):
    checkpoint = done("checkpoint").id("chk")
    stray = home / "flightline" / "checkpoints" / mission / "chk-00000000.json"
    stray.write_text("{")

    briefing = done("context")

    assert f"Corrupted checkpoint file: {stray}" in briefing.err
    assert "it stays in place" in briefing.err
    assert done("context", "--json").json["checkpoint_id"] == checkpoint


def test_pull_writes_the_files_and_says_where(done, five, mission, home: Path):
    place = home / "flightline" / "checkpoints" / ".pulled" / mission
    size = sum(path.stat().st_size for path in place.parents[1].glob(f"{mission}/chk-*.json"))

    told = done("checkpoints", "pull").out

    assert told == (
        f"Pulled 5 checkpoints of {mission} to {place}:"
        f" 5 written ({size / 1_000:.1f} kB), 0 unchanged, 0 removed.\n"
    )
    assert {path.stem for path in place.glob("chk-*.json")} == set(five)
    again = done("checkpoints", "pull", "--mission", mission, "--json").json
    assert (again["directory"], again["written"], again["unchanged"]) == (str(place), 0, 5)


def test_pull_without_a_mission_fails(run, daemon):
    result = run("checkpoints", "pull")

    assert result.status == 1
    assert "Use --mission <id> to specify." in result.err
