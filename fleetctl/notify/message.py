"""Message: what a person reads about one state of an agent, in words and as data."""

import time

import msgspec

from ..client.models import AgentState
from ..commands.attention import way_to
from ..output.console import clean
from ..output.text import cut
from ..output.times import ms_of
from ..output.views.agent_state import project_of, state_of

# No text of an agent is longer, whatever a daemon sends.
TEXT_CHARS = 200
NAME_CHARS = 100


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One state of an agent. No text has control characters; ``title`` and ``body`` are for people.

    ``id`` is the same each time this state is sent, so that a receiver recognizes it. ``open``
    is the command that opens the agent's session.
    """

    id: str
    title: str
    body: str
    agent: str
    harness: str | None
    project: str
    mission: str | None
    needs: str
    since: str
    text: str | None
    reset_at: str | None
    cwd: str | None
    open: str


def message_of(state: AgentState) -> Message:
    """Return the message for a state."""
    text = cut(clean(state.text), TEXT_CHARS) if state.text else None
    project = cut(clean(project_of(state)), NAME_CHARS)
    lines = [project, text or "", f"until {_moment(state.reset_at)}" if state.reset_at else ""]
    agent = clean(state.agent_id)
    return Message(
        id=f"{agent}/{state.needs}/{state.since}",
        title=f"{agent}: {state_of(state)}",
        body="\n".join(each for each in lines if each),
        agent=agent,
        harness=state.harness,
        project=project,
        mission=cut(clean(state.mission), NAME_CHARS) if state.mission else None,
        needs=state.needs,
        since=state.since,
        text=text,
        reset_at=clean(state.reset_at) if state.reset_at else None,
        cwd=clean(state.cwd) if state.cwd else None,
        open=clean(way_to(state)),
    )


def trial_message(now: str) -> Message:
    """Return a message with which a person tests a channel."""
    text = "This is a test of fleetctl notify."
    return Message(
        id=f"test/permission/{now}",
        title="test: needs permission",
        body=text,
        agent="test",
        harness=None,
        project="",
        mission=None,
        needs="permission",
        since=now,
        text=text,
        reset_at=None,
        cwd=None,
        open="fleetctl attention",
    )


def _moment(text: str) -> str:
    """Return the local day and time of a moment; text that is no time stays."""
    if (ms := ms_of(text)) is None:
        return cut(clean(text), NAME_CHARS)
    return time.strftime("%a %H:%M", time.localtime(ms / 1_000))
