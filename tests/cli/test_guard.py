"""``fleetctl guard``: whose files a commit has, asked by the hooks of Git themselves."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.client import Fleet
from fleetctl.client.models import AgentRegister
from tests.cli.test_attention import Done, hook
from tests.cli.test_conflicts import edits
from tests.support.git import git
from tests.support.processes import Daemon, Result

Run = Callable[..., Result]
HOOKS = ("pre-commit", "prepare-commit-msg", "reference-transaction")
MINE = "#!/bin/sh\necho mine $# >> ran\n"


class Shell:
    """A shell below which an agent works: what it runs has the agent's process above it."""

    def __init__(self, agent: str | None, directory: Path) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            ["/bin/sh"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=directory,
        )
        if agent is not None:
            with Fleet() as client:
                client.call(AgentRegister(agent_id=agent, role="specialist", pid=self.process.pid))

    def run(self, command: str) -> tuple[int, str]:
        """Run a line and return its status, and what it and Git's hooks said."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f'{command} </dev/null\necho "status $?"\n')
        self.process.stdin.flush()
        said = []
        while not (line := self.process.stdout.readline()).startswith("status "):
            assert line, said
            said.append(line)
        return int(line.split()[1]), "".join(said)

    def close(self) -> None:
        self.process.communicate(timeout=60)


@pytest.fixture
def repository(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with one commit, with the user's identity in its settings."""
    place = home / "shop"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    for name, value in (("user.name", "Somebody"), ("user.email", "somebody@example.org")):
        git(place, "config", name, value)
    git(place, "commit", "-q", "--allow-empty", "-m", "Begin")
    (place / "src").mkdir()
    for name in ("src/a.py", "src/b.py"):
        (place / name).write_text("1\n")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def shell(repository: Path, daemon: Daemon) -> Iterator[Callable[..., Shell]]:
    """Return a function that opens the shell of an agent, or of a person."""
    opened: list[Shell] = []

    def begin(agent: str | None, directory: Path = repository) -> Shell:
        opened.append(Shell(agent, directory))
        return opened[-1]

    yield begin
    for each in opened:
        each.close()


def head(repository: Path) -> str:
    return git(repository, "log", "-1", "--format=%s").strip()


def content(place: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(place)): (path.read_bytes(), path.stat().st_mode)
        for path in place.rglob("*")
        if path.is_file() and "objects" not in path.parts
    }


@pytest.mark.parametrize("commit", ["git commit -q -m x", "git commit -q --no-verify -m x"])
def test_an_agent_cannot_commit_what_another_one_holds_or_changed_last(
    repository: Path, shell: Callable[..., Shell], done: Done, commit: str
) -> None:
    done("guard", "install")
    bob = shell("bob")
    shell("alice")
    done("lock", "acquire", "src/a*", "--agent", "alice")
    edits(done, "bob", repository / "src/b.py")
    edits(done, "alice", repository / "src/b.py")

    bob.run("git add -A")
    status, said = bob.run(commit)
    assert status == 1
    assert head(repository) == "Begin"
    lines = said.splitlines()
    assert lines[0] == "fleetd guard: this commit is refused, since it has files of other agents:"
    assert lines[1].startswith("  src/a.py  locked by alice until ")
    assert lines[1].endswith(", with src/a*")
    assert lines[2].startswith("  src/b.py  changed by alice ")
    assert lines[3].endswith(
        "without -a: git restore --staged -- ':(top,literal)src/a.py' ':(top,literal)src/b.py'"
    )
    assert lines[4] == "Or name the files that you commit: git commit -- FILE…"
    assert "fleetctl mail send SUBJECT --from bob --to alice" in lines[5]

    # What is its own goes in: it changed b.py last now, and leaves a.py out.
    edits(done, "bob", repository / "src/b.py")
    bob.run("git restore --staged -- src/a.py")
    assert bob.run(commit) == (0, "")
    assert head(repository) == "x"
    assert git(repository, "show", "--name-only", "--format=").split() == ["src/b.py"]


