"""Verification of records in both stores: which records to check, and the findings.

It checks one owner and one record at a time, so that other requests are served meanwhile.
"""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from ...domain.artifacts import inventory
from ...domain.artifacts.kinds import KINDS, id_of
from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...domain.missions import missions
from ...host import progress
from ...protocol.errors import Corrupt, Incompatible, NotFound
from ...protocol.records import Finding
from ...protocol.requests.checkpoint import CheckpointVerify
from ...protocol.requests.mission import MissionGet
from ...protocol.requests.snapshot import SnapshotVerify
from ...protocol.requests.system import Findings
from ...protocol.types import Noun
from ...store.files.layout import Listing
from ..engine import Engine
from ..files.inventory import check_latest, compare, owners, rows_of
from ..files.read_repair import get
from ..files.repair import check

log = logging.getLogger("fleetd")
# Up to this number of findings, intact records are listed one by one; beyond, they are counted.
LISTED = 1_000


class VerifyTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What to check: one record, the records of one owner, or all of a noun."""

    noun: Noun
    owner_id: str | None = None
    record_id: str | None = None
    repair: bool = False


@method(CheckpointVerify)
async def verify(engine: Engine, request: CheckpointVerify, caller: Caller) -> Findings:
    """Check checkpoints in both stores; ``repair`` restores a bad copy from a good one."""

    async def work() -> Findings:
        what = VerifyTarget(
            noun="checkpoint",
            owner_id=request.mission_id,
            record_id=request.checkpoint_id,
            repair=request.repair,
        )
        if what.owner_id is not None:
            mission = await engine.run(missions.get, MissionGet(what.owner_id))
            what = msgspec.structs.replace(what, owner_id=mission.id)
        return await _verify(engine, what)

    return await engine.run_once(request, work)


@method(SnapshotVerify)
async def verify_snapshots(engine: Engine, request: SnapshotVerify, caller: Caller) -> Findings:
    """Check snapshots in both stores; ``repair`` restores a bad copy from a good one."""
    what = VerifyTarget(
        noun="snapshot",
        owner_id=request.run_id,
        record_id=request.snapshot_id,
        repair=request.repair,
    )
    return await engine.run_once(request, lambda: _verify(engine, what))


async def _verify(engine: Engine, what: VerifyTarget) -> Findings:
    findings: list[Finding] = []
    async for owner_id, found in checked(engine, what):
        findings += found if len(findings) < LISTED else _shortened(what.noun, owner_id, found)
    return Findings(ok=all(f.ok or f.fixed for f in findings), findings=findings)


async def checked(engine: Engine, what: VerifyTarget) -> AsyncIterator[tuple[str, list[Finding]]]:
    """Yield the findings of one owner after the other, repaired if requested.

    Raises NotFound for an unknown run.
    """
    if what.record_id is not None:
        yield what.record_id, await _check_one(engine, what, what.record_id)
        return
    for owner_id in await _owners(engine, what):
        yield owner_id, await _check_owner(engine, what, owner_id)


async def _check_one(engine: Engine, what: VerifyTarget, record_id: str) -> list[Finding]:
    """Check one record, and ``latest.json`` if that must be another copy of it."""
    backups = engine.backups[what.noun]
    try:
        files = await engine.outbox.in_thread(lambda: backups.find(record_id))
        if not files:  # a prefix of an id, or no file: the row decides
            record_id = await _whole_id(engine, what.noun, record_id)
            files = await engine.outbox.in_thread(lambda: backups.find(record_id))
    except OSError as error:
        return [_unreadable(what.noun, backups.root, error)]
    # Of several files, all but one are copies made by a person: the row names the right place.
    owner_id = files[0].owner_id if len(files) == 1 else None
    found = await check(engine, what.noun, record_id, owner_id, repair=what.repair)
    if owner_id is None or not backups.layout.copies:
        return [found]
    if (await rows_of(engine, what.noun, owner_id)).newest != record_id:
        return [found]
    bad = set() if found.ok else {found.subject}
    return [found, *await check_latest(engine, what.noun, owner_id, bad, repair=what.repair)]


async def _whole_id(engine: Engine, noun: Noun, given: str) -> str:
    """Return the full id for a prefix, also when its row cannot be read."""
    try:
        return id_of(await get(engine, noun, given))
    except (Corrupt, Incompatible) as error:
        named = error.values.get(f"{noun}_id")
        if named is None:
            raise
        return str(named)


def _unreadable(noun: Noun, directory: Path, error: OSError) -> Finding:
    """Return the finding of an unreadable directory: nothing can be written there either."""
    return Finding(
        check="files",
        ok=False,
        subject=str(directory),
        detail=f"the {noun} files cannot be read: {error}",
        reason_code=KINDS[noun].write_failed,
    )


async def _owners(engine: Engine, what: VerifyTarget) -> list[str]:
    """Return the owners to check: one, or all that have rows or files."""
    backups = engine.backups[what.noun]
    try:
        known = await engine.outbox.in_thread(backups.owners)
    except OSError as error:  # reported with every owner that has rows
        log.warning("The %s files cannot be read: %s", what.noun, error)
        known = []
    every = sorted({*known, *await owners(engine, what.noun)})
    if what.owner_id is None:
        progress.at(f"{what.noun}s", total=await engine.read(inventory.count_records, what.noun))
        return every
    if what.owner_id not in every and what.noun == "snapshot":
        raise NotFound(
            f"Run not found: {what.owner_id}",
            hint="fleetctl snapshot list shows the runs with snapshots.",
            noun="run",
            id=what.owner_id,
        )
    return [what.owner_id]


async def _check_owner(engine: Engine, what: VerifyTarget, owner_id: str) -> list[Finding]:
    directory = engine.backups[what.noun].root / owner_id
    try:
        found = await compare(engine, what.noun, owner_id)
    except OSError as error:
        return [_unreadable(what.noun, directory, error)]
    to_check = sorted(found.rows.live | found.orphans)
    stuck = _stuck(engine, what.noun, sorted(found.deleted))
    if not to_check:
        return stuck
    findings = []
    if what.owner_id is not None:
        progress.at(f"{what.noun}s", total=len(to_check))
    for record_id in to_check:
        holder = owner_id if record_id in found.named else None
        findings.append(await check(engine, what.noun, record_id, holder, repair=what.repair))
        progress.advance()
    known = {finding.subject for finding in findings if not finding.ok}
    findings += await check_latest(engine, what.noun, owner_id, known, repair=what.repair)
    return [*findings, *stuck, *_foreign(directory, found.listing)]


def _stuck(engine: Engine, noun: Noun, going: list[str]) -> list[Finding]:
    """Return findings about files that could not be removed; a pending removal is none."""
    found = [(each, why) for each in going if (why := engine.outbox.failure(each)) is not None]
    return [
        Finding(
            check="removal",
            ok=False,
            subject=record_id,
            detail=f"deleted, but its file could not be removed: {why}",
            reason_code=KINDS[noun].prune_failed,
        )
        for record_id, why in found
    ]


def _foreign(directory: Path, listing: Listing) -> list[Finding]:
    return [
        Finding(
            check="name",
            ok=True,
            subject=str(directory / name),
            detail="is not a name that fleetd uses; it is ignored",
        )
        for name in listing.foreign
    ]


def _shortened(noun: Noun, owner_id: str, found: list[Finding]) -> list[Finding]:
    """Return an owner's findings with one line for all intact records."""
    intact = sum(finding.ok for finding in found)
    detail = f"{intact} {noun}s and names correct"
    line = Finding(check=f"{noun}s", ok=True, subject=owner_id, detail=detail)
    return [*([line] if intact else []), *(finding for finding in found if not finding.ok)]
