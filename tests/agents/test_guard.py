"""Two agents that work in one tree at once: the guard keeps their commits apart, and edits too."""

import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.agents import packages
from tests.agents.desk import own_commands
from tests.agents.machines import Claude
from tests.agents.packages import Package
from tests.agents.project import repository
from tests.agents.running import Run, outside
from tests.agents.script import Call, Reply, Script, calls, says
from tests.agents.server import serving
from tests.support.git import git
from tests.support.processes import Daemon, fleetctl

# How often each agent commits; GUARD_RUNS=100 is run by hand, once with and once without hooks
# that are verified.
RUNS = int(os.environ.get("GUARD_RUNS", "2"))
# So many of them in one session: a run has a minute.
IN_A_SESSION = 5
AGENTS = ("ann", "bob")


class Pair:
    """Two sessions of Claude Code in one directory, each with a model that plays a script."""

    def __init__(self, stack: ExitStack) -> None:
        proxy = stack.enter_context(outside())
        self.scripts = {name: Script(most=2_000) for name in AGENTS}
        self._agents = {
            name: Claude(stack.enter_context(serving(Claude.dialect, script)), proxy)
            for name, script in self.scripts.items()
        }

    def work(self, replies: dict[str, list[Reply]]) -> dict[str, Run]:
        """Let both play their scripts at once."""
        runs: dict[str, Run] = {}

        def prompt(name: str) -> None:
            runs[name] = self._agents[name].prompt("Do your part", FLEET_AGENT_ID=name)

        for name in AGENTS:
            self.scripts[name].plays([*replies[name], says("Done.")])
        threads = [threading.Thread(target=prompt, args=(name,)) for name in AGENTS]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert set(runs) == {*AGENTS}
        for name, run in runs.items():
            assert run.status == 0, run.err
            assert self.scripts[name].replies == []
        return runs


@pytest.fixture
def pair(
    claude_package: Package, daemon: Daemon, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Pair]:
    commands = own_commands(home, monkeypatch)
    packages.CLAUDE.link(commands)
    repository(Path.cwd())
    for key, value in (("user.name", "Somebody"), ("user.email", "somebody@localhost")):
        git(Path.cwd(), "config", key, value)
    with ExitStack() as stack:
        yield Pair(stack)


def _commits(name: str, run: int, *, no_verify: bool) -> list[Reply]:
    """Write a file of one's own, then commit whatever is there, or else that file."""
    file = f"{name}-{run}.txt"
    # Not by its subject: the file with the message is shared, too.
    commit = f"git -c user.name={name} commit -q {'--no-verify ' * no_verify}-m {name}-{run}"
    # The index has one lock for both; who finds it taken tries again.
    command = (
        f"for n in $(seq 40); do git add -A && {commit} && exit 0;"
        f" git add {file} && {commit} -- {file} && exit 0; sleep 0.0$n; done; exit 1"
    )
    path = str(Path.cwd() / file)
    return [
        calls(Call("Write", {"file_path": path, "content": f"{name} {run}\n"})),
        calls(Call("Bash", {"command": command, "description": "Commit"})),
    ]


def _mixed(project: Path) -> list[str]:
    """Return the commits that hold a file of somebody else."""
    found = []
    for line in git(project, "log", "--format=%H %an").splitlines():
        commit, _, author = line.partition(" ")
        files = git(project, "show", "--name-only", "--format=", commit).split()
        whose = {file.partition("-")[0] for file in files if file.startswith(AGENTS)}
        if whose - {author}:
            found.append(f"{author}: {files}")
    return found


@pytest.mark.parametrize("no_verify", [False, True])
def test_no_commit_holds_the_other_agents_file(pair: Pair, no_verify: bool) -> None:
    project = Path.cwd()
    assert fleetctl("hooks", "install", "claude", "--yes").status == 0
    assert fleetctl("guard", "install").status == 0
    for some in (range(RUNS)[n : n + IN_A_SESSION] for n in range(0, RUNS, IN_A_SESSION)):
        pair.work(
            {
                name: [reply for run in some for reply in _commits(name, run, no_verify=no_verify)]
                for name in AGENTS
            }
        )
        assert _mixed(project) == []
    committed = git(project, "ls-files").split()
    assert {f"{name}-{run}.txt" for name in AGENTS for run in range(RUNS)} <= {*committed}


@pytest.mark.parametrize("guarded", [False, True])
def test_it_is_the_guard_that_keeps_them_apart(pair: Pair, guarded: bool) -> None:
    project = Path.cwd()
    assert fleetctl("hooks", "install", "claude", "--yes").status == 0
    if guarded:
        assert fleetctl("guard", "install").status == 0
    # What one has done, the other one waits for; Git does not look at these files.
    wrote, over = project / "wrote.sign", project / "over.sign"
    (project / ".git/info/exclude").write_text("*.sign\n")

    def waits(file: Path) -> str:
        return f"for n in $(seq 300); do [ -e {file} ] && break; sleep 0.1; done"

    def works(name: str, command: str) -> list[Reply]:
        file = {"file_path": str(project / f"{name}-1.txt"), "content": f"{name}\n"}
        return [
            calls(Call("Write", file)),
            calls(Call("Bash", {"command": command, "description": "Go on"})),
        ]

    commits = "git add -A; git -c user.name=bob commit -q -m bob-1"
    pair.work(
        {
            "ann": works("ann", f"touch {wrote}; {waits(over)}"),
            "bob": works("bob", f"{waits(wrote)}; {commits}; touch {over}"),
        }
    )
    assert over.exists()
    assert bool(_mixed(project)) == (not guarded)


def test_no_file_is_edited_by_both_at_once(pair: Pair) -> None:
    project = Path.cwd()
    hooks = ("hooks", "install", "claude", "--auto-locks", "--enforce-locks", "--yes")
    assert fleetctl(*hooks).status == 0
    shared = project / "shared.txt"
    write = calls(Call("Write", {"file_path": str(shared), "content": "x\n"}))
    shared.unlink(missing_ok=True)
    for _ in range(0, RUNS, IN_A_SESSION):
        pair.work({name: [write] * min(RUNS, IN_A_SESSION) for name in AGENTS})
    told = fleetctl("events", "--json", "--type", "file_modified").json
    at = [(each["timestamp"], each["agent_id"]) for each in told if "shared.txt" in str(each)]
    locks = fleetctl("lock", "list", "--all", "--json").json
    spans = sorted((lock["acquired_at"], lock["released_at"], lock["held_by"]) for lock in locks)
    assert all(lock["automatic"] for lock in locks)
    for one, other in itertools.pairwise(spans):
        assert one[1] <= other[0], spans
    for when, who in at:
        assert any(begun <= when <= ended and who == holder for begun, ended, holder in spans)
    assert at, "nobody wrote"
