"""The tools: what each takes and does, and all of them by name."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, NamedTuple, get_args

from msgspec import Meta

from fleetd.protocol.errors import FleetError, InvalidParams, InvalidState, NotFound
from fleetd.protocol.records import Agent, Mission, Sortie, WorkNote
from fleetd.protocol.request import Request
from fleetd.protocol.requests.agent import AgentList, AgentNote, Lines
from fleetd.protocol.requests.attention import AttentionConflicts, AttentionList
from fleetd.protocol.requests.checkpoint import CheckpointCreate
from fleetd.protocol.requests.handoff import HandoffAsk
from fleetd.protocol.requests.lock import (
    LockAcquire,
    LockCheck,
    LockList,
    LockPage,
    LockRelease,
    Purpose,
    Validity,
)
from fleetd.protocol.requests.message import (
    MessageAck,
    MessageInbox,
    MessageSend,
    Recipients,
    ThreadId,
)
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionComplete,
    MissionCreate,
    MissionFail,
    MissionGet,
    MissionUpdate,
    NewSortie,
)
from fleetd.protocol.requests.note import NoteAdd, NoteWithdraw
from fleetd.protocol.requests.recovery import RecoveryContextGet
from fleetd.protocol.requests.search import SearchQuery
from fleetd.protocol.requests.sortie import (
    SortieBlock,
    SortieComplete,
    SortieFail,
    SortieProgress,
    SortieStart,
    SortieUnblock,
)
from fleetd.protocol.types import (
    LONGEST_LEASE_MS,
    AgentId,
    Files,
    MessageId,
    MissionId,
    NoteId,
    NoteKind,
    NoteText,
    Path,
    Percent,
    SearchKind,
    SortieId,
    Text,
    Title,
)

from ..context import lock_target, repository_root
from . import formatting
from .formatting import until
from .schema import Arguments, taken
from .session import Session, absolute, is_automatic

# The longest text that a harness accepts uncut, in characters.
BRIEFING_CHARS = 9_500

Act = Callable[[Session, Any], Awaitable[str]]


class Tool(NamedTuple):
    """One tool, as an agent sees it.

    ``repeats`` means that calling it again with the same arguments changes nothing more.
    """

    name: str
    description: str
    arguments: type[Arguments]
    act: Act
    reads: bool
    destroys: bool
    repeats: bool

    async def call(self, session: Session, given: dict[str, Any] | None) -> str:
        """Run the tool and return the text for the agent; raises FleetError."""
        return await self.act(session, taken(self.arguments, given))


TOOLS: dict[str, Tool] = {}


def tool(
    description: str, *, reads: bool = False, destroys: bool = False, repeats: bool = False
) -> Callable[[Act], Act]:
    """Register a function as a tool under its name, with its annotated arguments."""

    def register(act: Act) -> Act:
        name, arguments = act.__name__, list(act.__annotations__.values())[1]
        TOOLS[name] = Tool(name, description, arguments, act, reads, destroys, repeats)
        return act

    return register


class NoArguments(Arguments, frozen=True, kw_only=True):
    """No arguments."""


class MissionArguments(Arguments, frozen=True, kw_only=True):
    """The mission to show, by default the agent's own."""

    mission_id: MissionId | None = None


@tool("Your mission: goal, progress, sorties (its pieces of work) with ids and states.", reads=True)
async def mission(session: Session, asked: MissionArguments) -> str:
    """Show a mission and its sorties."""
    agent = await session.known()
    if asked.mission_id:
        found = await session.ask(MissionGet(asked.mission_id))
    else:
        found = await session.my_mission(agent)
    me = agent.id if agent else None
    you = f"You are {agent.id} ({agent.role}).\n" if agent else ""
    return you + formatting.mission_text(found, await session.sorties(found), me)


class NewSortieArguments(Arguments, frozen=True, kw_only=True):
    """A piece of work to add."""

    title: Title
    description: Text | None = None
    files: Files | None = None
    assigned_to: AgentId | None = None
    after: Annotated[list[SortieId], Meta(max_length=200)] | None = None


class PlanArguments(Arguments, frozen=True, kw_only=True):
    """The parts of a mission."""

    goal: Title | None = None
    sorties: Annotated[list[NewSortieArguments], Meta(max_length=200)] | None = None


