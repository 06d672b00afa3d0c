"""What agents do and need, with the branches that they work on."""

import contextlib
import os
from functools import partial

import trio
from msgspec.structs import replace

from ...domain.attention.overview import agent_states
from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...domain.liveness.needs import one_line
from ...host.file_system import PathUnanswered, PathWalk
from ...protocol.requests.attention import AgentState, AttentionList, AttentionPage
from ..engine import Engine

# A branch is shown, not relied on: a directory that does not answer soon goes without.
SECONDS = 0.1
# A pointer to a repository is a path.
HEAD_BYTES = 5_000
SHOWN_OF_COMMIT = 12
# What Git writes where its branches are not files.
_ELSEWHERE = ".invalid"
_Place = dict[str, str | None]


@method(AttentionList)
async def list_states(engine: Engine, request: AttentionList, caller: Caller) -> AttentionPage:
    """Return what agents do and need, the most urgent first."""
    states: list[AgentState]
    states, more = await engine.read(agent_states, request)
    places = await _places(engine, {each.cwd for each in states if _is_here(engine, each)})
    return AttentionPage(
        agents=[
            replace(each, **places.get(each.cwd, {})) if _is_here(engine, each) else each
            for each in states
        ],
        more=more,
    )


def _is_here(engine: Engine, agent: AgentState) -> bool:
    return bool(agent.cwd) and (agent.machine or "") == engine.machine


async def _places(engine: Engine, directories: set[str | None]) -> dict[str | None, _Place]:
    """Return what is known of directories, all looked at together."""
    found: dict[str | None, _Place] = {}

    async def look(cwd: str) -> None:
        with contextlib.suppress(PathUnanswered):
            found[cwd] = await engine.files.run_short(partial(_place, cwd), cwd, seconds=SECONDS)

    async with trio.open_nursery() as nursery:
        for cwd in filter(None, directories):
            nursery.start_soon(look, cwd)
    return found


def _place(cwd: str, walk: PathWalk) -> _Place:
    """Return the root of the work tree around a directory, and the branch in it."""
    root = walk.root(cwd)
    return {"worktree": root, "branch": _branch(root, walk) if root else None}


def _branch(root: str, walk: PathWalk) -> str | None:
    """Return the branch of a work tree, the commit's beginning where none is checked out."""
    git = f"{root}/.git"
    walk.visit(git)
    if (pointer := _first_line(git)) is not None and pointer.startswith("gitdir: "):
        named = pointer.removeprefix("gitdir: ")
        git = named if named.startswith("/") else f"{root}/{named}"
        walk.visit(git)
    head = _first_line(f"{git}/HEAD")
    walk.at = None
    if head is None or not head.startswith("ref: "):
        return one_line(head and head[:SHOWN_OF_COMMIT])
    branch = head.removeprefix("ref: ").removeprefix("refs/heads/")
    return None if branch == _ELSEWHERE else one_line(branch)


def _first_line(path: str) -> str | None:
    with contextlib.suppress(OSError, ValueError):  # also for what is no path, or no UTF-8
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(descriptor, HEAD_BYTES).decode().partition("\n")[0].strip() or None
        finally:
            os.close(descriptor)
    return None