def test_the_holder_and_a_subagent_of_its_session_commit(
    repository: Path, shell: Callable[..., Shell], done: Done
) -> None:
    done("guard", "install")
    alice = shell("alice")
    done("lock", "acquire", "src/", "--agent", "alice")
    edits(done, "alice", repository / "src/a.py")
    alice.run("git add -A")
    assert alice.run("git commit -q -m own")[0] == 0
    assert head(repository) == "own"
    hook(done, "5e551011-1111", "SessionStart", repository, source="startup")
    (session,) = [e["id"] for e in done("agent", "list", "--json").json if e["id"] != "alice"]
    sub = {"agent_id": "sub1", "agent_type": "Explore"}
    hook(done, "5e551011-1111", "PreToolUse", repository, tool_name="Bash", tool_input={}, **sub)
    done("lock", "acquire", "lib/", "--agent", session)
    (repository / "lib").mkdir()
    (repository / "lib/c.py").write_text("1\n")
    alice.run("git add -A")
    subagent = next(e["id"] for e in done("agent", "list", "--json").json if "sub1" in e["id"])
    assert alice.run("git commit -q -m hers")[0] == 1
    assert alice.run(f"FLEET_AGENT_ID={subagent} git commit -q -m theirs")[0] == 0


def test_what_it_says_to_do_can_be_done(
    repository: Path, shell: Callable[..., Shell], done: Done
) -> None:
    """From any directory, before the first commit, and for any name."""
    done("guard", "install")
    shell("alice")
    done("lock", "acquire", "src/", "--agent", "alice")
    odd = "src/it's\x1b[31m [1].py"
    (repository / odd).write_text("1\n")
    (repository / "mine.py").write_text("1\n")
    git(repository, "update-ref", "-d", "HEAD")
    for first in (True, False):
        bob = shell("bob", repository / "src")
        bob.run("git add -A ..")
        status, said = bob.run("git commit -q -m x")
        assert status == 1
        assert "\x1b" not in said
        command = said.splitlines()[-3].partition("without -a: ")[2]
        assert command.startswith("git rm -q --cached" if first else "git restore --staged")
        # Names that do not print are in the form of Bash.
        subprocess.run(["bash", "-c", command], cwd=repository / "src", check=True)
        assert bob.run("git commit -q -m x")[0] == 0
        assert git(repository, "ls-files").split() == ["mine.py"]
        (repository / "mine.py").write_text("2\n")


def test_a_person_is_told_and_never_stopped(
    repository: Path, shell: Callable[..., Shell], done: Done
) -> None:
    done("guard", "install")
    shell("alice")
    done("lock", "acquire", "src/a.py", "--agent", "alice")
    person = shell(None)
    person.run("git add -A")
    status, said = person.run("git commit -q -m mine")
    assert status == 0
    assert said.splitlines()[0] == "fleetd guard: this commit has files that agents work on:"
    assert re.fullmatch(r"  src/a.py  locked by alice until 2\d+-.*Z", said.splitlines()[1])
    assert len(said.splitlines()) == 2
    assert head(repository) == "mine"
    (repository / "src/a.py").write_text("2\n")
    status, said = person.run("FLEET_AGENT_ID=zoe git commit -q -a -m unknown")
    assert status == 0
    assert "no agent zoe is active, so this counts as the commit of a person." in said


def test_without_a_daemon_the_commit_passes_and_says_so(
    repository: Path, shell: Callable[..., Shell], done: Done, daemon: Daemon
) -> None:
    done("guard", "install")
    alice = shell("alice")
    daemon.stop()
    alice.run("git add -A")
    status, said = alice.run("git commit -q -m alone")
    assert (status, head(repository)) == (0, "alone")
    assert said.count("fleetd guard: the commit was not checked: fleetd is not running") == 1


def test_a_daemon_that_hangs_holds_up_no_commit(
    repository: Path, shell: Callable[..., Shell], done: Done, daemon: Daemon
) -> None:
    done("guard", "install")
    alice = shell("alice")
    alice.run("git add -A")
    os.kill(daemon.process.pid, signal.SIGSTOP)
    try:
        status, said = alice.run("git commit -q -m alone")
    finally:
        os.kill(daemon.process.pid, signal.SIGCONT)
    assert (status, head(repository)) == (0, "alone")
    assert said.count("fleetd guard: the commit was not checked: ") == 1


def test_a_fleetctl_that_was_removed_or_breaks_stops_no_commit(
    repository: Path, shell: Callable[..., Shell], done: Done
) -> None:
    done("guard", "install")
    person = shell(None)
    for old, new in (("python='", "python='/gone"), ("-m fleetctl", "-c 1/0")):
        for name in HOOKS:
            path = repository / ".git/hooks" / name
            text = path.read_text()
            path.write_text(text.replace(old, new))
        person.run("git add -A")
        status, said = person.run(f"git commit -q --allow-empty -m {new[-4:]!r}")
        assert status == 0
        assert "is gone, so the commit was not checked" in said or "ZeroDivisionError" in said
        done("guard", "install")


