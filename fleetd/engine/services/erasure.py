"""Erasure: files, then rows, then bytes; what a crash interrupts is finished at the next start.

What is kept outside the database is removed by ``_files``.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import trio

from ...domain.artifacts.outbox import Latest, Removal
from ...domain.core.context import Caller
from ...domain.core.idempotency import forget_answer
from ...domain.core.ids import resolve_id
from ...domain.core.registry import frees_space, method
from ...domain.erasure import journal, steps
from ...domain.erasure.erase import TableCursor, drop_batch, find_batch
from ...domain.erasure.scope import ErasureTarget, Scope
from ...host import progress
from ...protocol.errors import (
    FleetError,
    InvalidParams,
    InvalidState,
    NotFound,
    Storage,
    Unavailable,
)
from ...protocol.request import Mutation
from ...protocol.requests.system import Forgotten, SystemForget
from ...protocol.types import Noun
from ...store.disk_audit import replaced
from ...store.files.layout import Cleared
from ..engine import Engine
from ..hooks.deliver import clear_spool
from ..jobs.legacy_import import NAME

log = logging.getLogger("fleetd")
T = TypeVar("T")
# What was found, or removed, in the directories of missions and runs.
FilesByOwner = Mapping[tuple[Noun, str], Cleared]


@method(SystemForget)
@frees_space
async def forget(engine: Engine, request: SystemForget, caller: Caller) -> Forgotten:
    """Forget a mission, a session or a project, or only report what would be removed."""
    if request.dry_run:
        return await _preview(engine, await _target(engine, request))
    return await engine.run_once(request, lambda: _forget(engine, request))


async def _target(engine: Engine, request: SystemForget) -> ErasureTarget:
    given = {
        name: value
        for name in ("mission_id", "session_id", "project_dir")
        if (value := getattr(request, name)) is not None
    }
    if len(given) != 1:
        named = " and ".join(given) or "none of them"
        raise InvalidParams(
            f"Exactly one of mission_id, session_id and project_dir is needed, not {named}.",
            hint="Give one of them per request.",
        )
    if request.mission_id is not None:  # it may be a prefix of an id
        whole = await engine.read(resolve_id, "mission", request.mission_id)
        return ErasureTarget(kind="mission", name=whole)
    if request.session_id is not None:
        return ErasureTarget(kind="session", name=request.session_id)
    directory = str(request.project_dir)
    if not Path(directory).is_absolute():
        raise InvalidParams(
            f"project_dir is {directory!r}, which is not an absolute path.",
            hint="Give the absolute path of the project's directory.",
            field="project_dir",
        )
    return ErasureTarget(kind="project", name=directory, machine=engine.machine)


async def _preview(engine: Engine, target: ErasureTarget) -> Forgotten:
    found = await engine.read(steps.find, target)
    counted: dict[str, int] = {}
    await _in_batches(engine, found, counted, drop=False)
    seen = await engine.read(steps.preview, target, found.scope, found.before, counted)
    missions = [each.mission_id for each in seen.details]
    files = await _files(engine, found.scope, missions, found.scope.runs, remove=False)
    seen = _with_files(seen, [files])

    def size(noun: Noun, owner_id: str) -> int:
        return files[noun, owner_id].bytes if (noun, owner_id) in files else 0

    return msgspec.structs.replace(
        seen,
        details=[
            msgspec.structs.replace(each, bytes=size("checkpoint", each.mission_id))
            for each in seen.details
        ],
        run_details=[
            msgspec.structs.replace(each, bytes=size("snapshot", each.run_id))
            for each in seen.run_details
        ],
        warnings=[
            *seen.warnings,
            *await _other_machines(engine, found.scope),
            *await _other_copies(engine),
        ],
    )


async def _forget(engine: Engine, request: SystemForget) -> Forgotten:
    await clear_spool(engine)
    target = await _target(engine, request)
    # Once begun, it is finished: half of a mission is worse than all or nothing.
    with trio.CancelScope(shield=True):
        forgotten = await erase(engine, target, request)
        trouble = await _scrub(engine)
        warnings = [*forgotten.warnings, *await _other_copies(engine), *trouble]
    return msgspec.structs.replace(forgotten, warnings=warnings)


async def erase(
    engine: Engine, target: ErasureTarget, asked: Mutation[Any] | None = None
) -> Forgotten:
    """Remove files of a target, then its large tables batch by batch, then its other rows.

    ``asked`` is the client's request: repeated after a crash, it does not fail because nothing is
    left. After a failure, the erasure stays due once the files are removed: half of a mission is of
    no use. Raises NotFound or InvalidState when nothing of the target exists, or exists any more.
    """
    try:
        return await _erase(engine, target, asked)
    except FleetError:
        # The next start finishes an erasure that a shutdown interrupts.
        if asked is not None and asked.idempotency_key is not None and not engine.closing:
            with contextlib.suppress(FleetError):
                await engine.write(forget_answer, asked)
        raise


async def _erase(engine: Engine, target: ErasureTarget, asked: Mutation[Any] | None) -> Forgotten:
    found = await engine.read(steps.find, target)
    async with engine.outbox.file_lock:
        begun = await engine.write(steps.begin, target, found.scope, asked)
        scope = begun.scope
        others = await _other_machines(engine, scope)
        try:
            files = [await _files(engine, scope, scope.missions, scope.runs, remove=True)]
        except FleetError:  # the client gets the error, and work may continue
            if not begun.resumed:
                await engine.write(journal.remove, target)
            raise
    dropped = dict(begun.marked)
    try:
        await _in_batches(engine, begun, dropped, drop=True)
        forgotten = await _last_step(engine, target, begun.before, dropped, files)
    except (NotFound, InvalidState):  # it did not exist, or another request was faster
        await engine.write(journal.remove, target)
        raise
    warnings = [*forgotten.warnings, *others]
    return msgspec.structs.replace(forgotten, warnings=warnings)


async def _in_batches(
    engine: Engine, begun: steps.Erasure, rows: dict[str, int], *, drop: bool
) -> None:
    """Go through the large tables batch by batch, and count the rows of each in ``rows``.

    Other requests are served between the batches, both reads and writes.
    """
    scope, before = begun.scope, begun.before
    cursor: TableCursor | None = TableCursor()
    while cursor is not None:
        if engine.closing:
            raise Unavailable(
                "fleetd is shutting down; it finishes the started deletion at its next start.",
                hint="Try again after it has started.",
                retry=True,
            )
        progress.at("rows", sum(rows.values()))
        batch = await engine.read(find_batch, scope, before, cursor)
        number = batch.found.rows
        if drop and number:
            number = await engine.write(drop_batch, scope, before, batch.found)
        table = batch.found.table
        rows[table] = rows.get(table, 0) + number
        cursor = batch.following


async def _last_step(
    engine: Engine,
    target: ErasureTarget,
    before: int,
    dropped: dict[str, int],
    files: list[FilesByOwner],
) -> Forgotten:
    """Delete the rest, with later additions, while nothing else touches a checkpoint file."""
    cleared: set[str] = set()
    async with engine.outbox.file_lock:
        while True:
            step = await engine.write(steps.step, target, cleared, before, dropped)
            if step.forgotten is not None:
                return _with_files(step.forgotten, files)
            for table, number in step.marked.items():
                dropped[table] += number
            files.append(await _files(engine, step.scope, step.missions, step.runs, remove=True))
            cleared.update(step.missions, step.runs)


async def _other_copies(engine: Engine) -> list[str]:
    """Return warnings about copies that a restore or an import put aside, which nothing checks."""
    beside, checkpoints = engine.config.database.parent, engine.config.checkpoints.resolve()

    def look() -> list[Path]:
        restored = [*replaced(beside), *replaced(checkpoints.parent)]
        return [*dict.fromkeys(restored), *sorted(beside.glob(f"{NAME}*"))]

    with contextlib.suppress(OSError):
        found = await engine.outbox.in_thread(look)
        return [f"{path} may still hold it; remove it if you can." for path in found]
    return []


async def _scrub(engine: Engine) -> list[str]:
    """Rewrite the database without the bytes of deleted rows; return a warning if that fails."""
    progress.at("database")
    try:
        await engine.store.scrub()
        await engine.write(journal.bytes_scrubbed)
    except FleetError as error:
        text = (
            f"Everything is forgotten, but its bytes are still in free pages of the database: "
            f"{error.message} fleetd tries again at its next start and the next time something is "
            "forgotten."
        )
        log.warning("%s", text)
        return [text]
    return []


async def finish(engine: Engine, later: Collection[ErasureTarget] = ()) -> list[ErasureTarget]:
    """Finish erasures that a crash interrupted, except those for ``later``; return the failed ones.

    A failure is logged and the erasure stays due, so that no client waits for it.
    """
    left = await engine.read(journal.unfinished)
    now = [each for each in left.targets if each not in later]
    return await finish_these(engine, now, scrub=left.bytes)


async def finish_these(
    engine: Engine, targets: Collection[ErasureTarget], *, scrub: bool = False
) -> list[ErasureTarget]:
    """Finish erasures that are due, and return the failed ones."""
    failed = []
    for target in targets:
        try:
            await erase(engine, target)
            log.info("Finished forgetting a %s after a crash", target.kind)
        except (NotFound, InvalidState):  # it was deleted in another way: nothing is left
            await engine.write(journal.remove, target)
        except FleetError as error:
            failed.append(target)
            log.warning(
                "A %s could not be forgotten, fleetd tries again later: %s",
                target.kind,
                error.message,
            )
    if scrub or any(target.kind != "deletion" for target in targets if target not in failed):
        await _scrub(engine)
    return failed


# The files: directories of missions and runs, single files of other runs.


async def _files(
    engine: Engine, scope: Scope, missions: Iterable[str], runs: Iterable[str], *, remove: bool
) -> FilesByOwner:
    """Find or remove all files of missions and runs, and the affected files of runs that stay.

    Pulled files count as well. Raises Storage, which names the failing file or directory, and the
    reason.
    """
    found: dict[tuple[Noun, str], Cleared] = {}
    owners: list[tuple[Noun, str]] = [("checkpoint", each) for each in missions]
    owners += [("snapshot", each) for each in sorted(set(runs) & set(scope.runs))]
    for noun, owner_id in owners:
        trees = [engine.backups[noun], *([engine.pulled] if noun == "checkpoint" else [])]
        each = [
            await _or_named(
                engine,
                tree.root / owner_id,
                partial(tree.clear if remove else tree.weigh, owner_id),
            )
            for tree in trees
        ]
        found[noun, owner_id] = Cleared(
            names=[name for one in each for name in one.names],
            bytes=sum(one.bytes for one in each),
            left=[path for one in each for path in one.left],
        )
        progress.at("files", sum(len(each.names) for each in found.values()))
    for part in await engine.read(steps.parts, scope):
        found["snapshot", part.owner_id] = await _weigh_part(engine, part)
        if remove:
            await _remove_part(engine, part)
    return found


async def _other_machines(engine: Engine, scope: Scope) -> list[str]:
    """Return warnings about data on other machines: it is removed there, and not immediately."""
    if not engine.machine:  # it has the store to itself
        return []
    found = await engine.read(steps.other_machines, scope)
    warnings = []
    if found.keeping:
        when = "within a minute, or at their next start"
        warnings.append(
            f"Files on other machines are removed by their daemons, {when}:"
            f" {', '.join(found.keeping)}."
        )
    if found.silent:
        warnings.append(
            "Hooks spooled on disconnected machines are recorded when these run again;"
            f" repeat this then: {', '.join(found.silent)}."
        )
    return warnings


def _with_files(forgotten: Forgotten, files: Iterable[FilesByOwner]) -> Forgotten:
    """Return the answer with files that are or would be removed, and warnings about the rest."""
    every = [each for found in files for each in found.values()]
    left = dict.fromkeys(path for each in every for path in each.left)
    return msgspec.structs.replace(
        forgotten,
        files=sum(len(each.names) for each in every),
        bytes=sum(each.bytes for each in every),
        warnings=[f"{path} is not from fleetd and stays; remove it yourself." for path in left],
    )


async def _weigh_part(engine: Engine, part: Removal) -> Cleared:
    backups = engine.backups["snapshot"]

    def look() -> Cleared:
        names, size = [], 0
        for record_id in part.record_ids:
            for form in backups.forms(part.owner_id, record_id):
                if not form.no_file:  # that is moved aside when its place is freed
                    names.append(form.path.name)
                    size += len(form.raw)
        return Cleared(names=names, bytes=size)

    return await _or_named(engine, backups.root / part.owner_id, look)


async def _remove_part(engine: Engine, part: Removal) -> None:
    """Remove single files of a run; its latest.json must not keep a copy of one of them."""
    backups = engine.backups["snapshot"]
    run_id, place = part.owner_id, backups.root / part.owner_id
    # If a copy cannot be made now, the old one would stay.
    latest = part.latest if part.latest.data else Latest()
    remove = partial(backups.remove, run_id, part.record_ids, latest.id, latest.data)
    for record_id, error in (await _or_named(engine, place, remove)).items():
        raise _not_removed(error, backups.path_of(run_id, record_id))


async def _or_named(engine: Engine, place: Path, work: Callable[[], T]) -> T:
    """Do file work; raises Storage, which names the failing file or directory."""
    try:
        return await engine.outbox.in_thread(work)
    except OSError as error:
        raise _not_removed(error, place) from error


def _not_removed(error: OSError, place: Path) -> Storage:
    path = str(error.filename) if str(error.filename).startswith("/") else str(place)
    return Storage(
        f"{path} could not be removed ({error.strerror}); its owner stays.",
        hint="Remove the cause, then try again: the work continues where it stopped.",
        path=path,
    )
