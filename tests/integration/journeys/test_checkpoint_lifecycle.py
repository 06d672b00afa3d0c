"""The life of checkpoints: taken, listed, damaged, healed, pruned, deleted; real processes."""

import json
import os
import re
import stat
from contextlib import closing

import pytest

from fleetctl.client import Fleet
from fleetd.protocol.errors import NotFound
from fleetd.store.sqlite import page_checksums
from tests.support.processes import fleetctl


def done(*argv):
    result = fleetctl(*argv)
    assert result.status == 0, (argv, result)
    return result


@pytest.fixture
def mission(daemon):
    sorties = [text for n in range(8) for text in ("--sortie", f"S{n}")]
    created = done("mission", "create", "Lifecycle", *sorties)
    done("mission", "start", created.id("msn"))
    return created.id("msn")


@pytest.fixture
def folder(home, mission):
    return home / "flightline" / "checkpoints" / mission


def listed(mission):
    rows = done("checkpoints", "list", "--mission", mission, "--limit", "100", "--json").json
    return rows if isinstance(rows, list) else rows["checkpoints"]


def sorties_of(mission):
    return [s["id"] for s in done("sortie", "list", "--mission", mission, "--json").json]


def change_database(home, statement, *values):
    """Change the database while no daemon has it open."""
    with closing(page_checksums.opened(str(home / "data" / "squawk.db"))) as connection:
        connection.execute(statement, values)


