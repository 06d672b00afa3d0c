"""What agents do and need, with the branches that they work on."""

import contextlib
import os

from msgspec.structs import replace

from ...domain.attention.overview import agent_states
from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...host.file_system import PathUnanswered, PathWalk
from ...protocol.requests.attention import AgentState, AttentionList, AttentionPage
from ..engine import Engine

# A branch is shown, not relied on: a directory that does not answer soon goes without.
SECONDS = 0.1
HEAD_BYTES = 1_000


@method(AttentionList)
async def list_states(engine: Engine, request: AttentionList, caller: Caller) -> AttentionPage:
    """Return what agents do and need, the most urgent first."""
    states: list[AgentState] = await engine.read(agent_states, request)
    here = {each.cwd for each in states if each.cwd and each.machine in (None, engine.machine)}
    places = {cwd: await _place(engine, cwd) for cwd in here}
    told = [replace(each, **places.get(each.cwd or "", {})) for each in states]
    return AttentionPage(agents=told)


async def _place(engine: Engine, cwd: str) -> dict[str, str | None]:
    """Return the root of the work tree around a directory, and the branch in it."""

    def look(walk: PathWalk) -> dict[str, str | None]:
        root = walk.root(cwd)
        return {"worktree": root, "branch": _branch(root, walk) if root else None}

    with contextlib.suppress(PathUnanswered):
        return await engine.files.run(look, cwd, seconds=SECONDS)
    return {}


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
    if head is None:
        return None
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else head[:12]


def _first_line(path: str) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(descriptor, HEAD_BYTES).decode().partition("\n")[0].strip() or None
        finally:
            os.close(descriptor)
    return None
