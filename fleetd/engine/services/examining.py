"""The store as the doctor sees it: damage, versions, who shares it; must not look at any file."""

from ...domain.artifacts.inventory import StrangersGet
from ...domain.events.cursors import CursorLine, CursorsGet
from ...domain.system.overview import MachinesGet
from ...host.clock import wall_clock
from ...protocol.durations import duration
from ...protocol.errors import Unavailable
from ...protocol.records import Finding
from ...protocol.status import MachineLine
from ...store.sqlite.offline import missions_in
from ..engine import Engine

# Further apart, the times that hooks and files carry would puzzle people.
APART_MS = 60_000
SOME = 500
SHOWN = 3
MOST_CURSORS = 50


async def findings(engine: Engine) -> list[Finding]:
    """Examine the store; while it is away that is all there is to say of it."""
    try:
        found = await _database(engine)
        found += await _cursors(engine)
        return [*found, *await _shared(engine)] if engine.machine else found
    except Unavailable as error:
        return [_away(engine, error)]


def _away(engine: Engine, error: Unavailable) -> Finding:
    away, where = engine.store.availability.away, engine.store.where
    detail = error.message
    if away is not None:
        since = duration(max(0, engine.clock() - away.since_ms))
        detail = f"away for {since}: it {away.message.removeprefix(f'{where} ')}"
    return Finding(check="database", ok=False, subject=where, detail=detail)


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
    """List the cursors: what one has not come to is kept for it as long as it is used."""
    known = await engine.execute(CursorsGet(MOST_CURSORS))
    if not known.cursors:
        return [Finding(check="cursors", ok=True, detail="no consumer has one")]
    found = [
        Finding(
            check="cursor",
            ok=True,
            subject=f"{each.consumer} on {each.stream}",
            detail=_standing(each, known.end),
        )
        for each in known.cursors
    ]
    if known.more:
        found.append(Finding(check="cursors", ok=True, detail=f"and {known.more} more"))
    return found


def _standing(cursor: CursorLine, end: int) -> str:
    detail = f"at {cursor.position} of {end}, last used at {cursor.used_at}"
    if not cursor.used:
        detail += ": it keeps no events any more"
    if cursor.missed_seq:
        detail += f"; events up to {cursor.missed_seq} went before it came to them"
    return detail


async def _shared(engine: Engine) -> list[Finding]:
    """Say with whom the store is shared, and what of this machine's own stands beside it."""
    store = engine.store
    server = Finding(check="server", ok=True, subject=store.where, detail=store.engine_version)
    machines = (await engine.execute(MachinesGet())).machines
    return [server, _clock(engine), _machines(machines), *await _left_behind(engine)]


def _clock(engine: Engine) -> Finding:
    """Compare this machine's clock with the store's, which everything goes by."""
    apart = wall_clock() - engine.clock()
    size = f"{abs(apart) / 1_000:.1f} s"
    way = "ahead of" if apart > 0 else "behind"
    detail = f"{size} {way} the server's, which fleetd goes by"
    return Finding(check="clock", ok=abs(apart) <= APART_MS, detail=detail)


def _machines(machines: list[MachineLine]) -> Finding:
    """Name the lost ones; that one was switched off is nothing wrong."""
    lost = [f"{each.name} (heard of at {each.heard_at})" for each in machines]
    lost = [text for text, each in zip(lost, machines, strict=True) if each.status == "lost"]
    detail = f"{len(machines)} share the store"
    if lost:
        detail += f"; lost: {', '.join(lost[:SHOWN])}"
        detail += f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
    return Finding(check="machines", ok=True, detail=detail)


async def _left_behind(engine: Engine) -> list[Finding]:
    """Tell of missions that nobody sees any more, since they stand in this machine's own file."""
    path = engine.config.database
    try:
        ids = await engine.outbox.in_thread(lambda: missions_in(path))
    except OSError as error:
        detail = f"cannot be read: {error}"
        return [Finding(check="left behind", ok=False, subject=str(path), detail=detail)]
    missing = 0
    for start in range(0, len(ids), SOME):
        missing += (await engine.execute(StrangersGet(ids[start : start + SOME]))).missions
    if not missing:
        return []
    those = "1 mission" if missing == 1 else f"{missing} missions"
    detail = f"holds {those} that the store lacks; move them there: fleetctl migrate"
    return [Finding(check="left behind", ok=False, subject=str(path), detail=detail)]