def test_what_was_there_runs_first_and_comes_back_byte_for_byte(
    repository: Path, shell: Callable[..., Shell], done: Done
) -> None:
    hooks = repository / ".git/hooks"
    (hooks / "pre-commit").write_text(MINE)
    (hooks / "pre-commit").chmod(0o700)
    target = repository / "tools-hook"
    target.write_text(MINE)
    target.chmod(0o755)
    (hooks / "prepare-commit-msg").symlink_to("../../tools-hook")
    (hooks / "reference-transaction").write_text("#!/bin/sh\necho $1 >> refs; cat >> refs\n")
    (hooks / "reference-transaction").chmod(0o755)
    before = content(repository / ".git")

    said = done("guard", "install").out.splitlines()
    assert said[0].endswith("the hook from before runs first, as pre-commit.before-fleetd")
    assert done("guard", "install").out.startswith("The guard is already installed in ")
    assert done("guard", "status", "--json").json["installed"]
    person = shell(None)
    person.run("git add src")
    assert person.run("git commit -q -m both") == (0, "")
    assert (repository / "ran").read_text() == "mine 0\nmine 2\n"
    told = (repository / "refs").read_text().splitlines()
    assert [line for line in told if " " not in line] == ["prepared", "committed"]
    assert told[1].endswith((" HEAD", " refs/heads/main"))
    # A hook that refuses is obeyed.
    (hooks / "pre-commit.before-fleetd").write_text("#!/bin/sh\nexit 3\n")
    assert person.run("git commit -q --allow-empty -m no")[0] == 1
    (hooks / "pre-commit.before-fleetd").write_text(MINE)

    done("guard", "uninstall")
    after = content(repository / ".git")
    assert {name: after[name] for name in before if name.startswith("hooks/")} == {
        name: before[name] for name in before if name.startswith("hooks/")
    }
    assert sorted(name for name in after if name.startswith("hooks/")) == sorted(
        name for name in before if name.startswith("hooks/")
    )
    assert os.readlink(hooks / "prepare-commit-msg") == "../../tools-hook"
    assert done("guard", "uninstall").out == "The guard is not installed here.\n"


BY_NAME = """case "$(basename "$0")" in
pre-commit) echo checked >> ran; [ ! -e refuse ] || exit 3;;
prepare-commit-msg | reference-transaction) ;;
*) echo "unknown $0"; exit 1;;
esac
"""
PYTHON_BY_NAME = """#!/usr/bin/env python3
import os, sys
name = os.path.basename(sys.argv[0])
if name == "pre-commit":
    open("ran", "a").write("checked\\n")
    sys.exit(os.path.exists("refuse"))
sys.exit(name not in ("prepare-commit-msg", "reference-transaction"))
"""


@pytest.mark.parametrize(
    "text",
    [f"#!/bin/sh\n{BY_NAME}", f"#!/usr/bin/env bash\nset -e\n{BY_NAME}", PYTHON_BY_NAME],
    ids=["sh", "bash", "python"],
)
def test_a_hook_that_looks_at_its_own_name_is_run_by_it(
    repository: Path, shell: Callable[..., Shell], done: Done, text: str
) -> None:
    """Husky and Overcommit have one program for all hooks."""
    hooks = repository / ".git/hooks"
    (hooks / "all").write_text(text)
    (hooks / "all").chmod(0o755)
    for name in HOOKS:
        (hooks / name).symlink_to("all")
    before = content(hooks)
    done("guard", "install")
    person = shell(None)
    person.run("git add src")
    assert person.run("git commit -q -m fine") == (0, "")
    assert (repository / "ran").read_text() == "checked\n"
    (repository / "refuse").touch()
    assert person.run("git commit -q --allow-empty -m no")[0] == 1
    assert head(repository) == "fine"
    done("guard", "uninstall")
    assert content(hooks) == before
    assert sorted(path.name for path in hooks.iterdir() if path.is_dir()) == []