@tool("Add sorties to your mission. With goal: start a mission if you have none.")
async def plan(session: Session, asked: PlanArguments) -> str:
    """Start a mission or add to the existing one, in one request: all of it or nothing."""
    if not asked.goal and not asked.sorties:
        raise InvalidParams("goal and sorties are missing.", hint="Give a goal, sorties, or both.")
    agent = await session.me()
    pieces = [
        NewSortie(
            each.title,
            each.description,
            each.files or [],
            each.assigned_to,
            depends_on=each.after or [],
        )
        for each in asked.sorties or ()
    ]
    if asked.goal:
        request = await _for_goal(session, agent, asked.goal, pieces)
    else:
        mission_id = (await session.my_mission(agent)).id
        request = MissionUpdate(mission_id, sorties=pieces, agent_id=agent.id)
    return await _planned(session, agent, await session.ask(request, once=True))


async def _for_goal(
    session: Session, agent: Agent, goal: str, pieces: list[NewSortie]
) -> Request[Mission]:
    """Return a request that starts a mission, or gives this session's automatic one its goal.

    Planning the same goal again adds only new sorties: the agent may not know the first outcome.
    """
    mission = await session.mission(agent)
    if mission is None:
        return MissionCreate(
            goal, project_dir=session.cwd, sorties=pieces, agent_id=agent.id, start=True
        )
    new = pieces
    if mission.title == goal:
        there = [_piece(each) for each in await session.sorties(mission)]
        new = [each for each in pieces if _piece(each) not in there]
    if is_automatic(mission) and agent.mission_id == mission.id:
        return MissionUpdate(mission.id, title=goal, sorties=new, agent_id=agent.id)
    if mission.title != goal:
        raise InvalidState(
            f"You already have a mission: {mission.id}, {_goal(mission, agent)}.",
            hint="Omit goal to add sorties to it, or end it with finish first.",
        )
    if not new:
        return MissionGet(mission.id)
    return MissionUpdate(mission.id, sorties=new, agent_id=agent.id)


def _piece(each: Sortie | NewSortie) -> tuple[str, str | None, list[str]]:
    return each.title, each.description, each.files


async def _planned(session: Session, agent: Agent, mission: Mission) -> str:
    """Return a mission with its sorties; a failure to read them does not undo the plan."""
    try:
        sorties = await session.sorties(mission)
    except FleetError:
        return f"{formatting.mission_head(mission, agent.id)}\nPlanned; mission shows its sorties."
    return formatting.mission_text(mission, sorties, agent.id)


class SortieArguments(Arguments, frozen=True, kw_only=True):
    """The state of a sortie."""

    sortie_id: SortieId
    state: Literal["start", "progress", "block", "unblock", "complete", "fail"]
    percent: Percent | None = None
    text: Annotated[Text, Meta(description="notes, result, or why")] | None = None


@tool("Report the state of a sortie. Starting one makes it yours.", repeats=True)
async def sortie(session: Session, asked: SortieArguments) -> str:
    """Start, report, block, unblock, complete or fail a sortie."""
    if asked.state in ("block", "fail") and not asked.text:
        raise InvalidParams("text is missing.", hint=f"To {asked.state} a sortie, say why in text.")
    agent = await session.me()
    changed = await _changed(session, agent.id, asked)
    mission = await session.ask(MissionGet(changed.mission_id))
    line = formatting.sortie_line(changed, agent.id)
    after = f"Mission {mission.progress_percent}% ({mission.completed_sorties}"
    after += f"/{mission.total_sorties} sorties)."
    if asked.state in ("complete", "fail"):
        after += _next(await session.sorties(mission), agent.id)
    return f"{line}\n{after}"


async def _changed(session: Session, agent_id: str, asked: SortieArguments) -> Sortie:
    ident, text = asked.sortie_id, asked.text
    requests: dict[str, Request[Sortie]] = {
        "start": SortieStart(ident, agent_id),
        "progress": SortieProgress(ident, asked.percent, notes=text, agent_id=agent_id),
        "block": SortieBlock(ident, text or "", agent_id=agent_id),
        "unblock": SortieUnblock(ident, agent_id=agent_id),
        "complete": SortieComplete(ident, result=text, agent_id=agent_id),
        "fail": SortieFail(ident, text or "", agent_id=agent_id),
    }
    changed = await session.ask(requests[asked.state])
    if asked.state == "start" and (asked.percent is not None or text is not None):
        changed = await session.ask(requests["progress"])
    return changed


