"""Hook deliveries: a payload becomes a report, is recorded once, and is answered.

A payload never causes an error for the agent. A disk error is an error for the client,
which then leaves the payload in the spool. Payloads in the spool are older: they are recorded
first, in order, through the same functions.
"""

import logging
import time
from functools import partial
from typing import Any, Literal

import msgspec
import trio

from ...domain.attention.running import leading_agent
from ...domain.cluster.membership import agent_label
from ...domain.core.context import Caller, Context, Facts
from ...domain.core.registry import method, optimistic
from ...domain.core.tx import Tx
from ...domain.redaction.redact import redact
from ...domain.redaction.requests import struct_without_secrets
from ...domain.sessions import deliveries, sessions
from ...domain.sessions.deliveries import fingerprint
from ...domain.sessions.record import HookDelivery, Recorded, record
from ...domain.sessions.sessions import key_of
from ...domain.sessions.sightings import SightingKind
from ...harness.detect import recognise
from ...harness.report import Adapter, Answer, Report, SessionStarted, ToolStarted, Unfit
from ...host import trace
from ...protocol.display import escaped, quote, shell_word, shown
from ...protocol.errors import FleetError, InvalidState, Storage, Unavailable
from ...protocol.events import WindowBriefed
from ...protocol.records import Lock
from ...protocol.request import Request
from ...protocol.requests.event import EventAppend
from ...protocol.requests.hook import (
    DOCTOR,
    HookDeliver,
    HookReply,
    HookStatus,
    HookStatusGet,
    SpoolStatus,
)
from ...protocol.requests.lock import LockCheck
from ...protocol.requests.recovery import RecoveryContextGet, RecoveryRestore
from ...protocol.timestamps import iso
from ...store.api import StoreAway
from ...store.spool import NoFrame, SpooledHook
from ..engine import DAEMON, Engine
from ..jobs.liveness import scan
from ..projects import check_not_ignored
from . import payloads
from .facts import HookPaths, gather_facts, read_transcript, resolve_paths
from .session_queue import RecordingLimit
from .sighting_counts import clean_name, unknown_fields
from .sightings import harness_statuses

log = logging.getLogger("fleetd")
# The longest text that a harness takes whole, in characters.
MOST_CHARS = 9_500
# How much of a skipped payload is searched for secrets, and logged, in characters.
LOOKED_AT, SHOWN = 4_000, 300
ENFORCE = "enforce-locks"
AUTO = "auto-locks"
PURPOSE_CHARS = 120
# Nobody reads the answer to a payload from the spool, and some hooks are only for the answer.
NO_SPOOL = "no-spool"
_WORDS = (ENFORCE, AUTO, DOCTOR, NO_SPOOL)
# The hook client waits 0.9 s for everything.
SPOOL_PATIENCE_S = 0.4


# A request for a briefing, and the text of the log if it is refused.
_Way = tuple[Request[Any], str]
_NO_BRIEFING = "%s cannot be briefed: %s"


class _Frame(msgspec.Struct, frozen=True):
    """The part of a line that is needed."""

    method: Literal["hook.deliver"]
    params: HookDeliver


_frame = msgspec.json.Decoder(_Frame).decode


def _is_doctor(request: HookDeliver) -> bool:
    """Return whether this only tests the path of a hook: nothing of it is kept."""
    return DOCTOR in request.args


@method(HookDeliver, without_store=_is_doctor)
async def deliver(engine: Engine, request: HookDeliver, caller: Caller) -> HookReply:
    """Record the payload of a hook, and answer it."""
    reply = await record_delivery(engine, request, caller)
    if request.begun_us is not None and not _is_doctor(request):
        taken_us = time.monotonic_ns() // 1_000 - request.begun_us
        if 0 <= taken_us < 60_000_000:
            engine.session_queue.timed(request.harness, taken_us)
    return reply


