"""What a hook needs to know from outside: paths, its agent's process, and its transcript."""

import contextlib
import logging

import msgspec

from ...domain.agents.agent_loss import session_processes
from ...domain.core.context import Caller, Facts, Here, TranscriptMark
from ...harness.report import Adapter, AnyHappening, Report
from ...host import processes
from ...host.file_system import HOOK_SECONDS, PathUnanswered, PathWalk
from ..engine import Engine
from . import transcript

log = logging.getLogger("fleetd")
TRANSCRIPT_S = 2.0
# What a transcript shows of a compaction, and what it tells beside the events.
_Told = tuple[TranscriptMark | None, tuple[AnyHappening, ...]]


class HookPaths(msgspec.Struct, frozen=True):
    """What the file system says before a hook is recorded.

    Where it does not answer, ``cwd`` is what it said before: a hook is not lost for that.
    """

    cwd: str | None
    """The session's directory, by its real path."""
    root: str | None
    """The root of the repository around it, else the directory itself."""
    spooled: bool
    """Whether something waits in the spool."""
    answered: bool = True


async def resolve_paths(engine: Engine, report: Report) -> HookPaths:
    """Ask the file system what a hook needs to know of it, all at once: a thread has its price."""
    cwd = report.cwd if report.cwd and report.cwd.startswith("/") else None
    spool, waiting = engine.spool, [False]

    def look(walk: PathWalk) -> HookPaths:
        walk.visit(str(spool.directory or "/"))
        waiting[0] = spool.any()
        if cwd is None:
            return HookPaths(report.cwd, None, waiting[0])
        real = walk.facts(cwd).real
        return HookPaths(real, walk.root(real) or real, waiting[0])

    path = cwd or str(spool.directory or "/")
    try:
        return await engine.files.run(look, path, seconds=HOOK_SECONDS)
    except PathUnanswered as unanswered:
        if engine.session_queue.first_time(f"path: {path}"):
            log.warning("%s Hooks from there are recorded as they are", unanswered.message)
        known = unanswered.reached if cwd else report.cwd
        return HookPaths(known, known if cwd else None, waiting[0], answered=False)


async def gather_facts(
    engine: Engine, adapter: Adapter, report: Report, paths: HookPaths, caller: Caller | None
) -> tuple[Facts, tuple[AnyHappening, ...]]:
    """Gather what else the rules may not look at; ``caller`` only when the client still runs."""
    if caller is None:
        agent = await _still_alive(engine, report)
    else:
        agent = processes.agent_behind(caller.pid) if caller.pid else None
    pid, started = agent or (None, None)
    told: _Told = (None, ())
    if report.tells_compaction or report.looks_back:
        with contextlib.suppress(PathUnanswered):
            told = await engine.files.run(
                lambda walk: _transcript(walk, adapter, report),
                report.transcript_path or "",
                seconds=TRANSCRIPT_S,
            )
    mark, earlier = told
    facts = Facts(
        agent_pid=pid,
        pid_started=started,
        project_root=paths.root,
        places=await engine.projects.places(paths.cwd) if paths.answered else (),
        here=Here(root=paths.root or ""),
        transcript_mark=mark,
    )
    return facts, earlier


async def _still_alive(engine: Engine, report: Report) -> tuple[int, str | None] | None:
    """Return the process of a session of which a hook told in the spool, None if it is gone.

    The client has ended, and with it the way to its agent: what is known of that must not be lost.
    """
    known = await engine.read(
        session_processes, report.harness, report.session_id, report.previous_session_id
    )
    found = (each for each in known if processes.same(each.pid, each.started))
    return next(((each.pid, each.started) for each in found), None)


def _transcript(walk: PathWalk, adapter: Adapter, report: Report) -> _Told:
    """Return what the transcript tells of a compaction, and what happened beside the events."""
    path, log = report.transcript_path, (None, ())
    mark, used = transcript.log_of(path, walk) if report.tells_compaction else log
    tail = transcript.tail_of(path, walk) if report.looks_back else ""
    return mark, (*used, *(adapter.look_back(tail) if tail else ()))