def _next(sorties: list[Sortie], me: str) -> str:
    """Return what to do next: the agent's own work first, then pending sorties."""
    mine = [each for each in sorties if each.assigned_to == me]
    for state, candidates in (("in_progress", mine), ("assigned", mine), ("pending", sorties)):
        for each in candidates:
            if each.status == state and not each.waits_for:
                return f"\nNext: {formatting.sortie_line(each, me)}"
    if all(each.status in ("completed", "failed") for each in sorties):
        return "\nNo sortie is open: plan more, or end the mission with finish."
    return ""


class FinishArguments(Arguments, frozen=True, kw_only=True):
    """How a mission ends."""

    outcome: Literal["complete", "fail", "cancel"]
    reason: Annotated[Text, Meta(description="for fail, cancel")] | None = None


@tool("End your mission for all agents. complete is refused while a sortie is open.", destroys=True)
async def finish(session: Session, asked: FinishArguments) -> str:
    """End the mission."""
    if asked.outcome != "complete" and not asked.reason:
        raise InvalidParams("reason is missing.", hint=f"To {asked.outcome} a mission, say why.")
    agent = await session.me()
    mission = await session.my_mission(agent)
    await _refuse_others(session, agent, mission)
    requests: dict[str, Request[Mission]] = {
        "complete": MissionComplete(mission.id),
        "fail": MissionFail(mission.id, asked.reason or ""),
        "cancel": MissionCancel(mission.id, asked.reason or ""),
    }
    return formatting.mission_head(await session.ask(requests[asked.outcome]), agent.id)


def _goal(mission: Mission, agent: Agent) -> str:
    return formatting.words(mission.title, mission.author, agent.id)


async def _refuse_others(session: Session, agent: Agent, mission: Mission) -> None:
    """Raise InvalidState for a mission that the agent had no part in.

    An agent that ends its mission twice must not end the next one of the directory.
    """
    if agent.mission_id == mission.id:
        return
    if all(each.assigned_to != agent.id for each in await session.sorties(mission)):
        raise InvalidState(
            f"{mission.id} ({_goal(mission, agent)}) is not yours to end: no sortie is yours.",
            hint="Start a sortie of the mission, or leave it to the mission's agents.",
        )


class NoteArguments(Arguments, frozen=True, kw_only=True):
    """What an agent keeps for its mission, or declares for itself."""

    kind: NoteKind | None = None
    text: NoteText | None = None
    because: NoteText | None = None
    path: Path | None = None
    withdraw: Annotated[NoteId, Meta(description="id of your note that holds no longer")] | None = (
        None
    )
    last_action: Text | None = None
    next_steps: Lines | None = None
    blockers: Lines | None = None


@tool(
    "Note for all agents: kind, text. For yourself: the last three; each replaces its old value.",
    repeats=True,
)
async def note(session: Session, asked: NoteArguments) -> str:
    """Keep a lasting note, withdraw one, or keep what the agent declares about itself."""
    given = (asked.last_action, asked.next_steps, asked.blockers)
    lasting = (asked.kind, asked.text, asked.withdraw)
    if (*given, *lasting) == (None,) * 6:
        raise InvalidParams("The note is empty.", hint="Give kind and text, or another field.")
    _refuse_half(asked)
    agent = await session.me()
    lines: list[str] = []
    if asked.kind is not None:
        lines.append(await _noted(session, agent, asked, asked.kind))
    if asked.withdraw is not None:
        gone = await session.ask(NoteWithdraw(asked.withdraw, asked.because or "", agent.id))
        lines.append(f"Withdrawn: {gone.id}, {formatting.cut(gone.text)}")
    if given != (None, None, None):
        lines += _declared(agent.id, (await session.ask(AgentNote(agent.id, *given))).note)
    return formatting.listed(lines)