async def record_delivery(
    engine: Engine, request: HookDeliver, caller: Caller, happened_ms: int | None = None
) -> HookReply:
    """Record one delivery; ``happened_ms`` is when its hook ran, for one from the spool.

    Raises Storage and Unavailable, after which the client has to repeat the delivery; nothing
    else. A delivery of the doctor is answered, and leaves no trace.
    """
    trace.annotate(f"delivery {shown(request.delivery_id)}")
    if _is_doctor(request):
        return HookReply(stdout="fleetd")
    parsed = await _parse(engine, request, spooled=happened_ms is not None)
    if parsed is None:
        return HookReply()
    adapter, report, fields = parsed
    trace.annotate(f"session {shown(report.session_id)}")
    what = f"A hook of {report.harness} ({report.event}) could not be recorded"
    try:
        paths = await resolve_paths(engine, report)
        if happened_ms is None and paths.spooled:
            await _take_spooled_first(engine)
        async with engine.session_queue.turn(key_of(report)):
            reply, recorded = await _answer(
                engine, request, caller, adapter, report, paths, happened_ms
            )
        if not recorded.repeated:
            _note_names(engine, adapter, report, fields)
            engine.transcripts.note(report, _now(engine))
        return reply
    except (Storage, Unavailable):
        raise
    except InvalidState as refusal:
        if "project_ignore" not in refusal.values and engine.session_queue.first_time(what):
            log.warning("%s: %s", what, refusal.message)
    except Exception:
        if engine.session_queue.first_time(what):  # the next hook comes soon
            log.exception("%s", what)
    return HookReply()


async def _parse(
    engine: Engine, request: HookDeliver, *, spooled: bool
) -> tuple[Adapter, Report, tuple[str, ...]] | None:
    """Return the report of a payload, None for one that has no known form, which is logged.

    The tuple also has the names of unknown fields.
    """

    def parse() -> tuple[Adapter, Report, tuple[str, ...]]:
        payload = payloads.decode(request.payload)
        adapter = recognise(request.harness, payload, request.env)
        event = next((word for word in request.args if word not in _WORDS), None)
        report = adapter.read(payload, event)
        return adapter, report, unknown_fields(adapter, payload) if report.happenings else ()

    try:
        return await engine.cpu_worker.run(parse, len(request.payload))
    except Unfit as unfit:
        reason, unknown_event = str(unfit), unfit.event
    except Exception:
        # Raised from here, any error would let the payload come from the spool again and again.
        reason, unknown_event = "a bug", None
        if engine.session_queue.first_time(f"{request.harness}: a bug, logged whole"):
            log.exception("A payload of %s could not be interpreted", request.harness)
    if engine.session_queue.first_time(f"{request.harness}: {reason}"):
        # Cut after the redaction, which does not recognise half a token.
        beginning = redact(request.payload[:LOOKED_AT])[:SHOWN]
        text = "A payload of %s has no known form (%s) and was skipped: %s"
        log.warning(text, request.harness, redact(reason), beginning)
    await engine.write(
        deliveries.count_unfit, request.delivery_id, request.harness, from_spool=spooled
    )
    kind: SightingKind = "unfit" if unknown_event is None else "unknown_event"
    engine.sightings.note(request.harness, kind, clean_name(unknown_event or reason), _now(engine))
    return None


def _note_names(engine: Engine, adapter: Adapter, report: Report, fields: tuple[str, ...]) -> None:
    """Count the event of a delivery, and its unknown names."""
    counts, known, now = engine.sightings, adapter.known_events, _now(engine)
    if known is not None and report.event in known:
        counts.note(report.harness, "event", report.event, now)  # as in the adapter's own list
    else:
        kind: SightingKind = "event" if known is None else "unknown_event"
        counts.note(report.harness, kind, clean_name(report.event), now)
    for name in fields:
        counts.note(report.harness, "unknown_field", name, now)


def _now(engine: Engine) -> str:
    return iso(engine.clock())