def test_a_hook_that_is_not_executable_stays_off(
    repository: Path, shell: Callable[..., Shell], done: Done
) -> None:
    hooks = repository / ".git/hooks"
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "pre-commit").chmod(0o644)
    said = done("guard", "install").out
    assert "is not executable and does not run, as before: pre-commit.before-fleetd" in said
    assert "runs first" not in said
    assert done("guard", "status").out.splitlines()[1].split()[:3] == [
        "pre-commit",
        "installed",
        "no",
    ]
    person = shell(None)
    person.run("git add -A")
    assert person.run("git commit -q -m fine")[0] == 0


def test_what_cannot_be_guarded_is_named(repository: Path, run: Run) -> None:
    (repository / ".git/hooks/pre-commit").mkdir()
    refused = run("guard", "install")
    assert refused.status == 1
    assert ".git/hooks/pre-commit is a directory, and Git expects a program there." in refused.err
    (repository / ".git/hooks/pre-commit").rmdir()
    gone = run("guard", "install", "--repo", "/nowhere/at/all")
    assert (gone.status, gone.err.splitlines()[0]) == (
        4,
        "Error: There is no directory /nowhere/at/all.",
    )
    git(repository, "config", "core.hooksPath", "src/a.py/hooks")
    odd = run("guard", "install")
    assert odd.status == 1
    assert "cannot be read: Not a directory." in odd.err


def test_a_directory_of_hooks_that_was_made_goes_again(
    repository: Path, done: Done, run: Run
) -> None:
    git(repository, "config", "core.hooksPath", ".githooks/own")
    told = done("guard", "install")
    assert "keep these hooks out of commits" in told.err
    assert {path.name for path in (repository / ".githooks/own").iterdir()} == {*HOOKS}
    done("guard", "install", "--trailer")
    done("guard", "uninstall")
    assert not (repository / ".githooks/own").exists()
    assert run("guard", "status").status == 1


def test_worktrees_share_the_guard_and_each_is_asked_about_its_own_files(
    repository: Path, home: Path, shell: Callable[..., Shell], done: Done
) -> None:
    tree = home / "tree"
    git(repository, "worktree", "add", "-q", str(tree))
    done("guard", "install", "--repo", str(tree))
    assert (repository / ".git/hooks/pre-commit").exists()
    shell("alice")
    bob = shell("bob", tree)
    done("lock", "acquire", "src/a.py", "--agent", "alice")
    (tree / "src").mkdir()
    (tree / "src/a.py").write_text("2\n")
    bob.run("git add -A")
    assert bob.run("git commit -q -m there")[0] == 0, "locks are on one tree by default"
    done("lock", "acquire", str(tree / "src/a.py"), "--agent", "alice")
    (tree / "src/a.py").write_text("3\n")
    assert bob.run("git commit -q -a -m again")[0] == 1


def test_a_merge_brings_in_what_others_committed(
    repository: Path, shell: Callable[..., Shell], done: Done
) -> None:
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "files")
    git(repository, "checkout", "-q", "-b", "side")
    (repository / "src/a.py").write_text("side\n")
    git(repository, "commit", "-q", "-a", "-m", "side")
    git(repository, "checkout", "-q", "main")
    git(repository, "commit", "-q", "--allow-empty", "-m", "main")
    done("guard", "install")
    bob = shell("bob")
    shell("alice")
    done("lock", "acquire", "src/", "--agent", "alice")
    assert bob.run("git merge -q --no-ff -m merged side")[0] == 0
    assert head(repository) == "merged"
    # Its own change in the middle of one is another thing.
    git(repository, "reset", "-q", "--hard", "HEAD~1")
    bob.run("git merge -q --no-commit --no-ff side")
    (repository / "src/b.py").write_text("mine\n")
    bob.run("git add -A")
    status, said = bob.run("git commit -q -m both")
    assert status == 1
    assert "src/b.py" in said
    assert "src/a.py" not in said


def test_a_merge_of_several_branches_brings_in_all_of_them(
    repository: Path, shell: Callable[..., Shell], done: Done
) -> None:
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "files")
    for name in ("a", "b"):
        git(repository, "checkout", "-q", "-b", name, "main")
        (repository / f"src/{name}.py").write_text("side\n")
        git(repository, "commit", "-q", "-a", "-m", name)
    git(repository, "checkout", "-q", "main")
    git(repository, "commit", "-q", "--allow-empty", "-m", "main")
    done("guard", "install")
    shell("alice")
    done("lock", "acquire", "src/", "--agent", "alice")
    status, said = shell("bob").run("git merge -q -m merged a b")
    assert (status, head(repository)) == (0, "merged"), said