def _refuse_half(asked: NoteArguments) -> None:
    """Raise InvalidParams for a lasting note without its kind, text or reason."""
    kinds = ", ".join(get_args(NoteKind))
    if asked.kind is None and asked.text is not None:
        raise InvalidParams("kind is missing.", hint=f"It is one of {kinds}.")
    if asked.kind is not None and asked.text is None:
        raise InvalidParams("text is missing.", hint="Say it in 1 to 2,000 characters.")
    if asked.withdraw is not None and not asked.because:
        raise InvalidParams("because is missing.", hint="Say why the note holds no longer.")


async def _noted(session: Session, agent: Agent, asked: NoteArguments, kind: NoteKind) -> str:
    mission = await session.my_mission(agent)
    path = absolute(session, asked.path) if asked.path is not None else None
    because = None if asked.withdraw is not None else asked.because
    kept = await session.ask(
        NoteAdd(
            kind,
            asked.text or "",
            because=because,
            path=path,
            mission_id=mission.id,
            agent_id=agent.id,
        )
    )
    return f"Noted {kept.id} in {mission.id} for all its agents: {formatting.cut(kept.text)}"


def _declared(agent_id: str, kept: WorkNote | None) -> list[str]:
    lines = [f"Noted for {agent_id}."]
    if kept is not None:
        lines += [f"Last action: {formatting.cut(kept.last_action)}"] * bool(kept.last_action)
        lines += [f"Next: {formatting.cut(each)}" for each in kept.next_steps]
        lines += [f"Blocker: {formatting.cut(each)}" for each in kept.blockers]
    return lines


class CheckpointArguments(Arguments, frozen=True, kw_only=True):
    """The reason for a checkpoint."""

    reason: Text | None = None


@tool("Save the state of your mission.")
async def checkpoint(session: Session, asked: CheckpointArguments) -> str:
    """Take a checkpoint of the mission."""
    agent = await session.me()
    mission = await session.my_mission(agent)
    made = await session.ask(
        CheckpointCreate(mission_id=mission.id, trigger_details=asked.reason, created_by=agent.id),
        once=True,
    )
    return f"Checkpoint {made.id} of {mission.id} at {mission.progress_percent}%."


@tool(
    "Read your last action, next steps, locks and mail. Use it after you lost context.",
    reads=True,
)
async def briefing(session: Session, _asked: NoArguments) -> str:
    """Return this agent's briefing, or its mission's if the agent is unknown; change nothing."""
    agent = await session.known()
    mission = await session.my_mission(agent)
    context = await session.ask(
        RecoveryContextGet(
            mission_id=mission.id,
            agent_id=agent.id if agent else None,
            max_chars=BRIEFING_CHARS,
        )
    )
    return context.prompt


# Agent CLIs give up on a tool after a minute.
LONGEST_WAIT_S = 50
DEFAULT_LEASE_S = 600
MESSAGES = 20
HITS = 20

