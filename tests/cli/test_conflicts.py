"""``fleetctl conflicts``, and the line of ``status`` about them."""

import json

from tests.cli.test_attention import hook
from tests.support.git import git

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
    assert not any(line.endswith(" ") for line in lines)
    assert [lines[0], lines[3]] == [str(tmp_path / "b.py"), str(tmp_path / "a.py")]
    assert [line.split()[0] for line in (*lines[1:3], *lines[4:])] == ["bob", "cat", "bob", "ann"]
    (only,) = done("conflicts", "--agent", "ann", "--json").json["conflicts"]
    assert only["file"] == str(tmp_path / "a.py")
    assert not only["at_merge"]
    status = done("status").out.splitlines()
    assert "  Conflicts: 2 files changed by several agents (fleetctl conflicts)" in status
    assert done("status", "--json").json["conflicts"] == 2


def test_an_agent_that_is_not_known_is_not_found(run, daemon):
    told = run("conflicts", "--agent", "nobody")
    assert (told.status, told.out) == (4, "")
    assert "Agent not found: nobody" in told.err
    assert told.err == run("agent", "show", "nobody").err


def test_names_are_as_the_reader_sees_them_and_one_directory_is_told_beside_a_worktree(
    done, daemon, home, monkeypatch
):
    shop, tree = home / "shop", home / "tree"
    shop.mkdir()
    git(shop, "init", "--quiet", "--initial-branch=main")
    git(shop, "commit", "--quiet", "--allow-empty", "-m", "Begin")
    git(shop, "worktree", "add", "--quiet", str(tree))
    for session, where in (("ann", shop), ("bob", shop), ("cat", tree)):
        edit = {"file_path": str(where / "a.py")}
        hook(done, session, "PostToolUse", where, tool_name="Edit", tool_input=edit)

    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(shop)
    first, *others = done("conflicts").out.splitlines()
    together = "claude-ann and claude-bob in one directory; will meet at merge"
    assert first == f"a.py  {together}"
    places = sorted((line.split()[0], line.split()[2]) for line in others)
    assert places == [
        ("claude-ann", "~/shop/a.py"),
        ("claude-bob", "~/shop/a.py"),
        ("claude-cat", "~/tree/a.py"),
    ]
    monkeypatch.chdir("/")
    first = done("conflicts").out.splitlines()[0]
    assert first in (f"~/{name}/a.py  {together}" for name in ("shop", "tree"))


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
