"""Attention: what agents do and need, with the branches that they work on."""

import contextlib
from functools import partial

import trio
from msgspec.structs import replace

from ...domain.attention.overview import agent_states
from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...host.file_system import PathUnanswered, PathWalk
from ...protocol.requests.attention import AgentState, AttentionList, AttentionPage
from ..checkouts import checkout_at
from ..engine import Engine

# A branch is only shown: a directory that does not answer soon is listed without one.
SECONDS = 0.1
SHOWN_OF_COMMIT = 12
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
    """Return what is known about directories, looking at all of them together."""
    found: dict[str | None, _Place] = {}

    async def look(cwd: str) -> None:
        with contextlib.suppress(PathUnanswered):
            found[cwd] = await engine.files.run_short(partial(_place, cwd), cwd, seconds=SECONDS)

    async with trio.open_nursery() as nursery:
        for cwd in filter(None, directories):
            nursery.start_soon(look, cwd)
    return found


def _place(cwd: str, walk: PathWalk) -> _Place:
    """Return the root of the work tree around a directory, and the branch or commit in it."""
    found = checkout_at(walk.root(cwd), walk)
    commit = found.head[:SHOWN_OF_COMMIT] if found.head else None
    return {"worktree": found.worktree, "branch": found.branch or commit}
