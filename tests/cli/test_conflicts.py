"""``fleetctl conflicts``, and the line of ``status`` about them."""

import json

NONE = "No two agents changed the same file within the last hour.\n"


def edits(done, agent, file):
    data = {"type": "file_modified", "agent_id": agent, "data": {"file": str(file)}}
    done("call", "event.append", json.dumps(data))


def test_the_files_that_several_agents_changed(done, daemon, tmp_path):
    assert done("conflicts").out == NONE
    assert "Conflicts" not in done("status").out
    for agent in ("ann", "bob", "cat"):
        done("agent", "start", agent)
    for agent, name in (("ann", "a.py"), ("bob", "a.py"), ("cat", "b.py"), ("bob", "b.py")):
        edits(done, agent, tmp_path / name)

    lines = done("conflicts").out.splitlines()
    assert [lines[0], lines[3]] == [str(tmp_path / "b.py"), str(tmp_path / "a.py")]
    assert [line.split()[0] for line in (*lines[1:3], *lines[4:])] == ["bob", "cat", "bob", "ann"]
    (only,) = done("conflicts", "--agent", "ann", "--json").json["conflicts"]
    assert only["file"] == str(tmp_path / "a.py")
    assert not only["at_merge"]
    status = done("status").out.splitlines()
    assert "  Conflicts: 2 files changed by several agents (fleetctl conflicts)" in status
    assert done("status", "--json").json["conflicts"] == 2
    assert done("conflicts", "--agent", "nobody").out == NONE


def test_more_than_fifty_are_cut_with_a_count(done, daemon, tmp_path):
    for agent in ("ann", "bob"):
        done("agent", "start", agent)
        for number in range(52):
            edits(done, agent, tmp_path / f"{number}.py")

    out = done("conflicts").out
    assert out.count(".py") == 50
    assert out.endswith("and 2 more files\n")


def test_a_name_with_control_characters_is_escaped(done, daemon, tmp_path):
    for agent in ("ann", "bob"):
        done("agent", "start", agent)
        edits(done, agent, f"{tmp_path}/\x1b[31mred")

    assert "\x1b" not in done("conflicts").out
