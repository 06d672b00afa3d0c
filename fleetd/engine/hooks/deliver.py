"""Hook deliveries: a payload becomes a report, is recorded once, and is answered.

Nothing that a payload holds is ever an error for the agent. What the disk refuses is one for the
client, which then leaves the payload in the spool. What waits there is older: it is taken in first,
in order, through the same door.
"""

import contextlib
import json
import logging
import time
from functools import partial
from typing import Any, Literal

import msgspec
import trio

from ...domain.core.context import Caller, Facts
from ...domain.core.registry import method
from ...domain.redaction.redact import redact
from ...domain.redaction.requests import struct_without_secrets
from ...domain.sessions import context_window, deliveries
from ...domain.sessions.identity import key_of
from ...domain.sessions.record import HookDelivery, Recorded, record
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
from ...store.spool import NoFrame, SpooledHook
from ..engine import DAEMON, Engine
from ..jobs.liveness import scan
from ..project_ignore import refuse_places
from .facts import HookPaths, gather_facts, resolve_paths
from .lock_guard import ENFORCE, denial

log = logging.getLogger("fleetd")
# What a harness takes whole, in characters.
MOST_CHARS = 9_500
# Of a payload that is passed over, in characters.
LOOKED_AT, SHOWN = 4_000, 300
_WORDS = (ENFORCE, DOCTOR)
# The hook client waits 0.9 s for everything.
SPOOL_PATIENCE_S = 0.4
_payload = msgspec.json.Decoder(dict[str, Any]).decode


class _Frame(msgspec.Struct, frozen=True):
    """The part of a line that matters."""

    method: Literal["hook.deliver"]
    params: HookDeliver


_frame = msgspec.json.Decoder(_Frame).decode


def _is_doctor(request: HookDeliver) -> bool:
    """Return whether only the way of a hook is tried: nothing of it is kept."""
    return DOCTOR in request.args


@method(HookDeliver, without_store=_is_doctor)
async def deliver(engine: Engine, request: HookDeliver, caller: Caller) -> HookReply:
    """Record what a hook was told, and answer it."""
    reply = await take(engine, request, caller)
    if request.begun_us is not None and not _is_doctor(request):
        taken_us = time.monotonic_ns() // 1_000 - request.begun_us
        if 0 <= taken_us < 60_000_000:
            engine.session_queue.timed(request.harness, taken_us)
    return reply


async def take(
    engine: Engine, request: HookDeliver, caller: Caller, happened_ms: int | None = None
) -> HookReply:
    """Record one delivery; ``happened_ms`` is when its hook ran, for one from the spool.

    Raises Storage and Unavailable, after which the delivery is to be repeated; nothing else. What
    the doctor sends is answered, and leaves no trace.
    """
    trace.annotate(f"delivery {shown(request.delivery_id)}")
    if _is_doctor(request):
        return HookReply(stdout="fleetd")
    understood = await _understood(engine, request, spooled=happened_ms is not None)
    if understood is None:
        return HookReply()
    adapter, report = understood
    trace.annotate(f"session {shown(report.session_id)}")
    what = f"A hook of {report.harness} ({report.event}) could not be recorded"
    try:
        paths = await resolve_paths(engine, report)
        if happened_ms is None and paths.spooled:
            await _spooled_first(engine)
        async with engine.session_queue.turn(key_of(report)):
            return await _carry_out(engine, request, caller, adapter, report, paths, happened_ms)
    except (Storage, Unavailable):
        raise
    except InvalidState as refusal:
        if "project_ignore" not in refusal.values and engine.session_queue.first_time(what):
            log.warning("%s: %s", what, refusal.message)
    except Exception:
        if engine.session_queue.first_time(what):  # the next hook comes in a second
            log.exception("%s", what)
    return HookReply()


async def _understood(
    engine: Engine, request: HookDeliver, *, spooled: bool
) -> tuple[Adapter, Report] | None:
    """Return what a payload tells, None for one that fits no shape, of which is told once."""
    try:
        return await engine.cpu_worker.run(lambda: _understand(request), len(request.payload))
    except Unfit as reason:
        await _complain(engine, request, str(reason), spooled=spooled)
    except Exception:
        # Whatever is wrong with it, from the spool it would come again and again.
        if engine.session_queue.first_time(f"{request.harness}: a bug, told whole"):
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
    if engine.session_queue.first_time(f"{request.harness}: {reason}"):
        # Cut afterwards: half a token would be recognised as none.
        shown = redact(request.payload[:LOOKED_AT])[:SHOWN]
        text = "A payload of %s fits no shape that is known (%s) and was passed over: %s"
        log.warning(text, request.harness, redact(reason), shown)
    await engine.write(deliveries.keep_unfit, request.delivery_id, request.harness, spooled=spooled)


async def _carry_out(
    engine: Engine,
    request: HookDeliver,
    caller: Caller,
    adapter: Adapter,
    report: Report,
    paths: HookPaths,
    happened_ms: int | None,
) -> HookReply:
    live = happened_ms is None
    facts, earlier = await gather_facts(engine, adapter, report, paths, caller if live else None)
    delivery = HookDelivery(
        delivery_id=request.delivery_id,
        report=report,
        earlier=earlier,
        cwd=paths.cwd,
        wanted_agent_id=request.env.get("FLEET_AGENT_ID"),
        wanted_mission_id=request.env.get("FLEET_MISSION_ID"),
        happened_ms=happened_ms,
    )
    async with engine.session_queue.places:
        recorded = await _recorded(engine, request, caller, delivery, facts)
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
    engine: Engine, request: HookDeliver, caller: Caller, delivery: HookDelivery, facts: Facts
) -> Recorded:
    """Record what a hook tells, and what the silence before a new session means."""
    if opens := any(isinstance(each, SessionStarted) for each in delivery.report.happenings):
        await scan(engine)  # detection comes before registering
    engine.admission.admit(request, caller)  # the store may have gone since
    recorded = await record_clean(engine, delivery, caller, facts, size=len(request.payload))
    if opens:
        await scan(engine)
    return recorded


