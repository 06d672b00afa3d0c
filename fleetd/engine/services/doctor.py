"""Doctor: examines the store, the copies of records, permissions, leftovers and disk space."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from ...domain.artifacts.inventory import unknown_missions
from ...domain.artifacts.kinds import KINDS
from ...domain.cluster import membership
from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...domain.events.streams import CursorLine, least_used_cursors
from ...domain.search import index
from ...domain.search.index import FIRST, IndexDamage, compare
from ...host import progress
from ...host.clock import wall_clock
from ...protocol.display import duration
from ...protocol.errors import Corrupt, Unavailable
from ...protocol.records import Finding
from ...protocol.requests.system import Findings, SystemDoctor
from ...protocol.status import MachineLine
from ...protocol.types import Noun
from ...store import disk_audit
from ...store.sqlite.offline import ids_in
from ..engine import Engine
from .verify import VerifyTarget, checked

LOW_BYTES = 100_000_000
SHOWN = 50
SPOOL_MS = 120_000
# Beyond this difference, the times of hooks and files would confuse people.
APART_MS = 60_000
SOME = 500
LOST_SHOWN = 3


@method(SystemDoctor, without_store=True)
async def doctor(engine: Engine, request: SystemDoctor, caller: Caller) -> Findings:
    """Look for damage and loose permissions; with ``fix``, repair what can be repaired."""
    # Without ``fix``, nothing is written: the disk may be full. While the store is away, no answer
    # can be stored, and a repair needs none: it stays done.
    if not request.fix or engine.store.availability.away is not None:
        return await _examine(engine, fix=request.fix)
    return await engine.run_once(request, lambda: _examine(engine, fix=True))


async def _examine(engine: Engine, *, fix: bool) -> Findings:
    progress.at("database")
    findings = await _examine_store(engine, fix=fix)
    progress.at("files")
    findings += await engine.outbox.in_thread(lambda: _examine_files(engine, fix=fix))
    for noun in KINDS if engine.store.availability.away is None else ():
        findings += await _copies(engine, noun, fix=fix)
    return Findings(ok=all(f.ok or f.fixed for f in findings), findings=findings)


async def _examine_store(engine: Engine, *, fix: bool) -> list[Finding]:
    """Examine the store; while it is away, report only that."""
    try:
        found = await _database(engine)
        found += await _cursors(engine)
        found += await _search_index(engine, fix=fix)
        return [*found, *await _shared(engine)] if engine.machine else found
    except Unavailable as error:
        away, where, detail = engine.store.availability.away, engine.store.where, error.message
        if away is not None:
            since = duration(max(0, engine.clock() - away.since_ms))
            detail = f"unreachable for {since}: it {away.message.removeprefix(f'{where} ')}"
        return [Finding(check="database", ok=False, subject=where, detail=detail)]


async def _database(engine: Engine) -> list[Finding]:
    damage = await engine.store.check()
    found = [Finding(check="database", ok=not damage, detail="; ".join(damage) or "intact")]
    if engine.store.lost:
        found.append(Finding(check="log", ok=False, detail=engine.store.lost.why))
    if not damage:
        version = await engine.store.schema_version()
        found.append(Finding(check="schema", ok=True, detail=f"version {version}"))
    return found


async def _cursors(engine: Engine) -> list[Finding]:
    """List the cursors: events that a cursor has not reached are kept while it is in use."""
    known = await engine.read(least_used_cursors, engine.batches.listed_cursors)
    if not known.cursors:
        return [Finding(check="cursors", ok=True, detail="no consumer has a cursor")]
    found = [
        Finding(
            check="cursor",
            ok=True,
            subject=f"{each.consumer} on {each.stream}",
            detail=_position(each, known.end),
        )
        for each in known.cursors
    ]
    if known.more:
        found.append(Finding(check="cursors", ok=True, detail=f"and {known.more} more"))
    return found


def _position(cursor: CursorLine, end: int) -> str:
    detail = f"at {cursor.position} of {end}, last used at {cursor.used_at}"
    if not cursor.used:
        detail += ": it no longer keeps events"
    if cursor.missed_seq:
        detail += f"; events up to {cursor.missed_seq} were deleted unread"
    return detail


async def _search_index(engine: Engine, *, fix: bool) -> list[Finding]:
    """Compare the search index with its documents, and the documents with their sources."""
    progress.at("search")
    try:
        damage = await engine.store.check_search_index(rebuild=fix)
        found, since = IndexDamage(), FIRST
        while True:
            batch = await engine.read(compare, since)
            if fix and batch.found.total:
                batch = await engine.write(compare, since, fix=True)
            found = found.plus(batch.found)
            if batch.following is None:
                break
            since = batch.following
            progress.at("search", found.documents)
        owed = await engine.read(index.is_behind)
    except Corrupt as error:
        return [Finding(check="search", ok=False, detail=error.message)]
    findings = [Finding(check="search", ok=False, detail=each, fixed=fix) for each in damage]
    if found.total:
        detail = (
            f"of the index {found.missing} documents are missing, {found.wrong} wrong and"
            f" {found.surplus} too many"
        )
        findings.append(Finding(check="search", ok=False, detail=detail, fixed=fix))
    if owed:
        detail = f"{found.documents} documents; the index of older ones is being built"
        findings.append(Finding(check="search", ok=True, detail=detail))
    return findings or [
        Finding(check="search", ok=True, detail=f"{found.documents} documents, all indexed")
    ]


async def _shared(engine: Engine) -> list[Finding]:
    """Report the server and machines of a shared store, and missions left in the local file."""
    store = engine.store
    server = Finding(check="server", ok=True, subject=store.where, detail=store.engine_version)
    machines = await engine.read(membership.list_machines)
    return [server, _clock(engine), _machines(machines), *await _not_migrated(engine)]


def _clock(engine: Engine) -> Finding:
    """Compare this machine's clock with the store's, which fleetd uses."""
    apart = wall_clock() - engine.clock()
    size = f"{abs(apart) / 1_000:.1f} s"
    way = "ahead of" if apart > 0 else "behind"
    detail = f"{size} {way} the server's clock, which fleetd uses"
    return Finding(check="clock", ok=abs(apart) <= APART_MS, detail=detail)


def _machines(machines: list[MachineLine]) -> Finding:
    """Name the lost machines; a machine that was switched off is no problem."""
    lost = [
        f"{each.name} (last heartbeat {each.heard_at})"
        for each in machines
        if each.status == "lost"
    ]
    detail = f"{len(machines)} share the store"
    if lost:
        detail += f"; lost: {', '.join(lost[:LOST_SHOWN])}"
        detail += f" and {len(lost) - LOST_SHOWN} more" if len(lost) > LOST_SHOWN else ""
    return Finding(check="machines", ok=True, detail=detail)


async def _not_migrated(engine: Engine) -> list[Finding]:
    """Report missions that nobody sees any more, since they are in this machine's own file."""
    path = engine.config.database
    try:
        ids = await engine.outbox.in_thread(lambda: ids_in(path, "missions"))
    except OSError as error:
        detail = f"cannot be read: {error}"
        return [Finding(check="left behind", ok=False, subject=str(path), detail=detail)]
    missing = 0
    for start in range(0, len(ids), SOME):
        missing += await engine.read(unknown_missions, ids[start : start + SOME])
    if not missing:
        return []
    those = "1 mission" if missing == 1 else f"{missing} missions"
    detail = (
        f"holds {those} that the store lacks; fleetctl migrate moves them to an unused server, and"
        " two stores cannot be merged"
    )
    return [Finding(check="left behind", ok=False, subject=str(path), detail=detail)]


