"""What hooks deliver: a payload becomes a report, is recorded, and is answered.

Nothing that a payload holds is ever an error for the agent. What the disk refuses is one for the
client, which then keeps the payload itself.
"""

import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ...domain.core.context import Caller, Facts
from ...domain.core.registry import method
from ...domain.redaction.redact import redact
from ...domain.sessions.deliveries import DeliveryUnfit
from ...domain.sessions.identity import key_of
from ...domain.sessions.overview import HookCountsGet
from ...domain.sessions.record import HookBriefed, Recorded
from ...domain.sessions.record import HookRecord as Record
from ...harness.detect import recognise
from ...harness.report import Adapter, Answer, Report, SessionStarted, Unfit
from ...host import trace
from ...protocol.display import shown
from ...protocol.errors import FleetError, InvalidState, Storage, Unavailable
from ...protocol.requests.hook import (
    DOCTOR,
    HarnessStatus,
    HookDeliver,
    HookReply,
    HookStatus,
    HookStatusGet,
    SpoolStatus,
)
from ...protocol.requests.recovery import RecoveryContextGet, RecoveryRestore
from ...store.api import StoreAway
from ..engine import Engine
from ..jobs.liveness import scan
from .facts import Ground, look_around, look_at_paths
from .lock_guard import ENFORCE, denial

log = logging.getLogger("fleetd")
# What a harness takes whole, in characters.
MOST_CHARS = 9_500
# Of a payload that is passed over, in characters.
LOOKED_AT, SHOWN = 4_000, 300
_WORDS = (ENFORCE, DOCTOR)
_payload = msgspec.json.Decoder(dict[str, Any]).decode


async def take(
    engine: Engine,
    request: HookDeliver,
    caller: Caller,
    happened_ms: int | None = None,
    before: Callable[[], Awaitable[None]] | None = None,
) -> HookReply:
    """Record one delivery; ``happened_ms`` is when its hook ran, for one from the spool.

    ``before`` is done first when something waits in the spool.

    Raises Storage and Unavailable, after which the delivery is to be repeated; nothing else. What
    the doctor sends is answered, and leaves no trace.
    """
    trace.tell(f"delivery {shown(request.delivery_id)}")
    if DOCTOR in request.args:
        return HookReply(stdout="fleetd")
    understood = await _understood(engine, request, spooled=happened_ms is not None)
    if understood is None:
        return HookReply()
    adapter, report = understood
    trace.tell(f"session {shown(report.session_id)}")
    what = f"A hook of {report.harness} ({report.event}) could not be recorded"
    try:
        ground = await look_at_paths(engine, report)
        if before is not None and ground.spooled:
            await before()
        async with engine.reception.turn(key_of(report)):
            return await _carry_out(engine, request, caller, adapter, report, ground, happened_ms)
    except (Storage, Unavailable):
        raise
    except InvalidState as refusal:
        if "project_ignore" not in refusal.values and engine.reception.first_time(what):
            log.warning("%s: %s", what, refusal.message)
    except Exception:
        if engine.reception.first_time(what):  # the next hook comes in a second
            log.exception("%s", what)
    return HookReply()


async def _understood(
    engine: Engine, request: HookDeliver, *, spooled: bool
) -> tuple[Adapter, Report] | None:
    """Return what a payload tells, None for one that fits no shape, of which is told once."""
    try:
        return await engine.aside.run(lambda: _understand(request), len(request.payload))
    except Unfit as reason:
        await _complain(engine, request, str(reason), spooled=spooled)
    except Exception:
        # Whatever is wrong with it, from the spool it would come again and again.
        if engine.reception.first_time(f"{request.harness}: a bug, told whole"):
            log.exception("A payload of %s was not understood", request.harness)
        await _complain(engine, request, "a bug", spooled=spooled)
    return None


def _understand(request: HookDeliver) -> tuple[Adapter, Report]:
    payload = _read(request.payload)
    adapter = recognise(request.harness, payload, request.env)
    event = next((word for word in request.args if word not in _WORDS), None)
    return adapter, adapter.read(payload, event)


def _read(payload: str) -> dict[str, Any]:
    """Return the object that a payload is; raises Unfit.

    CLIs in JavaScript cut texts inside a character. Only the slower parser takes the half of it
    that is left; the adapters drop it.
    """
    for parse in (_decode, json.loads):
        with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
            found = parse(payload)
            if isinstance(found, dict):
                return found
    raise Unfit("it is no JSON object")


def _decode(payload: str) -> dict[str, Any]:
    """Parse a payload; made bytes first, others have a turn in between: each step is one call."""
    return _payload(payload if payload.isascii() else payload.encode())


