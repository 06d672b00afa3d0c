"""The daemon examines its store: damage, copies that differ, permissions, leftovers, room."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from ...domain.artifacts.kinds import POLICIES
from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...host import progress
from ...protocol.errors import Corrupt, Unavailable
from ...protocol.records import Finding
from ...protocol.requests.system import Findings, SystemDoctor
from ...protocol.types import Noun
from ...store import disk_audit
from ..engine import Engine
from . import examining
from .verify import What, checked

LOW_BYTES = 100_000_000
SHOWN = 50
SPOOL_MS = 120_000


@method(SystemDoctor, without_store=True)
async def doctor(engine: Engine, request: SystemDoctor, caller: Caller) -> Findings:
    """Look for damage and loose permissions; with ``fix`` mend what can be mended."""
    if not request.fix:  # then nothing is written: what it tells of may be a disk that is full
        return await _examine(engine, fix=False)
    if (
        engine.store.availability.away is not None
    ):  # nothing can be kept, and what it mends stays mended
        return await _examine(engine, fix=True)
    return await engine.remembered(request, lambda: _examine(engine, fix=True))


async def _examine(engine: Engine, *, fix: bool) -> Findings:
    progress.at("database")
    findings = await examining.findings(engine)
    progress.at("files")
    findings += await engine.outbox.in_thread(lambda: _around(engine, fix=fix))
    for noun in POLICIES if engine.store.availability.away is None else ():
        findings += await _copies(engine, noun, fix=fix)
    return Findings(ok=all(f.ok or f.fixed for f in findings), findings=findings)


async def _copies(engine: Engine, noun: Noun, *, fix: bool) -> list[Finding]:
    """Compare the two copies of every record of a noun; what is in order takes one line."""
    intact, rows, broken = 0, 0, list[Finding]()
    try:
        async for _, found in checked(engine, What(noun=noun, repair=fix)):
            intact += sum(each.ok and each.check == noun for each in found)
            rows += sum(each.ok and each.check == "row" for each in found)
            broken += [each for each in found if not each.ok]
    except (Corrupt, Unavailable) as error:  # the database itself is in the way
        return [Finding(check=f"{noun}s", ok=False, detail=error.message)]
    elsewhere = f", {rows} rows intact of which other machines keep the files" if rows else ""
    return [
        Finding(check=f"{noun}s", ok=True, detail=f"{intact} intact in both stores{elsewhere}"),
        *broken,
    ]


def _around(engine: Engine, *, fix: bool) -> list[Finding]:
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
        *([_ballast(engine, fix=fix)] if engine.ballast.size else []),
        *_room(dict.fromkeys((config.database.parent, config.checkpoints))),
    ]


def _permissions(places: Iterable[disk_audit.AuditedPath], fix: bool) -> list[Finding]:
    """Nobody else may look into what fleetd keeps."""
    wrong, looked_at = [], 0
    for place in places:
        looked_at += 1
        if found := disk_audit.trouble(place):
            detail, mendable = found
            fixed = fix and mendable and disk_audit.mend(place)
            subject = _named(place.path)
            wrong.append(
                Finding(check="permissions", ok=False, subject=subject, detail=detail, fixed=fixed)
            )
    if wrong:
        return _shortened(wrong)
    detail = f"{looked_at} files and directories, none open to others"
    return [Finding(check="permissions", ok=True, detail=detail)]


def _named(path: Path) -> str:
    """Return a path as text; a name in bytes that are no UTF-8 could not be told or stored."""
    return os.fsencode(path).decode(errors="replace")


def _shortened(wrong: list[Finding]) -> list[Finding]:
    """Show the first of very many, those that are still wrong before the others."""
    wrong.sort(key=lambda finding: finding.fixed)
    shown, rest = wrong[:SHOWN], wrong[SHOWN:]
    if rest:
        detail = f"and {len(rest)} more like these"
        fixed = all(finding.fixed for finding in rest)
        shown.append(Finding(check="permissions", ok=False, detail=detail, fixed=fixed))
    return shown


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
                subject=_named(path),
                detail="a temporary file that a crash left",
                fixed=not path.exists(),
            )
        )
    return findings or [Finding(check="leftovers", ok=True, detail="no temporary files")]


def _spool(engine: Engine, *, fix: bool) -> list[Finding]:
    """What hooks left is taken in within half a minute, or something keeps it from being."""
    heap = engine.spool.size()
    subject = str(engine.spool.directory or "")
    found = []
    oldest_ms = None if heap.oldest_ms is None else engine.store.from_wall(heap.oldest_ms)
    away = (
        engine.store.availability.away is not None
    )  # then they wait for what another finding tells of
    if oldest_ms is not None and not away and engine.clock() - oldest_ms > SPOOL_MS:
        detail = f"{heap.files} payloads of hooks wait to be taken in; the log says why"
        found.append(Finding(check="spool", ok=False, subject=subject, detail=detail))
    if heap.unreadable:
        detail = f"{heap.unreadable} *.unreadable there, none of the hook client's"
        if fix:
            engine.spool.clear()
        fixed = fix and not engine.spool.size().unreadable
        found.append(Finding(check="spool", ok=False, subject=subject, detail=detail, fixed=fixed))
    return found or [Finding(check="spool", ok=True, detail=f"{heap.files} payloads wait")]


def _ballast(engine: Engine, *, fix: bool) -> Finding:
    """Room is kept for making room; where it is gone, the disk was full, or is."""
    ballast = engine.ballast
    whole = ballast.left == ballast.size or (fix and ballast.make())
    kept = f"{ballast.left // 1_048_576} of {ballast.size // 1_048_576} MiB kept for a full disk"
    soon = "within a minute" if ballast.fits() else "when there is room for them"
    return Finding(
        check="room",
        ok=whole or ballast.fits(),
        subject=str(ballast.path),
        detail=kept if whole else f"{kept}; the others follow {soon}",
    )


def _room(directories: Iterable[Path]) -> list[Finding]:
    """Warn before the disk is full: then nothing can be stored any more."""
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