def test_what_was_committed_since_is_nobodys_any_more(
    repository: Path, shell: Callable[..., Shell], done: Done, monkeypatch: pytest.MonkeyPatch
) -> None:
    done("guard", "install")
    alice, bob = shell("alice"), shell("bob")
    edits(done, "alice", repository / "src/a.py")
    alice.run("git add src/a.py")
    # A second later: a commit's time has no fractions.
    alice.run('GIT_AUTHOR_DATE="$(( $(date +%s) + 2 )) +0000" git commit -q -m hers')
    assert head(repository) == "hers"
    (repository / "src/a.py").write_text("by a shell command\n")
    assert bob.run("git commit -q -a -m his")[0] == 0


def test_a_file_that_is_being_edited_is_the_agents_already(
    repository: Path, shell: Callable[..., Shell], done: Done
) -> None:
    """The agent CLI says before an edit that it begins, and after it that it is over."""
    done("guard", "install")
    bob = shell("bob")
    session = {"tool_name": "Write", "tool_use_id": "t1"}
    session["tool_input"] = {"file_path": str(repository / "src/a.py"), "content": "2"}
    hook(done, "5e551011-1111", "SessionStart", repository, source="startup")
    bob.run("git add -A")
    hook(done, "5e551011-1111", "PreToolUse", repository, **session)
    status, said = bob.run("git commit -q -m early")
    assert status == 1
    assert "  src/a.py  changed by claude-5e551011 " in said
    assert "src/b.py" not in said
    failed = {**session, "error": "no", "is_interrupt": False}
    hook(done, "5e551011-1111", "PostToolUseFailure", repository, **failed)
    assert bob.run("git commit -q -m late")[0] == 0


@pytest.mark.parametrize("first", [True, False])
def test_what_was_staged_while_the_commit_was_made_is_refused_too(
    repository: Path, shell: Callable[..., Shell], done: Done, first: bool
) -> None:
    """Git has the tree of a commit before it runs the hook of the message."""
    hooks = repository / ".git/hooks"
    if first:
        git(repository, "update-ref", "-d", "HEAD")
    # Meanwhile another agent takes its file out of the index.
    (hooks / "prepare-commit-msg").write_text(
        "#!/bin/sh\ngit rm -q --cached --ignore-unmatch src/a.py\n"
    )
    (hooks / "prepare-commit-msg").chmod(0o755)
    done("guard", "install")
    shell("alice")
    bob = shell("bob")
    done("lock", "acquire", "src/a.py", "--agent", "alice")
    bob.run("git add -A")
    status, said = bob.run("git commit -q --no-verify -m both")
    assert status != 0
    assert "  src/a.py  locked by alice until " in said
    assert git(repository, "log", "--all", "--format=%s").split() == ([] if first else ["Begin"])
    # Nothing is left of it, and other changes of branches are nobody's business.
    assert [path.name for path in hooks.iterdir() if path.name.startswith(".fleetd")] == []
    bob.run("git restore --staged src/a.py" if not first else "true")
    assert bob.run("git commit -q -m mine")[0] == 0
    assert git(repository, "ls-tree", "-r", "--name-only", "HEAD").split() == ["src/b.py"]
    assert bob.run("git branch other && git reset -q --hard other")[0] == 0


@pytest.mark.parametrize("new", [True, False])
def test_a_commit_that_would_undo_what_another_agent_just_committed_is_refused(
    repository: Path, shell: Callable[..., Shell], done: Done, new: bool
) -> None:
    """The index is from before: of a commit that was made meanwhile it has nothing."""
    if not new:
        git(repository, "add", "src/a.py")
        git(repository, "commit", "-q", "-m", "first", "--date", "2026-01-01T00:00:00Z")
    done("guard", "install")
    alice, bob = shell("alice"), shell("bob")
    (repository / "src/a.py").write_text("hers\n")
    edits(done, "alice", repository / "src/a.py")
    bob.run("cp .git/index before && git add src/a.py")
    alice.run('GIT_AUTHOR_DATE="$(( $(date +%s) + 2 )) +0000" git commit -q -m hers')
    bob.run("mv before .git/index && git add src/b.py")
    status, said = bob.run("git commit -q -m his")
    assert (status, head(repository)) == (1, "hers")
    assert "  src/a.py  changed by alice" in said
    assert "src/b.py" not in said