async def _complain(engine: Engine, request: HookDeliver, reason: str, *, spooled: bool) -> None:
    """Say once per kind that a payload fits no shape, and count each."""
    if engine.reception.first_time(f"{request.harness}: {reason}"):
        # Cut afterwards: half a token would be recognised as none.
        shown = redact(request.payload[:LOOKED_AT])[:SHOWN]
        text = "A payload of %s fits no shape that is known (%s) and was passed over: %s"
        log.warning(text, request.harness, redact(reason), shown)
    await engine.execute(DeliveryUnfit(request.delivery_id, request.harness, spooled))


async def _carry_out(
    engine: Engine,
    request: HookDeliver,
    caller: Caller,
    adapter: Adapter,
    report: Report,
    ground: Ground,
    happened_ms: int | None,
) -> HookReply:
    live = happened_ms is None
    facts, earlier = await look_around(engine, adapter, report, ground, caller if live else None)
    record = Record(
        delivery_id=request.delivery_id,
        report=report,
        earlier=earlier,
        cwd=ground.cwd,
        wanted_agent_id=request.env.get("FLEET_AGENT_ID"),
        wanted_mission_id=request.env.get("FLEET_MISSION_ID"),
        happened_ms=happened_ms,
    )
    async with engine.reception.places:
        recorded = await _recorded(engine, record, caller, facts, size=len(request.payload))
    if not live:
        return HookReply()
    # Also for a double: what came first may be of hooks that were told to enforce nothing.
    refused = await denial(engine, request, report, recorded, caller)
    context = None
    if not recorded.known:
        try:
            context = await _context(engine, request, report, recorded, caller)
        except StoreAway:
            if refused is None:
                raise  # what was decided holds without a briefing, which the next hook brings
    answer = Answer(context=context, deny=refused)
    silent = context is None and refused is None
    return HookReply(stdout="" if silent else adapter.reply(report, answer))


async def _recorded(
    engine: Engine, record: Record, caller: Caller, facts: Facts, *, size: int
) -> Recorded:
    """Record what a hook tells, and what the silence before a new session means."""
    if opens := any(isinstance(each, SessionStarted) for each in record.report.happenings):
        await scan(engine)  # detection comes before registering
    recorded = await engine.handle(record, caller, facts, size=size)
    if opens:
        await scan(engine)
    return recorded


async def _context(
    engine: Engine, request: HookDeliver, report: Report, recorded: Recorded, caller: Caller
) -> str | None:
    """Return what the agent is to read, None for nothing."""
    lines = "\n".join(recorded.lines)
    room = min(engine.config.prompt.max_chars, MOST_CHARS - len(lines) - 2)
    briefing = await _briefing(engine, recorded, caller, room) if recorded.brief else None
    if briefing is not None:
        note = HookBriefed(delivery_id=request.delivery_id, report=report)
        await engine.execute(note)
    return "\n\n".join(filter(None, (briefing, lines))) or None


async def _briefing(engine: Engine, recorded: Recorded, caller: Caller, room: int) -> str | None:
    """Bring back the agent's part of its mission and return its briefing.

    What cannot be restored is told at least. Raises StoreAway: its client leaves the hook in the
    spool then, and the next one is answered with the briefing.
    """
    mission_id, agent_id = recorded.mission_id, recorded.agent_id
    restore = RecoveryRestore(
        mission_id=mission_id,
        agent_id=agent_id,
        requested_by=agent_id or "cli",
        scope="agent",
        max_chars=room,
    )
    try:
        return (await engine.handle(restore, caller)).prompt
    except StoreAway:
        raise
    except FleetError as refusal:
        log.warning("%s is briefed without recovery: %s", agent_id, refusal.message)
    told = RecoveryContextGet(mission_id=mission_id, agent_id=agent_id, max_chars=room)
    try:
        return (await engine.handle(told, caller)).prompt
    except StoreAway:
        raise
    except FleetError as refusal:
        log.warning("%s cannot be briefed: %s", agent_id, refusal.message)
        return None


@method(HookStatusGet)
async def status(engine: Engine, request: HookStatusGet, caller: Caller) -> HookStatus:
    """Tell what came from hooks, and what waits in the spool."""
    counted = await engine.execute(HookCountsGet())
    harnesses = []
    for row in counted.rows:
        timing = engine.reception.timing(row["harness"])
        harnesses.append(
            HarnessStatus(
                **row,
                sessions=counted.sessions.get(row["harness"], 0),
                p50_ms=timing.p50_ms if timing else None,
                p95_ms=timing.p95_ms if timing else None,
            )
        )
    heap = await engine.outbox.in_thread(engine.spool.size)
    spool = SpoolStatus(
        directory=str(engine.spool.directory or ""), files=heap.files, size_bytes=heap.size_bytes
    )
    return HookStatus(harnesses=harnesses, spool=spool)
