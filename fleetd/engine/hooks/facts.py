"""Facts of a hook from outside the store: paths, its agent's process, and its transcript.

Transcripts are read up to a limit, and only if they are regular files of this user.
"""

import contextlib
import hashlib
import logging
import os
import stat

import msgspec

from ...domain.agents.agent_loss import session_processes
from ...domain.core.context import Caller, Checkout, EditedFile, Facts, Here, TranscriptMark
from ...harness.gemini import first_message, last_count
from ...harness.report import Adapter, AnyHappening, Report, ToolFinished, ToolStarted, WindowUsed
from ...host import processes
from ...host.file_system import HOOK_SECONDS, PathUnanswered, PathWalk
from ..checkouts import checkout_at
from ..engine import Engine

log = logging.getLogger("fleetd")
TRANSCRIPT_S = 2.0
HEAD_BYTES = 4_096
TAIL_BYTES = 1_048_576
# One line of a log can contain the whole conversation.
LOG_BYTES = 8 * TAIL_BYTES
# How far from either end a transcript contains the version of its harness.
VERSION_BYTES = 65_536


class _Transcript(msgspec.Struct, frozen=True):
    """A transcript's mark of a compaction, its happenings beside the events, and a version."""

    mark: TranscriptMark | None = None
    earlier: tuple[AnyHappening, ...] = ()
    version: str | None = None


class HookPaths(msgspec.Struct, frozen=True):
    """What the file system reports before a hook is recorded.

    If it does not answer, ``cwd`` is what it reported before, so that the hook is not lost.
    """

    cwd: str | None
    """The session's directory, by its real path."""
    root: str | None
    """The root of the repository around it, else the directory itself."""
    spooled: bool
    """Whether something waits in the spool."""
    answered: bool = True
    checkout: Checkout | None = None
    """What is checked out in the session's directory; None if it is not known."""


async def resolve_paths(engine: Engine, report: Report) -> HookPaths:
    """Look up everything that a hook needs from the file system in one call, since threads cost.

    Hooks of one directory that arrive together share a lookup.
    """
    cwd = report.cwd if report.cwd and report.cwd.startswith("/") else None
    spool, waiting = engine.spool, [False]
    # A call that only begins has checked out nothing, and half of all hooks report one.
    moves = not all(isinstance(each, ToolStarted) for each in report.happenings)

    def look(walk: PathWalk) -> HookPaths:
        walk.visit(str(spool.directory or "/"))
        waiting[0] = spool.any()
        if cwd is None:
            return HookPaths(report.cwd, None, waiting[0])
        real = walk.facts(cwd).real
        root = walk.root(real)
        checkout = checkout_at(root, walk) if moves else None
        return HookPaths(real, root or real, waiting[0], checkout=checkout)

    async def ask() -> HookPaths:
        path = cwd or str(spool.directory or "/")
        try:
            return await engine.files.run_short(look, path, seconds=HOOK_SECONDS)
        except PathUnanswered as unanswered:
            if engine.session_queue.first_time(f"path: {path}"):
                log.warning("%s Hooks from there are recorded unresolved", unanswered.message)
            known = unanswered.reached if cwd else report.cwd
            return HookPaths(known, known if cwd else None, waiting[0], answered=False)

    return await engine.session_queue.lookups.ask(report.cwd, ask)


async def gather_facts(
    engine: Engine,
    adapter: Adapter,
    report: Report,
    paths: HookPaths,
    caller: Caller | None,
) -> tuple[Facts, tuple[AnyHappening, ...]]:
    """Gather the other facts from outside the store, and the transcript's happenings.

    ``caller`` is None for a delivery from the spool, whose client has ended.
    """
    agent = None
    if caller is None:
        # The client has ended, so its agent cannot be found through it. Keep the known process of
        # the session.
        known = await engine.read(
            session_processes, report.harness, report.session_id, report.previous_session_id
        )
        alive = (each for each in known if processes.same(each.pid, each.started))
        agent = next(((each.pid, each.started) for each in alive), None)
    elif caller.pid:
        find = processes.itself if adapter.in_process else processes.agent_behind
        agent = find(caller.pid)
    pid, started = agent or (None, None)

    asks_version = adapter.versions_in_transcripts and engine.sightings.asks_version(report)
    transcript = await read_transcript(engine, adapter, report, asks_version=asks_version)
    facts = Facts(
        agent_pid=pid,
        pid_started=started,
        project_root=paths.root,
        places=await engine.projects.shared_names(paths.cwd) if paths.answered else (),
        here=Here(root=paths.root or ""),
        transcript_mark=transcript.mark,
        harness_version=transcript.version,
        edited=await _edited(engine, (*report.happenings, *transcript.earlier)),
    )
    return facts, transcript.earlier