async def _answer(
    engine: Engine,
    request: HookDeliver,
    caller: Caller,
    adapter: Adapter,
    report: Report,
    paths: HookPaths,
    happened_ms: int | None,
) -> tuple[HookReply, Recorded]:
    if report.request_opening is not None:
        return await _answer_request(engine, caller, adapter, report, happened_ms), Recorded()
    live = happened_ms is None
    auto = live and (AUTO in request.args or engine.config.locks.automatic)
    facts, earlier = await gather_facts(engine, adapter, report, paths, caller if live else None)
    delivery = HookDelivery(
        delivery_id=request.delivery_id,
        report=report,
        earlier=earlier,
        cwd=paths.cwd,
        # A payload from the spool is from another time.
        checkout=paths.checkout if live else None,
        wanted_agent_id=request.env.get("FLEET_AGENT_ID"),
        wanted_mission_id=request.env.get("FLEET_MISSION_ID"),
        happened_ms=happened_ms,
        auto_locks=auto,
    )
    delivery = await without_secrets(engine, delivery, size=len(request.payload))
    async with engine.session_queue.recording:
        recorded = await _record_and_scan(engine, request, caller, delivery, facts)
    if not live:
        return HookReply(), recorded
    # Also for a repeated one: the first delivery may be of hooks that do not enforce locks.
    refused = await _denial(engine, request, report, recorded, caller)
    context = None
    if not recorded.known:
        try:
            context = await _context(engine, request, report, recorded, caller)
        except StoreAway:
            if refused is None:
                raise  # the decision counts without a briefing, which the next hook brings
    if context is None and refused is None:
        return HookReply(), recorded
    stdout = adapter.reply(report, Answer(context=context, deny=refused))
    return HookReply(stdout=stdout), recorded


async def _answer_request(
    engine: Engine, caller: Caller, adapter: Adapter, report: Report, happened_ms: int | None
) -> HookReply:
    """Brief an agent in one request to its model, which leaves nothing in the conversation.

    This hook runs before every request, so nothing is recorded. The agent is not recovered here
    and its briefing stays due: the next hook with a lasting text brings it.
    """
    if happened_ms is not None or not report.request_opening:
        return HookReply()
    transcript = await read_transcript(engine, adapter, report)
    due = await engine.read(sessions.briefing_due, key_of(report), transcript.mark)
    if due is None:
        return HookReply()
    agent_id, mission_id = due
    room = min(engine.config.prompt.max_chars, MOST_CHARS)
    context = RecoveryContextGet(mission_id=mission_id, agent_id=agent_id, max_chars=room)
    prompt = await _first_prompt(engine, agent_id, [(context, _NO_BRIEFING)], caller)
    return HookReply(stdout=adapter.reply(report, Answer(context=prompt)))


async def _record_and_scan(
    engine: Engine, request: HookDeliver, caller: Caller, delivery: HookDelivery, facts: Facts
) -> Recorded:
    """Record a hook, and act on the silence before a new session."""
    if opens := any(isinstance(each, SessionStarted) for each in delivery.report.happenings):
        await scan(engine)  # detection comes before registering
    engine.admission.admit(request, caller)  # the store may be away by now
    recorded = await record_clean(engine, delivery, caller, facts)
    if opens:
        await scan(engine)
    return recorded


async def without_secrets(engine: Engine, delivery: HookDelivery, *, size: int) -> HookDelivery:
    """Return a delivery without its secrets; ``size`` is its maximum number of bytes of text.

    Raises InvalidState for one from an ignored directory.
    """
    clean = await engine.cpu_worker.run(partial(struct_without_secrets, delivery), size)
    check_not_ignored([clean.cwd], engine.config.project_ignore)
    return clean


async def record_clean(
    engine: Engine, clean: HookDelivery, caller: Caller, facts: Facts
) -> Recorded:
    """Record a delivery whose secrets are removed."""
    limit = engine.session_queue.recording
    return await engine.on_behalf_of(caller, facts).write(_record_timed, clean, limit)


@optimistic
def _record_timed(tx: Tx, ctx: Context, clean: HookDelivery, limit: RecordingLimit) -> Recorded:
    """Record a delivery, and note how long that took."""
    begun = time.perf_counter_ns()
    try:
        return record(tx, ctx, clean)
    finally:
        limit.took((time.perf_counter_ns() - begun) / 1_000)


