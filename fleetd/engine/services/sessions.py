"""Sessions for a person to reopen, with the present state of their directories."""

import contextlib
from functools import partial

import trio
from msgspec.structs import replace

from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...domain.sessions.listing import list_sessions
from ...host import processes
from ...host.file_system import PathUnanswered, PathWalk
from ...protocol.requests.session import PlaceNow, Session, SessionList, SessionPage
from ..checkouts import checkout_at
from ..engine import Engine

SECONDS = 0.5


@method(SessionList)
async def list_with_places(engine: Engine, request: SessionList, caller: Caller) -> SessionPage:
    """Return sessions, each with whether it is alive, and the present state of its directory."""
    page, known = await engine.read(list_sessions, request)
    living = {
        agent for agent, process in known.items() if processes.same(process.pid, process.started)
    }
    found: dict[str, PlaceNow] = {}

    async def look(session: Session) -> None:
        with contextlib.suppress(PathUnanswered):
            found[session.agent_id] = await engine.files.run_short(
                partial(_now, session), session.directory or "/", seconds=SECONDS
            )

    async with trio.open_nursery() as nursery:
        for session in page.sessions:
            if session.machine is None and session.directory is not None:
                nursery.start_soon(look, session)
    sessions = [
        replace(
            each,
            # For a known process, the kernel decides, whatever the store knows about its agent.
            alive=each.agent_id in living if each.agent_id in known else each.alive,
            now=found.get(each.agent_id),
        )
        for each in page.sessions
    ]
    return replace(page, sessions=sessions)


def _now(session: Session, walk: PathWalk) -> PlaceNow:
    """Return the present state of a session's directories."""
    directory = walk.facts(session.directory or "/")
    cwd = walk.facts(session.cwd) if session.cwd else directory
    found = checkout_at(walk.root(cwd.real) if cwd.is_directory else None, walk)
    return PlaceNow(
        worktree=found.worktree,
        branch=found.branch,
        head=found.head,
        directory_exists=directory.is_directory,
        cwd_exists=cwd.is_directory,
    )