async def read_transcript(
    engine: Engine, adapter: Adapter, report: Report, *, asks_version: bool = False
) -> _Transcript:
    """Return a transcript's mark of a compaction and its happenings, as far as it is read."""

    def look(walk: PathWalk) -> _Transcript:
        path = report.transcript_path
        mark, used = log_of(path, walk) if report.seeks_compaction else (None, ())
        tail = tail_of(path, walk) if report.looks_back else ""
        version = _version_in(adapter, path, walk) if asks_version else None
        earlier = (*used, *(adapter.look_back(tail) if tail else ()))
        return _Transcript(mark, earlier, version)

    if report.seeks_compaction or report.looks_back or asks_version:
        with contextlib.suppress(PathUnanswered):
            return await engine.files.run(look, report.transcript_path or "", seconds=TRANSCRIPT_S)
    return _Transcript()


async def _edited(
    engine: Engine, happenings: tuple[AnyHappening, ...]
) -> dict[str, EditedFile | None]:
    """Return the names of the files that a hook reports as changed, or about to be changed."""
    named: list[str] = []
    for each in happenings:
        if isinstance(each, ToolFinished):
            named += each.edited
        elif isinstance(each, ToolStarted):
            named += each.edits
    files = dict.fromkeys(file for file in named if file.startswith("/"))
    return await engine.projects.edited(files, engine.config.project_ignore) if files else {}


def log_of(
    path: str | None, walk: PathWalk | None = None
) -> tuple[TranscriptMark | None, tuple[WindowUsed, ...]]:
    """Return what shows that a transcript was rewritten, and how full its window is.

    A log of happenings is never rewritten: a later line contains the first message. Its size shows
    nothing, since a resumed session may continue in a file with another name.
    """
    log = path is not None and path.endswith(".jsonl")
    found = _read(path, LOG_BYTES if log else HEAD_BYTES, from_end=log, walk=walk)
    if found is None:
        return None, ()
    size, some = found
    if log:
        mark = TranscriptMark(0, first_message(some, whole=size <= LOG_BYTES))
        return mark, last_count(some)
    return TranscriptMark(size, hashlib.sha256(some.partition(b"\n")[0]).hexdigest()), ()


def tail_of(path: str | None, walk: PathWalk | None = None) -> str:
    """Return the end of a transcript, empty if there is none; its first line may be cut."""
    found = _read(path, TAIL_BYTES, from_end=True, walk=walk)
    return found[1].decode("utf-8", "replace") if found else ""


def _version_in(adapter: Adapter, path: str | None, walk: PathWalk) -> str | None:
    """Return the version that a transcript contains near its ends, None if it contains none."""
    ends = [_read(path, VERSION_BYTES, from_end=end, walk=walk) for end in (False, True)]
    head, tail = (found[1].decode("utf-8", "replace") if found else "" for found in ends)
    return adapter.version_in(head, tail)


def _read(
    path: str | None, most: int, *, from_end: bool, walk: PathWalk | None
) -> tuple[int, bytes] | None:
    """Return a file's size and some of its bytes; None unless it is a regular file of this user."""
    if path is None or not path.startswith("/") or "\0" in path:
        return None
    walk = walk or PathWalk()
    walk.visit(path)
    try:
        return _bytes_of(path, most, from_end=from_end)
    finally:
        walk.at = None


def _bytes_of(path: str, most: int, *, from_end: bool) -> tuple[int, bytes] | None:
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid():
            return None
        begin = max(info.st_size - most, 0) if from_end else 0
        return info.st_size, os.pread(descriptor, most, begin)
    except OSError:
        return None
    finally:
        os.close(descriptor)
