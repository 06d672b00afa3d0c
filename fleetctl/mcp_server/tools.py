"""What a tool is, and all of them by name; must not know the Model Context Protocol."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from . import sharing, work
from .arguments import Arguments, taken
from .desk import Desk

Act = Callable[[Desk, Any], Awaitable[str]]


class Tool(NamedTuple):
    """One tool, as its agent reads of it.

    ``repeats`` says that to call it again with the same arguments changes nothing more.
    """

    name: str
    description: str
    arguments: type[Arguments]
    act: Act
    reads: bool = False
    destroys: bool = False
    repeats: bool = False

    async def call(self, desk: Desk, given: dict[str, Any] | None) -> str:
        """Do what was asked and return what the agent reads of it; raises FleetError."""
        return await self.act(desk, taken(self.arguments, given))


class Nothing(Arguments, frozen=True, kw_only=True):
    """No arguments."""


_ALL = (
    Tool(
        "mission",
        "Your mission: goal, progress, sorties (its pieces of work) with ids and states.",
        work.WhichMission,
        work.mission,
        reads=True,
    ),
    Tool(
        "plan",
        "Add sorties to your mission. With goal: begin a mission where you have none.",
        work.Plan,
        work.plan,
    ),
    Tool(
        "sortie",
        "Say how a sortie stands. To start one makes it yours.",
        work.Standing,
        work.sortie,
        repeats=True,
    ),
    Tool(
        "finish",
        "End your mission for everybody. complete is refused while a sortie is open.",
        work.Ending,
        work.finish,
        destroys=True,
    ),
    Tool(
        "note",
        "Leave yourself a note for when your context is lost. A field replaces the one before.",
        work.Noting,
        work.note,
        repeats=True,
    ),
    Tool(
        "checkpoint",
        "Save how your mission stands now.",
        work.Saving,
        work.checkpoint,
    ),
    Tool(
        "briefing",
        "Read where you were, what is next, your locks and mail. Use it when you lost context.",
        Nothing,
        work.briefing,
        reads=True,
    ),
    Tool(
        "lock",
        "Hold a file before you edit it, so that other agents keep away. Again: renews.",
        sharing.Locking,
        sharing.lock,
        repeats=True,
    ),
    Tool(
        "unlock",
        "Give back your lock on a file; without file, all of yours.",
        sharing.Unlocking,
        sharing.unlock,
        repeats=True,
    ),
    Tool(
        "locks",
        "Who holds a file; without file, all locks of this repository.",
        sharing.WhichLocks,
        sharing.locks,
        reads=True,
    ),
    Tool("send", "Write to other agents.", sharing.Letter, sharing.send),
    Tool(
        "inbox",
        "Read your mail that is not acked yet.",
        Nothing,
        sharing.inbox,
        repeats=True,
    ),
    Tool("ack", "Say that letters are dealt with.", sharing.Acking, sharing.ack, repeats=True),
    Tool(
        "agents", "Who works on this machine now, and at what.", Nothing, sharing.agents, reads=True
    ),
)
TOOLS = {tool.name: tool for tool in _ALL}