async def _copies(engine: Engine, noun: Noun, *, fix: bool) -> list[Finding]:
    """Compare the two copies of every record of a noun; intact ones take one line."""
    intact, rows, broken = 0, 0, list[Finding]()
    try:
        async for _, found in checked(engine, VerifyTarget(noun=noun, repair=fix)):
            intact += sum(each.ok and each.check == noun for each in found)
            rows += sum(each.ok and each.check == "row" for each in found)
            broken += [each for each in found if not each.ok]
    except (Corrupt, Unavailable) as error:  # the database itself cannot be read
        return [Finding(check=f"{noun}s", ok=False, detail=error.message)]
    elsewhere = f", {rows} intact rows with files on other machines" if rows else ""
    return [
        Finding(check=f"{noun}s", ok=True, detail=f"{intact} intact in both stores{elsewhere}"),
        *broken,
    ]


def _examine_files(engine: Engine, *, fix: bool) -> list[Finding]:
    config = engine.config
    return [
        *_permissions(
            disk_audit.places(
                config.database, config.checkpoints, config.socket, engine.spool.directory
            ),
            fix,
        ),
        *_leftovers(disk_audit.leftovers(config.database, config.checkpoints), fix),
        *_spool(engine, fix=fix),
        *([_disk_reserve(engine, fix=fix)] if engine.disk_reserve.size else []),
        *_free_space(dict.fromkeys((config.database.parent, config.checkpoints))),
    ]


