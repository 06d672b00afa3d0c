"""Random edits of several agents beside a model: a pair of agents is told of a file once, both."""

import random
import re
from collections import defaultdict
from pathlib import Path

import pytest

from fleetd.domain.attention import conflicts
from tests.rules.attention.test_conflicts import agent, edits, hook, listed, prompts
from tests.support.fleet import HOUR, MINUTE, Fleet
from tests.support.git import git

SESSIONS = tuple(letter * 8 for letter in "abcde")
FILES = ("a.py", "b.py", "new/c.py")
STEPS = 200
_MET = re.compile(r"(\S+) by (claude-\w+) at")
_Met = tuple[str, str]


class Model:
    """Who changed what when, who is there, and what each is still to be told."""

    def __init__(self) -> None:
        self.edited: dict[str, dict[str, int]] = defaultdict(dict)
        self.here: set[str] = set()
        self.met: set[tuple[str, str, str]] = set()
        self.due: dict[str, set[_Met]] = defaultdict(set)

    def edits(self, who: str, file: str, now: int) -> None:
        self.edited[who][file] = now
        for other in self.here - {who}:
            at = self.edited[other].get(file)
            if at is not None and at >= now - HOUR and (who, other, file) not in self.met:
                self.met |= {(who, other, file), (other, who, file)}
                self.due[who].add((file, other))
                self.due[other].add((file, who))

    def conflicts(self, now: int) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for who in self.here:
            for file, at in self.edited[who].items():
                if at >= now - HOUR:
                    found[file].add(who)
        return {file: agents for file, agents in found.items() if len(agents) > 1}


@pytest.mark.parametrize("seed", range(4))
async def test_each_pair_is_told_once_of_a_file(
    fleet: Fleet, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetd.host.git.SECONDS", 30)
    monkeypatch.setattr(conflicts, "NAMED", 100)
    places = _worktrees(tmp_path)
    chosen, model = random.Random(seed), Model()
    for _ in range(STEPS):
        session = chosen.choice(SESSIONS)
        who, where = agent(session), chosen.choice(places)
        kind = chosen.choices(("edit", "subagent", "prompt", "end", "pause"), (60, 15, 15, 4, 6))[0]
        if kind == "pause":
            fleet.clock.pass_by(chosen.choice((MINUTE, 20 * MINUTE, HOUR + MINUTE)))
            continue
        if kind == "end":
            await hook(fleet, session, "SessionEnd", reason="exit")
            model.here.discard(who)
            continue
        if who not in model.here:  # no subagent works in a session that is over
            kind = "edit" if kind == "subagent" else kind
        model.here.add(who)
        if kind == "prompt":
            line = await prompts(fleet, session)
        else:
            file = chosen.choice(FILES)
            fields = {"agent_id": "helper", "agent_type": "X"} if kind == "subagent" else {}
            line = await edits(fleet, session, where / file, cwd=str(where), **fields)
            model.edits(who, file, fleet.clock())
        told = _MET.findall(line)
        assert len(told) == len(set(told))
        # What a subagent reads, nobody else does: its agent is told with the next hook of its own.
        assert set(told) == (set() if kind == "subagent" else model.due.pop(who, set()))
        found = {each.file: {edit.agent_id for edit in each.edits} for each in await listed(fleet)}
        assert found == model.conflicts(fleet.clock())


def _worktrees(home: Path) -> list[Path]:
    """Return a repository and a worktree of it."""
    repository, worktree = home.resolve() / "one", home.resolve() / "two"
    repository.mkdir()
    git(repository, "init", "--quiet", "--initial-branch=main")
    git(repository, "commit", "--quiet", "--allow-empty", "--message=Begin")
    git(repository, "worktree", "add", "--quiet", "-b", "topic", str(worktree))
    return [repository, worktree]
