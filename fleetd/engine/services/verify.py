"""Checking records in both stores: which there are to check, and what is told of them.

An owner at a time, a record at a time: whoever else asks for something is served meanwhile.
"""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from ...domain.artifacts.inventory import NamesGet, OwnersGet, RowNames
from ...domain.artifacts.kinds import POLICIES, id_of
from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...host import progress
from ...protocol.errors import Corrupt, Incompatible, IntegrityMismatch, NotFound
from ...protocol.records import Finding
from ...protocol.requests.checkpoint import CheckpointVerify
from ...protocol.requests.mission import MissionGet
from ...protocol.requests.snapshot import SnapshotVerify
from ...protocol.requests.system import Findings
from ...protocol.types import Noun
from ...store.files.layout import LATEST
from ...store.files.owner_dir import Listing
from ..engine import Engine
from ..files.latest import copy_trouble, held_by_latest, mend_latest, named_in, wanted_latest
from ..files.read_repair import get
from ..files.repair import check

log = logging.getLogger("fleetd")
# So many intact records are listed one by one; of further owners only their number is told.
LISTED = 1_000


class What(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be checked: one record, the records of one owner, or all of a noun."""

    noun: Noun
    owner_id: str | None = None
    record_id: str | None = None
    repair: bool = False


@method(CheckpointVerify)
async def verify(engine: Engine, request: CheckpointVerify, caller: Caller) -> Findings:
    """Check checkpoints in both stores; with ``repair`` mend what one good copy can mend."""

    async def work() -> Findings:
        mission_id = request.mission_id
        if mission_id is not None:
            mission_id = (await engine.execute(MissionGet(mission_id))).id
        what = What(
            noun="checkpoint",
            owner_id=mission_id,
            record_id=request.checkpoint_id,
            repair=request.repair,
        )
        return await _verify(engine, what)

    return await engine.remembered(request, work)


@method(SnapshotVerify)
async def verify_snapshots(engine: Engine, request: SnapshotVerify, caller: Caller) -> Findings:
    """Check snapshots in both stores; with ``repair`` mend what one good copy can mend."""
    what = What(
        noun="snapshot",
        owner_id=request.run_id,
        record_id=request.snapshot_id,
        repair=request.repair,
    )
    return await engine.remembered(request, lambda: _verify(engine, what))


async def _verify(engine: Engine, what: What) -> Findings:
    findings: list[Finding] = []
    async for owner_id, found in checked(engine, what):
        findings += found if len(findings) < LISTED else _shortened(what.noun, owner_id, found)
    return Findings(ok=all(f.ok or f.fixed for f in findings), findings=findings)


async def checked(engine: Engine, what: What) -> AsyncIterator[tuple[str, list[Finding]]]:
    """Yield the findings of one owner after the other, repaired if that is wished.

    Raises NotFound for a run that is nowhere.
    """
    if what.record_id is not None:
        yield what.record_id, await _check_one(engine, what, what.record_id)
        return
    for owner_id in await _owners(engine, what):
        yield owner_id, await _check_owner(engine, what, owner_id)


async def _check_one(engine: Engine, what: What, record_id: str) -> list[Finding]:
    """Check one record, and ``latest.json`` where that is to be another copy of it."""
    backups = engine.backups[what.noun]
    try:
        files = await engine.outbox.in_thread(lambda: backups.find(record_id))
        if not files:  # the beginning of an id, or no file: the row says which, or that none is
            record_id = await _whole_id(engine, what.noun, record_id)
            files = await engine.outbox.in_thread(lambda: backups.find(record_id))
    except OSError as error:
        return [_unreadable(what.noun, backups.root, error)]
    # Of several all but one are copies that somebody made: where its row says is the one.
    owner_id = files[0].owner_id if len(files) == 1 else None
    found = await check(engine, what.noun, record_id, owner_id, repair=what.repair)
    if owner_id is None or not backups.layout.copies:
        return [found]
    (rows,) = (await engine.execute(NamesGet(what.noun, [owner_id]))).owners
    if rows.newest != record_id:
        return [found]
    bad = set() if found.ok else {found.subject}
    return [found, *await check_latest(engine, what, owner_id, bad)]


async def _whole_id(engine: Engine, noun: Noun, given: str) -> str:
    """Return the id that a given one is the beginning of, also when its row cannot be read."""
    try:
        return id_of(await get(engine, noun, given))
    except (Corrupt, Incompatible) as error:
        named = error.values.get(f"{noun}_id")
        if named is None:
            raise
        return str(named)


def _unreadable(noun: Noun, directory: Path, error: OSError) -> Finding:
    """Tell of a directory that cannot be opened: nothing can be written there either."""
    return Finding(
        check="files",
        ok=False,
        subject=str(directory),
        detail=f"the {noun} files cannot be read: {error}",
        reason_code=POLICIES[noun].write_failed,
    )


async def _owners(engine: Engine, what: What) -> list[str]:
    """Return the owners to check: one, or all that have rows or files."""
    backups = engine.backups[what.noun]
    try:
        known = await engine.outbox.in_thread(backups.owners)
    except OSError as error:  # told with every owner that has rows
        log.warning("The %s files cannot be read: %s", what.noun, error)
        known = []
    rows = await engine.execute(OwnersGet(what.noun))
    every = sorted({*known, *rows.ids})
    if what.owner_id is None:
        progress.at(f"{what.noun}s", total=rows.records)
        return every
    if what.owner_id not in every and what.noun == "snapshot":
        raise NotFound(
            f"Run not found: {what.owner_id}",
            hint="fleetctl snapshot list shows the runs that have snapshots.",
            noun="run",
            id=what.owner_id,
        )
    return [what.owner_id]


async def _look(engine: Engine, noun: Noun, owner_id: str) -> tuple[Listing, RowNames]:
    """Return the names on disk and in the database, in this order: rows come before files."""
    listing = await engine.outbox.in_thread(lambda: engine.backups[noun].list(owner_id))
    (rows,) = (await engine.execute(NamesGet(noun, [owner_id]))).owners
    return listing, rows


async def _check_owner(engine: Engine, what: What, owner_id: str) -> list[Finding]:
    directory = engine.backups[what.noun].root / owner_id
    try:
        listing, rows = await _look(engine, what.noun, owner_id)
    except OSError as error:
        return [_unreadable(what.noun, directory, error)]
    named = listing.files | listing.blocked
    to_check = sorted(rows.live | (named - rows.rows))
    stuck = _stuck(engine, what.noun, sorted(named & (rows.rows - rows.live)))
    if not to_check:
        return stuck
    findings = []
    if what.owner_id is not None:
        progress.at(f"{what.noun}s", total=len(to_check))
    for record_id in to_check:
        holder = owner_id if record_id in named else None
        findings.append(await check(engine, what.noun, record_id, holder, repair=what.repair))
        progress.on()
    known = {finding.subject for finding in findings if not finding.ok}
    findings += await check_latest(engine, what, owner_id, known)
    return [*findings, *stuck, *_foreign(directory, listing)]


def _stuck(engine: Engine, noun: Noun, going: list[str]) -> list[Finding]:
    """Tell of files that could not be removed; those that are only about to be are no finding."""
    found = [(each, why) for each in going if (why := engine.outbox.failure(each)) is not None]
    return [
        Finding(
            check="removal",
            ok=False,
            subject=record_id,
            detail=f"deleted, but its file could not be removed: {why}",
            reason_code=POLICIES[noun].prune_failed,
        )
        for record_id, why in found
    ]


def _foreign(directory: Path, listing: Listing) -> list[Finding]:
    return [
        Finding(
            check="name",
            ok=True,
            subject=str(directory / name),
            detail="is not a name of fleetd's and is left alone",
        )
        for name in listing.foreign
    ]


async def check_latest(
    engine: Engine, what: What, owner_id: str, known: set[str | None]
) -> list[Finding]:
    """Look at ``latest.json`` after the records: repairing them may have mended it.

    That it is a record which is known to be bad is no finding of its own. Raises OSError when
    nothing can be looked at.
    """
    noun, backups = what.noun, engine.backups[what.noun]
    async with engine.outbox.at_work:
        listing, rows = await _look(engine, noun, owner_id)
        wanted = await wanted_latest(engine, noun, owner_id, listing.files)
        held = await held_by_latest(engine, noun, owner_id)
        trouble = listing.latest_trouble(wanted.id) or copy_trouble(wanted, held)
        named = (
            named_in(noun, held or b"")
            if listing.copies
            else (listing.latest or "").removesuffix(".json")
        )
        if not trouble or (named in known and not what.repair):
            return []
        done = await mend_latest(engine, noun, listing, rows, trouble) if what.repair else ""
    return [
        Finding(
            check="latest",
            ok=False,
            subject=str(backups.root / owner_id / LATEST),
            detail=done or trouble,
            fixed=bool(done),
            reason_code=IntegrityMismatch.kind if listing.copies else None,
        )
    ]


def _shortened(noun: Noun, owner_id: str, found: list[Finding]) -> list[Finding]:
    """Return an owner's findings with one line for all that is intact."""
    intact = sum(finding.ok for finding in found)
    detail = f"{intact} {noun}s and names in order"
    line = Finding(check=f"{noun}s", ok=True, subject=owner_id, detail=detail)
    return [*([line] if intact else []), *(finding for finding in found if not finding.ok)]