def test_milestones_appear_by_themselves_and_survive_kills(daemon, mission, folder):
    for number, sortie in enumerate(sorties_of(mission), start=1):
        done("sortie", "complete", sortie, "--agent", "spec-1")
        daemon.kill()
        daemon.start()
        details = [checkpoint["trigger_details"] for checkpoint in listed(mission)]
        passed = [mark for mark in (25, 50, 75) if number * 100 // 8 >= mark]
        assert details == [f"Reached {mark}% milestone" for mark in reversed(passed)]
    assert done("checkpoints", "verify", "--mission", mission).status == 0
    newest = listed(mission)[0]["id"]
    assert os.readlink(folder / "latest.json") == f"{newest}.json"
    assert len(list(folder.glob("chk-*.json"))) == 3


def test_from_creation_to_deletion(daemon, mission, folder):
    created = done("checkpoint", "--mission", mission, "--note", "Before refactoring")
    checkpoint = created.id("chk")
    path = folder / f"{checkpoint}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = json.loads(path.read_bytes())
    assert (content["id"], content["trigger"]) == (checkpoint, "manual")

    (only,) = listed(mission)
    assert (only["id"], only["trigger_details"]) == (checkpoint, "Before refactoring")
    shown = done("checkpoints", "show", checkpoint).out
    assert f"Checkpoint: {checkpoint}\n" in shown
    assert "manual (Before refactoring)" in shown
    assert "Sorties (8):" in shown

    deleted = done("checkpoints", "delete", checkpoint)
    assert checkpoint in deleted.out
    assert not path.exists()
    daemon.kill()
    daemon.start()
    gone = fleetctl("checkpoints", "show", checkpoint)
    assert gone.status == 4
    assert gone.err.startswith(f"Error: Checkpoint not found: {checkpoint}")
    assert listed(mission) == []


def test_damage_to_either_copy_is_found_and_healed(daemon, mission, folder, home):
    checkpoint = done("checkpoint", "--mission", mission).id("chk")
    path = folder / f"{checkpoint}.json"
    whole = path.read_bytes()

    path.write_bytes(whole[: len(whole) // 2])
    bad = fleetctl("checkpoints", "verify", "--mission", mission)
    assert bad.status == 1
    assert "Corrupted checkpoint file" in bad.out + bad.err
    done("checkpoints", "verify", "--mission", mission, "--repair")
    assert path.read_bytes() == whole

    daemon.stop()
    statement = "UPDATE checkpoints SET trigger_details = 'forged' WHERE id = ?"
    change_database(home, statement, checkpoint)
    daemon.start()
    shown = done("checkpoints", "show", checkpoint, "--json")
    assert shown.json["trigger_details"] is None
    assert f"the database row of {checkpoint} was damaged" in shown.out + shown.err
    assert done("checkpoints", "verify", "--mission", mission).status == 0

    daemon.stop()
    change_database(home, "DELETE FROM checkpoints WHERE id = ?", checkpoint)
    daemon.start()
    resumed = done("resume", "--checkpoint", checkpoint, "--yes")
    assert "Recovery complete" in resumed.out
    assert "Restored 1 lost rows of checkpoints from files" in daemon.log.read_text()
    assert done("checkpoints", "verify", "--mission", mission).status == 0


def test_both_copies_gone_is_an_error_and_the_one_before_still_works(daemon, mission, folder, home):
    older = done("checkpoint", "--mission", mission, "--note", "older").id("chk")
    newer = done("checkpoint", "--mission", mission, "--note", "newer").id("chk")
    (folder / f"{newer}.json").write_text("invalid json{{{")
    daemon.stop()
    change_database(home, "UPDATE checkpoints SET digest = 'x' WHERE id = ?", newer)
    daemon.start()

    shown = fleetctl("checkpoints", "show", newer)
    assert shown.status == 1
    assert shown.err.startswith("Error: ")
    resumed = done("resume", "--mission", mission, "--yes")

    assert f"Used checkpoint: {older}\n" in resumed.out
    assert f"Checkpoint {newer} is damaged in both copies" in resumed.out


def test_a_lost_database_comes_back_from_a_checkpoints_file(daemon, mission, home):
    done("lock", "acquire", "a.py", "--agent", "spec-1", "--mission", mission)
    done("sortie", "complete", sorties_of(mission)[0], "--agent", "spec-1")
    checkpoint = done("checkpoint", "--mission", mission).id("chk")
    daemon.stop()
    for path in (home / "data").glob("squawk.db*"):
        path.unlink()
    daemon.start()

    resumed = done("resume", "--checkpoint", checkpoint, "--yes")

    assert re.search(r"Recovery complete:\n- Sorties: 8\n- Locks: 1\n", resumed.out)
    statuses = [s["status"] for s in done("sortie", "list", "--mission", mission, "--json").json]
    assert statuses == ["completed"] + ["pending"] * 7
    (lock,) = done("lock", "list", "--json").json
    assert (lock["held_by"], lock["file"]) == ("spec-1", "a.py")


def test_prune_asks_deletes_and_says_how_many(daemon, mission, folder):
    ids = [done("checkpoint", "--mission", mission).id("chk") for _ in range(5)]
    prune = ("checkpoints", "prune", "--mission", mission, "--older-than", "0", "--keep", "2")

    shown = done(*prune, "--dry-run")
    refused = fleetctl(*prune)
    assert refused.status != 0
    assert "--yes" in refused.err
    assert len(listed(mission)) == 5
    pruned = done(*prune, "--yes")

    for checkpoint in ids[:3]:
        assert checkpoint in shown.out
    assert pruned.out.rstrip().endswith("Deleted 3 checkpoints.")
    assert [c["id"] for c in listed(mission)] == ids[:2:-1]
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted([*(f"{i}.json" for i in ids[3:]), "latest.json"])
    daemon.kill()
    daemon.start()
    with Fleet(daemon.socket) as client:
        for checkpoint in ids[:3]:
            with pytest.raises(NotFound):
                client.call_raw("checkpoint.get", {"checkpoint_id": checkpoint})


def test_deleting_a_mission_takes_its_files_with_it(daemon, mission, folder):
    done("checkpoint", "--mission", mission)
    assert fleetctl("mission", "delete", mission, "--yes").status == 1
    done("mission", "cancel", mission, "--reason", "enough")

    done("mission", "delete", mission, "--yes")

    assert not folder.exists()
    assert fleetctl("mission", "show", mission).status == 4
    daemon.kill()
    daemon.start()
    assert not folder.exists()
    assert done("mission", "list", "--json").json == []


def test_a_lost_database_comes_back_from_its_files(daemon, mission, home):
    for sortie in sorties_of(mission)[:2]:
        done("sortie", "complete", sortie, "--agent", "spec-1")
    before = done("sortie", "list", "--mission", mission, "--json").json
    newest = done("checkpoint", "--mission", mission).id("chk")
    daemon.stop()
    for file in (home / "data").glob("squawk.db*"):
        file.unlink()
    daemon.start()

    assert "The database is behind its checkpoint files" in daemon.log.read_text()
    after = done("sortie", "list", "--mission", mission, "--json").json
    for then, now in zip(before, after, strict=True):
        for name in ("id", "title", "status", "position", "assigned_to"):
            assert now[name] == then[name]
    status = done("status").out
    assert mission in status
    assert "no agent is briefed yet" in status
    assert f"Checkpoint: {newest}" in done("resume", "--mission", mission, "--yes").out
    assert done("checkpoints", "verify", "--all").status == 0