async def _context(
    engine: Engine, request: HookDeliver, report: Report, recorded: Recorded, caller: Caller
) -> str | None:
    """Return the text for the agent, None for nothing."""
    lines = "\n".join(recorded.lines)
    room = min(engine.config.prompt.max_chars, MOST_CHARS - len(lines) - 2)
    briefing = await _briefing(engine, recorded, caller, room) if recorded.brief else None
    if briefing is not None:
        payload = WindowBriefed(characters=len(briefing)) if recorded.compacted else None
        await engine.write(sessions.set_briefed, key_of(report), request.delivery_id, payload)
    return "\n\n".join(filter(None, (briefing, lines))) or None


async def _briefing(engine: Engine, recorded: Recorded, caller: Caller, room: int) -> str | None:
    """Recover the agent's part of its mission and return its briefing.

    If that fails, the agent is briefed without recovery. Raises StoreAway: the client then leaves
    the hook in the spool, and the next hook is answered with the briefing.
    """
    mission_id, agent_id = recorded.mission_id, recorded.agent_id
    restore = RecoveryRestore(
        mission_id=mission_id,
        agent_id=agent_id,
        requested_by=agent_id or "cli",
        scope="agent",
        max_chars=room,
    )
    context = RecoveryContextGet(mission_id=mission_id, agent_id=agent_id, max_chars=room)
    ways: list[_Way] = [
        (restore, "%s is briefed without recovery: %s"),
        (context, _NO_BRIEFING),
    ]
    return await _first_prompt(engine, agent_id, ways, msgspec.structs.replace(caller, hook=True))


async def _first_prompt(
    engine: Engine, agent_id: str | None, ways: list[_Way], caller: Caller
) -> str | None:
    """Return the briefing of the first request that is not refused, None if all are.

    Raises StoreAway.
    """
    for request, failure in ways:
        try:
            prompt: str = (await engine.ask(request, caller)).prompt
        except StoreAway:
            raise
        except FleetError as refusal:
            log.warning(failure, agent_id, refusal.message)
        else:
            return prompt
    return None


# Locks: an edit is refused if the hook asks for it, and never because the daemon is unreachable.


async def _denial(
    engine: Engine, request: HookDeliver, report: Report, recorded: Recorded, caller: Caller
) -> str | None:
    """Return why a tool call must not make its next edit, None when it may."""
    if ENFORCE not in request.args or not report.denies or recorded.agent_id is None:
        return None
    for call in report.happenings:
        if not isinstance(call, ToolStarted):
            continue
        for file in call.edits:
            reason = await _reason(engine, file, recorded, recorded.agent_id, caller)
            if reason is not None:
                # A harness reports nothing more about a refused tool call.
                data = {"name": call.tool, "error": reason, "call_id": call.call_id}
                once = fingerprint(report) if call.call_id else None
                failed = EventAppend(
                    "tool_failed", agent_id=recorded.agent_id, data=data, idempotency_key=once
                )
                await engine.handle(failed, caller)
                return reason
    return None


async def _reason(
    engine: Engine, file: str, recorded: Recorded, agent_id: str, caller: Caller
) -> str | None:
    """Return why an agent must not edit a file now, None when it may."""
    other = await _others_lock(engine, file, agent_id, caller)
    if other is not None:
        return _locked(file, other, await engine.read(agent_label, other.held_by), agent_id)
    if recorded.awaited is not None:
        return _awaited(file, *recorded.awaited, agent_id)
    return None


async def _others_lock(engine: Engine, file: str, agent_id: str, caller: Caller) -> Lock | None:
    """Return the lock of another agent that covers a file.

    None if Git cannot tell which file it is: that is no reason to refuse the edit.
    """
    try:
        held = await engine.ask(LockCheck(file), caller)
    except Unavailable as error:
        log.warning("An edit of %s was allowed without a lock check: %s", file, error.message)
        return None
    others = [lock for lock in held.locks if lock.held_by != agent_id]
    if any(lock.automatic for lock in others):
        # Locks taken by an agent's edits belong to its subagents, too.
        session = await engine.read(lambda tx, _: leading_agent(tx, agent_id))
        others = [lock for lock in others if not (lock.automatic and lock.held_by == session)]
    return others[0] if others else None