Lease = Annotated[
    int, Meta(ge=1, le=LONGEST_LEASE_MS // 1_000, description=f"default {DEFAULT_LEASE_S}")
]
Wait = Annotated[int, Meta(ge=0, le=LONGEST_WAIT_S, description="longest wait for its holder")]


class LockArguments(Arguments, frozen=True, kw_only=True):
    """A file to hold, a directory, or the files of a pattern."""

    file: Annotated[Path, Meta(description="a file, a directory (src/) or a pattern (src/**/*.py)")]
    shared: bool = False
    purpose: Purpose = "edit"
    lease_s: Lease | None = None
    wait_s: Wait = 0


@tool(
    "Lock a file before you edit it, to keep other agents away. Call again to renew.",
    repeats=True,
)
async def lock(session: Session, asked: LockArguments) -> str:
    """Take a lock, or renew the agent's own."""
    agent = await session.me()
    held = await session.ask(
        LockAcquire(
            agent.id,
            **lock_target(asked.file, session.cwd),
            mode="shared" if asked.shared else "exclusive",
            cwd=session.cwd,
            purpose=asked.purpose,
            timeout_ms=None if asked.lease_s is None else asked.lease_s * 1_000,
            wait_ms=asked.wait_s * 1_000,
        )
    )
    return (
        f"You hold {formatting.path(asked.file)} {until(held.expires_at)},"
        f" fencing token {held.fencing_token}."
        " Your activity renews it. Call unlock when you are done."
    )


class UnlockArguments(Arguments, frozen=True, kw_only=True):
    """The lock to release."""

    file: Path | None = None


@tool("Release your lock on a file; without file, all your locks.", repeats=True)
async def unlock(session: Session, asked: UnlockArguments) -> str:
    """Release a lock, or all of them."""
    agent = await session.me()
    page = await session.ask(LockList(held_by=agent.id, cwd=session.cwd))
    mine = page.locks
    if asked.file is not None and not (mine := [each for each in mine if each.id == asked.file]):
        # The daemon resolves the file: a name in the list may mean a file of another repository.
        wanted = _of_target(session, asked.file)
        page = await session.ask(LockList(held_by=agent.id, cwd=session.cwd, **wanted))
        mine = page.locks
    for each in mine:
        await session.ask(LockRelease(each.id, agent.id))
    if not mine:
        return f"You held no lock{f' on {asked.file}' if asked.file else ''}."
    names = ", ".join(formatting.path(page.paths[each.id]) for each in mine)
    return f"Released: {formatting.cut(names, 2_000)}."


def _of_target(session: Session, named: str) -> dict[str, Any]:
    """Return what selects the locks on a file, a directory or a pattern."""
    target = lock_target(named, session.cwd)
    return {"file": absolute(session, named)} if "file" in target else target


class LocksArguments(Arguments, frozen=True, kw_only=True):
    """The file to ask about."""

    file: Path | None = None


@tool("Show the holder of a file; without file, all locks of this repository.", reads=True)
async def locks(session: Session, asked: LocksArguments) -> str:
    """Return the holder of a file, or all locks of this repository."""
    agent = await session.known()
    page: LockPage | Validity
    if asked.file is None:
        page = await session.ask(LockList(cwd=session.cwd, here=True))
    elif "pattern" in (wanted := _of_target(session, asked.file)):
        page = await session.ask(LockList(cwd=session.cwd, **wanted))
    else:
        page = await session.ask(LockCheck(absolute(session, asked.file), cwd=session.cwd))
    me = agent.id if agent else None
    if not page.locks:
        return f"Nobody holds {asked.file}." if asked.file else "Nobody holds a lock here."
    root = repository_root(session.real_cwd)
    below = [] if root == session.real_cwd else [f"Paths are from {formatting.cut(root)}."]
    lines = (formatting.lock_line(each, page.paths[each.id], me) for each in page.locks)
    return formatting.listed([*below, *lines])


class SendArguments(Arguments, frozen=True, kw_only=True):
    """A message to write."""

    to: Recipients
    subject: Title
    body: Text | None = None
    thread_id: ThreadId | None = None


@tool("Send a message to other agents.")
async def send(session: Session, asked: SendArguments) -> str:
    """Send a message."""
    agent = await session.me()
    mission = await session.mission(agent)
    # Ask before sending: after a later failure, the agent would send the message again.
    known = {each.id for each in (await session.ask(AgentList())).agents}
    sent = await session.ask(
        MessageSend(
            agent.id,
            asked.to,
            asked.subject,
            body=asked.body,
            mission_id=mission.id if mission else None,
            thread_id=asked.thread_id,
        ),
        once=True,
    )
    unknown = ", ".join(each for each in sent.to if each not in known)
    waits = f" {unknown} is not registered yet: it waits; agents has the names." if unknown else ""
    return f"Sent {sent.id} to {', '.join(sent.to)}.{waits} Answers arrive in your inbox."


@tool("Read your messages that are not acked yet.", repeats=True)
async def inbox(session: Session, _asked: NoArguments) -> str:
    """Show the agent's mail, oldest first."""
    agent = await session.me()
    found = (await session.ask(MessageInbox(agent.id, limit=MESSAGES))).messages
    if not found:
        return "No mail."
    blocks = [f"{formatting.message_block(each, agent.id)}\n" for each in found]
    return f"{formatting.listed(blocks)}\nCall ack with the ids of those that you dealt with."


class AckArguments(Arguments, frozen=True, kw_only=True):
    """Messages that are dealt with."""

    message_ids: Annotated[list[MessageId], Meta(min_length=1, max_length=100)]


@tool("Acknowledge messages that you have dealt with.", repeats=True)
async def ack(session: Session, asked: AckArguments) -> str:
    """Acknowledge messages; a failure of one does not stop the others."""
    agent = await session.me()
    done: list[str] = []
    refused: list[FleetError] = []
    for message_id in asked.message_ids:
        try:
            done.append((await session.ask(MessageAck(message_id, agent.id))).id)
        except (InvalidState, NotFound) as error:
            refused.append(error)
    if not done:
        raise refused[0]
    lines = [f"Acknowledged: {', '.join(done)}."] + [each.message for each in refused]
    return formatting.listed(lines)


class HandoffArguments(Arguments, frozen=True, kw_only=True):
    """The agent CLI that is to continue the work."""

    to: Literal["claude", "codex", "gemini", "opencode", "copilot", "cursor"]


@tool(
    "Ask your user to hand your work to another agent CLI. It moves when they confirm.",
    repeats=True,
)
async def handoff(session: Session, asked: HandoffArguments) -> str:
    """Ask the user for a hand-off; no tool starts one."""
    agent = await session.me()
    await session.ask(HandoffAsk(agent.id, asked.to))
    return (
        "Your user is asked, and nothing has moved. They confirm with:"
        f" fleetctl handoff {agent.id} --to {asked.to}. End your turn, so that they can."
    )


@tool("List your running subagents and shells, and the agents that need a user.", reads=True)
async def attention(session: Session, _asked: NoArguments) -> str:
    """Return what runs for the calling agent, and which agents wait for a user."""
    agent = await session.known()
    me = agent.id if agent else None
    own = (await session.ask(AttentionList(agent_id=me))).agents if me else []
    waiting = (await session.ask(AttentionList(waiting=True))).agents
    lines = [line for each in own for line in formatting.running_lines(each)]
    lines = ["Running for you:", *lines] if lines else ["Nothing is known to run for you."]
    if not waiting:
        return formatting.listed([*lines, "No agent needs a user."])
    need_lines = (formatting.need_line(each, me) for each in waiting)
    return formatting.listed([*lines, "Need a user:", *need_lines])


@tool("List the files that several agents changed within the last hour.", reads=True)
async def conflicts(session: Session, _asked: NoArguments) -> str:
    """Return the files that several agents changed, the agent's own files first."""
    agent = await session.known()
    me = agent.id if agent else None
    found = await session.ask(AttentionConflicts())
    if not found.conflicts:
        return "No two agents changed the same file within the last hour."
    mine = (await session.ask(AttentionConflicts(agent_id=me))).conflicts if me else []
    ordered = [*mine, *(each for each in found.conflicts if each not in mine)]
    lines = [formatting.conflict_line(each, me) for each in ordered]
    return formatting.listed([*lines, *([f"… {found.more} more"] if found.more else [])])


class SearchArguments(Arguments, frozen=True, kw_only=True):
    """What to find."""

    query: Annotated[str, Meta(max_length=1_000)] = ""
    path: Path | None = None
    kind: SearchKind | None = None
    mission_id: MissionId | None = None


@tool(
    "Search what agents were asked, said, ran and noted. All words must match; path: part of one.",
    reads=True,
)
async def search(session: Session, asked: SearchArguments) -> str:
    """Search the log, mail and notes, newest first."""
    agent = await session.known()
    request = SearchQuery(
        asked.query, asked.mission_id, kind=asked.kind, path=asked.path, limit=HITS
    )
    page = await session.ask(request)
    me = agent.id if agent else None
    lines = [formatting.hit_line(each, me) for each in page.hits] or ["Nothing found."]
    if page.more:
        lines.append(f"… {page.more} more. Give more words, a kind or a path.")
    if page.indexing is not None:
        lines.append(f"Only the newest {page.indexing}% of the log is searchable yet.")
    return formatting.listed(lines)


@tool("List the agents on this machine and their work.", reads=True)
async def agents(session: Session, _asked: NoArguments) -> str:
    """Return the agents that are here."""
    agent = await session.known()
    found = (await session.ask(AgentList())).agents
    here = [each for each in found if each.status != "gone"]
    me = agent.id if agent else None
    return (
        formatting.listed(formatting.agent_line(each, me) for each in here) or "No agent is here."
    )
