"""Resources that a client can read without a tool: the mission, its checkpoints, the briefing."""

import re

from fleetd.protocol.display import quote
from fleetd.protocol.errors import FleetError, NotFound
from fleetd.protocol.patterns import RECORD_ID
from fleetd.protocol.requests.checkpoint import CheckpointGet, CheckpointList
from fleetd.protocol.requests.mission import MissionGet

from . import formatting, tools
from .session import Session

MISSION, CHECKPOINTS, BRIEFING = "fleet://mission", "fleet://checkpoints", "fleet://briefing"
TEMPLATES = {
    "mission": ("fleet://mission/{mission_id}", "A mission and its sorties"),
    "checkpoint": ("fleet://checkpoint/{checkpoint_id}", "The content of a checkpoint"),
}
RECOVER = "recover"
LISTED = 20
KNOWN = f"Read {MISSION}, {CHECKPOINTS}, {BRIEFING}, or {MISSION}/ with a mission's id."
_ONE = re.compile(r"fleet://(mission|checkpoint)/([^/]+)")


# A URI, a name and a description.
Readable = tuple[str, str, str]

_ALWAYS = (
    (MISSION, "mission", "Your mission and its sorties"),
    (CHECKPOINTS, "checkpoints", "The checkpoints of your mission, newest first"),
    (BRIEFING, "briefing", "Your briefing after a lost context"),
)


async def readables(session: Session) -> list[Readable]:
    """Return the resources; without a daemon, those that always exist."""
    try:
        mission = await session.mission(await session.known())
        if mission is None:
            return list(_ALWAYS)
        page = await session.ask(CheckpointList(mission_id=mission.id, limit=LISTED))
    except FleetError:
        return list(_ALWAYS)
    return [
        *_ALWAYS,
        *(
            (f"fleet://checkpoint/{each.id}", each.id, formatting.checkpoint_line(each))
            for each in page.checkpoints
        ),
    ]


async def read(session: Session, uri: str) -> str:
    """Return the text behind a URI; raises NotFound for one that names nothing."""
    if uri == BRIEFING:
        return await tools.briefing(session, tools.NoArguments())
    agent = await session.known()
    me = agent.id if agent else None
    if uri == CHECKPOINTS:
        mission = await session.my_mission(agent)
        page = await session.ask(CheckpointList(mission_id=mission.id, limit=100))
        lines = map(formatting.checkpoint_line, page.checkpoints)
        return formatting.listed(lines) or "No checkpoint yet."
    one = _ONE.fullmatch(uri)
    if one is not None and not re.match(RECORD_ID, one[2]):
        one = None
    if one is not None and one[1] == "checkpoint":
        return await _checkpoint(session, one[2])
    if one is None and uri != MISSION:
        raise NotFound(f"There is no resource {uri[:200]}.", hint=KNOWN)
    mission = await session.ask(MissionGet(one[2])) if one else await session.my_mission(agent)
    return formatting.mission_text(mission, await session.sorties(mission), me)


async def _checkpoint(session: Session, checkpoint_id: str) -> str:
    """Return the content of a checkpoint, as lines."""
    kept = await session.ask(CheckpointGet(checkpoint_id))
    context = kept.recovery_context
    why = formatting.reason(kept)
    lines = [
        f"{kept.id} of {kept.mission_id}, {kept.timestamp}, {kept.progress_percent}%: {why}",
        f"Last action: {quote(context.last_action)}",
        *(f"Next: {quote(each)}" for each in context.next_steps),
        *(f"Blocker: {quote(each)}" for each in context.blockers),
        *(f"Changed: {formatting.path(each)}" for each in context.files_modified),
        *(
            f"Sortie {each.id} {each.status} {each.progress}%: {quote(each.title)}"
            f"{f' ({each.assigned_to})' if each.assigned_to else ''}"
            for each in kept.sorties
        ),
        *(
            f"Lock: {formatting.path(each.file)} held by {each.held_by}"
            for each in kept.active_locks
        ),
        *(
            f"Message {each.id} from {each.sender}: {quote(each.subject)}"
            for each in kept.pending_messages
        ),
    ]
    return formatting.listed(lines)