def _awaited(file: str, waiting: str, awaited: str, agent_id: str) -> str:
    """Return why an edit got no lock: an agent that waits comes first."""
    return (
        f"{waiting} waits for a lock on {escaped(awaited)}, so {escaped(file)} was not edited."
        f" Continue with other work; fleetctl lock acquire {shell_word(file)} --agent {agent_id}"
        " --wait-ms 600000 waits for your turn."
    )


def _locked(file: str, lock: Lock, holder: str, agent_id: str) -> str:
    # The holder wrote the purpose, and a file can have any name: both are escaped.
    purpose, name = quote(lock.purpose, PURPOSE_CHARS), shell_word(file)
    return (
        f"{escaped(file)} is locked by {holder} since {lock.acquired_at} (purpose: {purpose},"
        f" until {lock.expires_at}), so it was not edited. Continue with other work;"
        f" fleetctl lock acquire {name} --agent {agent_id} --wait-ms 600000 waits for it,"
        f" fleetctl mail send {lock.held_by} asks its holder."
    )


@method(HookStatusGet)
async def status(engine: Engine, request: HookStatusGet, caller: Caller) -> HookStatus:
    """Return what came from hooks, and what waits in the spool."""
    harnesses = await harness_statuses(engine)
    waiting = await engine.outbox.in_thread(engine.spool.size)
    spool = SpoolStatus(
        directory=str(engine.spool.directory or ""),
        files=waiting.files,
        size_bytes=waiting.size_bytes,
    )
    return HookStatus(harnesses=harnesses, spool=spool)


async def take_spooled(engine: Engine) -> None:
    """Record everything in the spool, oldest first; returns immediately if it is empty.

    Raises Storage and Unavailable; payloads that were not recorded stay for the next time.
    """
    if not await engine.outbox.in_thread(engine.spool.any):
        return
    async with engine.session_queue.spool:
        waiting = await engine.outbox.in_thread(engine.spool.waiting)
        for number, each in enumerate(waiting):
            if engine.closing:
                raise Unavailable(
                    "fleetd is shutting down.", hint="The rest stays in the spool.", retry=True
                )
            await _take_one(engine, each)
            if number == 0:
                log.info("Recording %d payloads of hooks from the spool", len(waiting))


async def tidy_spool(engine: Engine) -> None:
    """Record the spool while no hook waits for it; what cannot be recorded is logged."""
    try:
        await take_spooled(engine)
        await engine.outbox.in_thread(engine.spool.sweep)
    except StoreAway:  # the store logs this itself, and the spool comes first on its return
        pass
    except FleetError as error:
        log.warning("The spool cannot be recorded yet: %s", error.message)
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
            hint="Its payloads would be recorded again. Repair its permissions, then try again.",
        ) from error


async def _take_one(engine: Engine, waiting: SpooledHook) -> None:
    try:
        request = await engine.outbox.in_thread(partial(_read_spooled, engine, waiting))
    except NoFrame as reason:
        log.warning("%s in the spool was not written by the hook client: %s", waiting.name, reason)
        return await engine.outbox.in_thread(partial(engine.spool.put_aside, waiting.name))
    if request is None:
        return None
    # This hook is not part of the request that empties the spool: log lines do not name that
    # request, and paths are looked up again.
    with trace.on_behalf_of(None), engine.files.remembering(anew=True):
        await record_delivery(
            engine,
            request,
            DAEMON,
            # If the clock was set back meanwhile, nothing may happen in the future.
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
        raise NoFrame("its name does not match its delivery")
    return request


async def _take_spooled_first(engine: Engine) -> None:
    """Record the spool before a newer hook, for a limited time; raises Unavailable after that.

    The client then leaves the newer payload in the spool, where it keeps its place.
    """
    with trio.move_on_after(SPOOL_PATIENCE_S) as waiting:
        try:
            await take_spooled(engine)
        except (Storage, OSError) as error:
            # A payload that cannot be recorded or removed must not keep back all that follow.
            if engine.session_queue.first_time(f"spool: {error}"):
                log.warning("The spool cannot be recorded now: %s", error)
    if waiting.cancelled_caught:
        raise Unavailable(
            "fleetd is still recording older payloads from the spool.",
            hint="Leave this payload in the spool too.",
        )