def _permissions(paths: Iterable[disk_audit.AuditedPath], fix: bool) -> list[Finding]:
    """Check that other users cannot read fleetd's files; show the first of very many findings."""
    wrong, looked_at = list[Finding](), 0
    for looked_at, path in enumerate(paths, 1):  # noqa: B007 - how many there were
        if found := disk_audit.trouble(path):
            detail, mendable = found
            fixed = fix and mendable and disk_audit.mend(path)
            subject = _printable(path.path)
            wrong.append(
                Finding(check="permissions", ok=False, subject=subject, detail=detail, fixed=fixed)
            )
    if not wrong:
        detail = f"{looked_at} files and directories, none accessible to others"
        return [Finding(check="permissions", ok=True, detail=detail)]
    wrong.sort(key=lambda finding: finding.fixed)  # those that are still wrong before the others
    shown, rest = wrong[:SHOWN], wrong[SHOWN:]
    if rest:
        detail = f"and {len(rest)} more like these"
        fixed = all(finding.fixed for finding in rest)
        shown.append(Finding(check="permissions", ok=False, detail=detail, fixed=fixed))
    return shown


def _printable(path: Path) -> str:
    """Return a path as text; a name that is not UTF-8 could not be sent or stored."""
    return os.fsencode(path).decode(errors="replace")


def _leftovers(left: list[Path], fix: bool) -> list[Finding]:
    findings = []
    for path in left:
        if fix:
            with contextlib.suppress(OSError):
                path.unlink()
        findings.append(
            Finding(
                check="leftovers",
                ok=False,
                subject=_printable(path),
                detail="a temporary file left by a crash",
                fixed=not path.exists(),
            )
        )
    return findings or [Finding(check="leftovers", ok=True, detail="no temporary files")]


def _spool(engine: Engine, *, fix: bool) -> list[Finding]:
    """Check the spool: it is recorded within half a minute, unless something prevents it."""
    size = engine.spool.size()
    subject = str(engine.spool.directory or "")
    found = []
    # While the store is away, payloads wait for it, and another finding reports that.
    if size.oldest_ms is not None and engine.store.availability.away is None:
        waited_ms = engine.clock() - engine.store.from_wall(size.oldest_ms)
        if waited_ms > SPOOL_MS:
            detail = f"{size.files} payloads of hooks wait; the log has the reason"
            found.append(Finding(check="spool", ok=False, subject=subject, detail=detail))
    if size.unreadable:
        detail = f"{size.unreadable} *.unreadable files, not from the hook client"
        if fix:
            engine.spool.clear()
        fixed = fix and not engine.spool.size().unreadable
        found.append(Finding(check="spool", ok=False, subject=subject, detail=detail, fixed=fixed))
    return found or [Finding(check="spool", ok=True, detail=f"{size.files} payloads wait")]


def _disk_reserve(engine: Engine, *, fix: bool) -> Finding:
    """Check the disk reserve, kept for freeing space; without it, the disk is or was full."""
    reserve = engine.disk_reserve
    whole = reserve.left == reserve.size or (fix and reserve.make())
    kept = (
        f"{reserve.left // 1_048_576} of {reserve.size // 1_048_576} MiB reserved for a full disk"
    )
    soon = "within a minute" if reserve.fits() else "when there is space"
    return Finding(
        check="room",
        ok=whole or reserve.fits(),
        subject=str(reserve.path),
        detail=kept if whole else f"{kept}; the rest is reserved {soon}",
    )


def _free_space(directories: Iterable[Path]) -> list[Finding]:
    """Warn before the disk is full, when nothing more can be stored."""
    findings = []
    for directory in directories:
        free = disk_audit.free_bytes(directory)
        if free is not None:
            low = free < LOW_BYTES
            detail = f"{free // 1_000_000} MB free" + (", less than 100 MB" if low else "")
            findings.append(
                Finding(check="disk", ok=not low, subject=str(directory), detail=detail)
            )
    return findings