def test_an_amended_message_is_no_change_of_what_was_committed(
    repository: Path, shell: Callable[..., Shell], done: Done
) -> None:
    done("guard", "install")
    bob = shell("bob")
    bob.run("git add -A")
    assert bob.run("git commit -q -m both")[0] == 0
    shell("alice")
    done("lock", "acquire", "src/a.py", "--agent", "alice")
    assert bob.run("git commit -q --amend -m reworded")[0] == 0
    assert head(repository) == "reworded"


@pytest.mark.parametrize("again", ["--amend --allow-empty -m reworded", "-m other -- src/b1.py"])
def test_another_commit_does_not_pass_an_edit_for_committed(
    repository: Path, shell: Callable[..., Shell], done: Done, again: str
) -> None:
    """Neither one that is made anew, nor one of a file whose name matches as a pattern."""
    for name in ("src/b[1].py", "src/b1.py"):
        (repository / name).write_text("1\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "all", "--date", "2026-01-01T00:00:00Z")
    done("guard", "install")
    shell("alice")
    bob = shell("bob")
    (repository / "src/b[1].py").write_text("hers\n")
    edits(done, "alice", repository / "src/b[1].py")
    (repository / "src/b1.py").write_text("his\n")
    later = 'GIT_AUTHOR_DATE="$(( $(date +%s) + 2 )) +0000"'
    command = f"git commit -q {again}" if "amend" in again else f"{later} git commit -q {again}"
    assert bob.run(command)[0] == 0
    status, said = bob.run("git commit -q -a -m steal")
    assert status == 1
    assert "src/b[1].py  changed by alice" in said


def test_the_session_stands_in_the_message_where_that_was_wanted(
    repository: Path, home: Path, shell: Callable[..., Shell], done: Done
) -> None:
    done("guard", "install", "--trailer")
    person = shell(None)
    person.run("git add -A")
    assert person.run("git commit -q -m person")[0] == 0
    assert "Fleet-Session" not in git(repository, "log", "-1", "--format=%B")
    # From now on this process is an agent's, also above the shells.
    hook(done, "5e551011-1111", "SessionStart", repository, source="startup")
    (agent,) = [each["id"] for each in done("agent", "list", "--json").json]
    bob = shell("bob")
    command = f"FLEET_AGENT_ID={agent} git commit -q --allow-empty -m agent"
    assert bob.run(command)[0] == 0
    assert bob.run(command.replace("--allow-empty", "--amend --no-edit --allow-empty"))[0] == 0
    body = git(repository, "log", "-1", "--format=%B").strip()
    assert body == "agent\n\nFleet-Session: 5e551011-1111"


def test_a_hook_that_took_our_place_is_told_and_left(
    repository: Path, done: Done, run: Run
) -> None:
    hooks = repository / ".git/hooks"
    (hooks / "pre-commit").write_text(MINE)
    done("guard", "install")
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 0\n")
    state = {each["name"]: each["state"] for each in run("guard", "status", "--json").json["hooks"]}
    assert state == {**dict.fromkeys(HOOKS, "installed"), "pre-commit": "other"}
    assert run("guard", "status").status == 1
    refused = run("guard", "install")
    assert refused.status != 0
    assert "pre-commit.before-fleetd is there already" in refused.err
    told = done("guard", "uninstall")
    assert "Another program replaced" in told.err
    assert (hooks / "pre-commit").read_text() == "#!/bin/sh\nexit 0\n"
    assert (hooks / "pre-commit.before-fleetd").read_text() == MINE


def test_check_shows_what_would_be_refused(
    repository: Path, done: Done, run: Run, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert done("guard", "check").out == "No staged file is another agent's.\n"
    done("agent", "start", "alice")
    done("agent", "start", "bob")
    done("lock", "acquire", "src/a.py", "--agent", "alice")
    git(repository, "add", "-A")
    assert done("guard", "check").out.startswith("  src/a.py  locked by alice until ")
    monkeypatch.setenv("FLEET_AGENT_ID", "bob")
    refused = run("guard", "check", "--json")
    assert refused.status == 1
    assert [each["file"] for each in refused.json["files"]] == ["src/a.py"]
    monkeypatch.setenv("FLEET_AGENT_ID", "alice")
    assert done("guard", "check").out == "No staged file is another agent's.\n"


def test_outside_of_a_repository_it_says_what_to_do(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    for words in (("install",), ("status",), ("uninstall",)):
        told = run("guard", *words)
        assert told.status == 4
        assert "is in no working tree of Git" in told.err
        assert "--repo DIR" in told.err
