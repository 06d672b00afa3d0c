"""What people see of machines that share a store; where one has its own, they see nothing."""

import pytest

from fleetd.store.sqlite import page_checksums

HERE, THERE = "00000000000000a1", "00000000000000b2"
LONG_AHEAD = "2099-01-01T00:00:00.000Z"


@pytest.fixture
def shared(home, daemon, done):
    """Two agents of two machines, as they stand in a store that several share."""
    done("agent", "start", "spec-1")
    done("agent", "start", "spec-2")
    store = page_checksums.opened(str(home / "data" / "squawk.db"))
    store.set_busy_timeout(5_000)
    try:
        for machine, name, status, agent in (
            (HERE, "build-1", "here", "spec-1"),
            (THERE, "laptop", "left", "spec-2"),
        ):
            told = (machine, name, status, LONG_AHEAD, LONG_AHEAD)
            store.execute("INSERT INTO machines VALUES (?, ?, ?, ?, ?, 0, 0, '', '')", told)
            store.execute("UPDATE agents SET machine = ? WHERE id = ?", (machine, agent))
    finally:
        store.close()


def test_a_machine_by_itself_sees_nothing_of_it(done, daemon):
    done("agent", "start", "spec-1")

    assert "Machines" not in done("status").out
    status = done("status", "--json").json
    assert (status["machine"], status["machines"]) == (None, [])
    assert "MACHINE" not in done("agent", "list").out
    assert "Machine" not in done("agent", "show", "spec-1").out
    assert done("agent", "show", "spec-1", "--json").json["machine"] is None


def test_status_shows_the_machines(done, shared):
    out = done("status").out
    lines = out[out.index("Machines") :].splitlines()

    assert lines[1].split()[:4] == ["build-1", "here", "1", "agent"]
    assert lines[2].split()[:4] == ["laptop", "left", "1", "agent"]
    told = done("status", "--json").json["machines"]
    assert [each["machine_id"] for each in told] == [HERE, THERE]


def test_agents_are_listed_with_their_machines(done, shared):
    head, first, second = done("agent", "list").out.splitlines()

    assert head.split()[-1] == "MACHINE"
    assert (first.split()[-1], second.split()[-1]) == ("build-1", "laptop")
    assert "Machine: laptop" in done("agent", "show", "spec-2").out
    assert done("agent", "show", "spec-2", "--json").json["machine"] == THERE


def test_a_missions_directory_is_shown_with_its_machine(done, shared, home):
    mission = done("mission", "create", "Add login", "--json").json
    directory = f"Directory: {mission['project_dir']}"
    assert directory in done("mission", "show", mission["id"]).out.splitlines()
    store = page_checksums.opened(str(home / "data" / "squawk.db"))
    store.set_busy_timeout(5_000)
    try:
        store.execute("UPDATE missions SET machine = ?", (THERE,))
    finally:
        store.close()

    assert f"{directory} on laptop" in done("mission", "show", mission["id"]).out.splitlines()
    assert done("mission", "show", mission["id"], "--json").json["machine"] == THERE


def test_a_lock_on_a_file_of_one_machine_says_on_which(home, done, shared):
    for file in ("/srv/a.py", "/srv/widget/b.py"):
        done("lock", "acquire", file, "--agent", "spec-2")
    store = page_checksums.opened(str(home / "data" / "squawk.db"))
    store.set_busy_timeout(5_000)
    try:
        for file, key in (
            ("/srv/a.py", f"machine:{THERE}:/srv/a.py"),
            ("/srv/widget/b.py", "project:git.example/Widget:b.py"),
        ):
            store.execute("UPDATE locks SET normalized_path = ? WHERE file = ?", (key, file))
    finally:
        store.close()

    lines = done("lock", "list").out.splitlines()

    assert lines[1].endswith(" /srv/a.py on laptop")
    assert lines[2].endswith(" project:git.example/Widget:b.py")


def test_the_machines_are_listed_and_one_is_forgotten(done, shared):
    head, first, second = done("machines", "list").out.splitlines()
    assert head.split()[:4] == ["MACHINE", "ID", "STATE", "AGENTS"]
    assert first.split()[:4] == ["build-1", HERE, "here", "1"]
    assert second.split()[:4] == ["laptop", THERE, "left", "1"]
    assert [each["machine_id"] for each in done("machines", "list", "--json").json] == [HERE, THERE]

    out = done("machines", "forget", "laptop", "--yes").out
    assert out.splitlines() == ["Forgotten: laptop", "1 agent lost: spec-2"]
    assert "laptop" not in done("machines", "list").out
    assert done("agent", "show", "spec-2", "--json").json["status"] == "lost"


def test_a_machine_that_was_lost_long_ago_is_forgotten_by_its_id(done, shared, home):
    store = page_checksums.opened(str(home / "data" / "squawk.db"))
    store.set_busy_timeout(5_000)
    try:
        store.execute(
            "UPDATE machines SET status = 'lost', heard_at = '2020-01-01T00:00:00.000Z'"
            " WHERE id = ?",
            (THERE,),
        )
    finally:
        store.close()
    assert "laptop" not in done("machines", "list").out
    assert "Forgotten: laptop" in done("machines", "forget", THERE, "--yes").out


def test_a_machine_at_work_or_unknown_is_not_forgotten(run, shared):
    refused = run("machines", "forget", HERE, "--yes")
    assert refused.status != 0
    assert "Machine build-1 is at work" in refused.err
    refused = run("machines", "forget", "nobody", "--yes")
    assert refused.status != 0
    assert "Machine not found: nobody" in refused.err
    assert "fleetctl machines list" in refused.err


def test_a_machine_by_itself_lists_none(done, daemon):
    assert done("machines", "list").out == "This store belongs to this machine alone.\n"