async def record_clean(
    engine: Engine, delivery: HookDelivery, caller: Caller, facts: Facts, *, size: int
) -> Recorded:
    """Record a delivery without its secrets; ``size`` is how many bytes of text it can hold.

    Raises InvalidState for one from a directory of which nothing is recorded.
    """
    clean = await engine.cpu_worker.run(partial(struct_without_secrets, delivery), size)
    refuse_places([clean.cwd], engine.config.project_ignore)
    return await engine.on_behalf_of(caller, facts).write(record, clean)


async def _context(
    engine: Engine, request: HookDeliver, report: Report, recorded: Recorded, caller: Caller
) -> str | None:
    """Return what the agent is to read, None for nothing."""
    lines = "\n".join(recorded.lines)
    room = min(engine.config.prompt.max_chars, MOST_CHARS - len(lines) - 2)
    briefing = await _briefing(engine, recorded, caller, room) if recorded.brief else None
    if briefing is not None:
        await engine.write(context_window.set_briefed, key_of(report), request.delivery_id)
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
    harnesses = []
    for row in await engine.read(deliveries.counted):
        timing = engine.session_queue.timing(row["harness"])
        harnesses.append(
            HarnessStatus(
                **row,
                p50_ms=timing.p50_ms if timing else None,
                p95_ms=timing.p95_ms if timing else None,
            )
        )
    heap = await engine.outbox.in_thread(engine.spool.size)
    spool = SpoolStatus(
        directory=str(engine.spool.directory or ""), files=heap.files, size_bytes=heap.size_bytes
    )
    return HookStatus(harnesses=harnesses, spool=spool)


async def take_spooled(engine: Engine) -> None:
    """Take in everything that waits, oldest first; at once when nothing does.

    Raises Storage and Unavailable; what was not taken in then stays for the next time.
    """
    if not await engine.outbox.in_thread(engine.spool.any):
        return
    async with engine.session_queue.spool:
        waiting = await engine.outbox.in_thread(engine.spool.waiting)
        for number, each in enumerate(waiting):
            if engine.closing:
                raise Unavailable(
                    "fleetd is shutting down.", hint="The rest waits in the spool.", retry=True
                )
            await _take_one(engine, each)
            if number == 0:
                log.info("Taking in what waited in the spool: payloads of hooks, %d", len(waiting))


async def tidy_spool(engine: Engine) -> None:
    """Take in what waits, now that nobody does; what cannot be taken in is told in the log."""
    try:
        await take_spooled(engine)
        await engine.outbox.in_thread(engine.spool.sweep)
    except StoreAway:  # which the store itself tells, and then everything here comes first
        pass
    except FleetError as error:
        log.warning("The spool has to wait: %s", error.message)
    except OSError as error:
        log.warning("The spool %s cannot be emptied: %s", engine.spool.directory, error.strerror)


async def clear_spool(engine: Engine) -> None:
    """Empty the spool, so that nothing comes back from it; raises Storage when that fails."""
    try:
        await take_spooled(engine)
        await engine.outbox.in_thread(engine.spool.clear)
    except OSError as error:
        raise Storage(
            f"The spool {engine.spool.directory} cannot be emptied: {error.strerror}.",
            hint="What lies there would come back. Mend its permissions, then try again.",
        ) from error


async def _take_one(engine: Engine, waiting: SpooledHook) -> None:
    try:
        request = await engine.outbox.in_thread(partial(_read_spooled, engine, waiting))
    except NoFrame as reason:
        log.warning("%s in the spool is none of the hook client's: %s", waiting.name, reason)
        return await engine.outbox.in_thread(partial(engine.spool.put_aside, waiting.name))
    if request is None:
        return None
    # A clock that was set back meanwhile makes nothing happen in the future.
    with trace.on_behalf_of(None):  # whoever has the spool emptied did not ask for this
        await take(
            engine,
            request,
            DAEMON,
            min(engine.store.from_wall(waiting.happened_ms), engine.clock()),
        )
    return await engine.outbox.in_thread(partial(engine.spool.remove, waiting.name))


def _read_spooled(engine: Engine, waiting: SpooledHook) -> HookDeliver | None:
    line = engine.spool.read(waiting.name)
    if line is None:
        return None
    try:
        request = _frame(line).params
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise NoFrame(str(error)) from error
    if request.delivery_id != waiting.delivery_id:
        raise NoFrame("it holds another delivery than its name says")
    return request


async def _spooled_first(engine: Engine) -> None:
    """Take in what waits before something newer, for a while; raises Unavailable after that.

    Whoever came with something newer leaves it in the spool then, and it keeps its place.
    """
    with trio.move_on_after(SPOOL_PATIENCE_S) as waiting:
        try:
            await take_spooled(engine)
        except (Storage, OSError) as error:
            # One that cannot be taken in, or removed, must not keep all that follow from being.
            if engine.session_queue.first_time(f"spool: {error}"):
                log.warning("What waits in the spool cannot be taken in now: %s", error)
    if waiting.cancelled_caught:
        raise Unavailable(
            "What waits in the spool comes first, and there is much of it.",
            hint="Leave this in the spool as well.",
        )
