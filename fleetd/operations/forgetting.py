"""Forgetting: files, then rows, then bytes; what a crash interrupts is finished at the next start.

Whatever else keeps something outside the database joins ``_clear``.
"""

import contextlib
import logging
from pathlib import Path

import msgspec
import trio

from ..domain.context import Caller
from ..domain.forget_scope import Target
from ..domain.forgetting import BytesScrubbed, ForgetPreview, ForgetStep, ForgetWithdraw, OwedGet
from ..engine import Engine, operation
from ..store.backups import Cleared
from ..store.housekeeping import replaced
from ..wire.errors import FleetError, InvalidParams, InvalidState, NotFound, Storage
from ..wire.requests.mission import MissionGet
from ..wire.requests.system import Forgotten, SystemForget
from .legacy import NAME

log = logging.getLogger("fleetd")


@operation
async def forget(engine: Engine, request: SystemForget, caller: Caller) -> Forgotten:
    """Forget a mission, a session or a project, or only say what would go."""
    if request.dry_run:
        return await _preview(engine, await _target(engine, request))
    return await engine.remembered(request, lambda: _forget(engine, request))


async def _target(engine: Engine, request: SystemForget) -> Target:
    given = {
        name: value
        for name in ("mission_id", "session_id", "project_dir")
        if (value := getattr(request, name)) is not None
    }
    if len(given) != 1:
        named = " and ".join(given) or "none of them"
        raise InvalidParams(
            f"Exactly one of mission_id, session_id and project_dir is needed, not {named}.",
            hint="Forget one thing after the other.",
        )
    if request.mission_id is not None:  # it may be the beginning of an id
        return Target(
            kind="mission", name=(await engine.execute(MissionGet(request.mission_id))).id
        )
    if request.session_id is not None:
        return Target(kind="session", name=request.session_id)
    directory = str(request.project_dir)
    if not Path(directory).is_absolute():
        raise InvalidParams(
            f"project_dir is {directory!r}, which is not an absolute path.",
            hint="Give the whole path of the project's directory.",
            field="project_dir",
        )
    return Target(kind="project", name=directory)


async def _preview(engine: Engine, target: Target) -> Forgotten:
    seen = await engine.execute(ForgetPreview(target))
    files, details, left = 0, [], []
    for mission in seen.details:
        found = await _weigh(engine, mission.mission_id)
        files += len(found.names)
        left += found.left
        details.append(msgspec.structs.replace(mission, bytes=found.bytes))
    size = sum(each.bytes for each in details)
    warnings = [*_foreign(left), *await _copies(engine)]
    return msgspec.structs.replace(
        seen, files=files, bytes=size, details=details, warnings=warnings
    )


async def _weigh(engine: Engine, mission_id: str) -> Cleared:
    backups = engine.backups
    try:
        return await engine.outbox.in_thread(lambda: backups.weigh(mission_id))
    except OSError as error:
        raise _not_removed(error, engine.backups.root / mission_id) from error


async def _forget(engine: Engine, request: SystemForget) -> Forgotten:
    target = await _target(engine, request)
    # Once begun it is brought to its end: half of a mission is worse than either.
    with trio.CancelScope(shield=True):
        try:
            forgotten = await _erase(engine, target)
        except FleetError:
            await engine.execute(ForgetWithdraw(target))
            raise
        trouble = await _scrub(engine)
    warnings = [*forgotten.warnings, *await _copies(engine), *trouble]
    return msgspec.structs.replace(forgotten, warnings=warnings)


async def _erase(engine: Engine, target: Target) -> Forgotten:
    """Remove files, then rows, while nobody else touches a checkpoint file."""
    cleared: dict[str, Cleared] = {}
    async with engine.outbox.at_work:
        while True:
            step = await engine.execute(ForgetStep(target, sorted(cleared)))
            if step.forgotten is not None:
                return _with_files(step.forgotten, list(cleared.values()))
            for mission_id in step.missions:
                cleared[mission_id] = await clear(engine, mission_id)


def _with_files(forgotten: Forgotten, cleared: list[Cleared]) -> Forgotten:
    return msgspec.structs.replace(
        forgotten,
        files=sum(len(each.names) for each in cleared),
        bytes=sum(each.bytes for each in cleared),
        warnings=_foreign([path for each in cleared for path in each.left]),
    )


def _foreign(left: list[str]) -> list[str]:
    return [f"{path} is not fleetd's and stays; remove it yourself." for path in left]


async def _copies(engine: Engine) -> list[str]:
    """Return warnings about what a restore or an import put aside: nobody looks into that."""
    beside, checkpoints = engine.config.database.parent, engine.config.checkpoints.resolve()

    def look() -> list[Path]:
        restored = [*replaced(beside), *replaced(checkpoints.parent)]
        return [*dict.fromkeys(restored), *sorted(beside.glob(f"{NAME}*"))]

    with contextlib.suppress(OSError):
        found = await engine.outbox.in_thread(look)
        return [f"{path} may still hold it; remove it when you need it no more." for path in found]
    return []


async def clear(engine: Engine, mission_id: str) -> Cleared:
    """Remove every file of a mission; raises Storage that names the one which stays, and why."""
    backups = engine.backups
    try:
        return await engine.outbox.in_thread(lambda: backups.clear(mission_id))
    except OSError as error:
        raise _not_removed(error, engine.backups.root / mission_id) from error


def _not_removed(error: OSError, place: Path) -> Storage:
    path = str(error.filename) if str(error.filename).startswith("/") else str(place)
    return Storage(
        f"{path} could not be removed ({error.strerror}); the mission stays.",
        hint="Remove the cause, then try again: it goes on where it stopped.",
        path=path,
    )


async def _scrub(engine: Engine) -> list[str]:
    """Rewrite the database without the bytes of what was deleted; say it when that fails."""
    try:
        await engine.store.scrub()
        await engine.execute(BytesScrubbed())
    except FleetError as error:
        text = (
            f"Everything is forgotten, but its bytes still stand in free pages of the database: "
            f"{error.message} fleetd tries again at its next start and the next time something is "
            "forgotten."
        )
        log.warning("%s", text)
        return [text]
    return []


async def finish(engine: Engine) -> None:
    """Finish at start-up what a crash has interrupted; a failure is logged and stays owed."""
    owed = await engine.execute(OwedGet())
    for target in owed.targets:
        try:
            await _erase(engine, target)
            log.info("Finished forgetting a %s that a crash had interrupted", target.kind)
        except (NotFound, InvalidState):  # it was deleted otherwise: nothing is left of it
            await engine.execute(ForgetWithdraw(target))
        except FleetError as error:
            log.warning(
                "A %s could not be forgotten, the next start tries again: %s",
                target.kind,
                error.message,
            )
    if owed.targets or owed.bytes:
        await _scrub(engine)
