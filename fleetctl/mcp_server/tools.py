"""What a tool is, and all of them by name; must not know the Model Context Protocol."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from . import lock_and_mail_tools, mission_tools
from .schema import Arguments, taken
from .session import Desk

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
        mission_tools.WhichMission,
        mission_tools.mission,
        reads=True,
    ),
    Tool(
        "plan",
        "Add sorties to your mission. With goal: begin a mission where you have none.",
        mission_tools.Plan,
        mission_tools.plan,
    ),
    Tool(
        "sortie",
        "Say how a sortie stands. To start one makes it yours.",
        mission_tools.Standing,
        mission_tools.sortie,
        repeats=True,
    ),
    Tool(
        "finish",
        "End your mission for everybody. complete is refused while a sortie is open.",
        mission_tools.Ending,
        mission_tools.finish,
        destroys=True,
    ),
    Tool(
        "note",
        "Leave yourself a note for when your context is lost. A field replaces the one before.",
        mission_tools.Noting,
        mission_tools.note,
        repeats=True,
    ),
    Tool(
        "checkpoint",
        "Save how your mission stands now.",
        mission_tools.Saving,
        mission_tools.checkpoint,
    ),
    Tool(
        "briefing",
        "Read where you were, what is next, your locks and mail. Use it when you lost context.",
        Nothing,
        mission_tools.briefing,
        reads=True,
    ),
    Tool(
        "lock",
        "Hold a file before you edit it, so that other agents keep away. Again: renews.",
        lock_and_mail_tools.Locking,
        lock_and_mail_tools.lock,
        repeats=True,
    ),
    Tool(
        "unlock",
        "Give back your lock on a file; without file, all of yours.",
        lock_and_mail_tools.Unlocking,
        lock_and_mail_tools.unlock,
        repeats=True,
    ),
    Tool(
        "locks",
        "Who holds a file; without file, all locks of this repository.",
        lock_and_mail_tools.WhichLocks,
        lock_and_mail_tools.locks,
        reads=True,
    ),
    Tool("send", "Write to other agents.", lock_and_mail_tools.Letter, lock_and_mail_tools.send),
    Tool(
        "inbox",
        "Read your mail that is not acked yet.",
        Nothing,
        lock_and_mail_tools.inbox,
        repeats=True,
    ),
    Tool(
        "ack",
        "Say that letters are dealt with.",
        lock_and_mail_tools.Acking,
        lock_and_mail_tools.ack,
        repeats=True,
    ),
    Tool(
        "agents",
        "Who works on this machine now, and at what.",
        Nothing,
        lock_and_mail_tools.agents,
        reads=True,
    ),
)
TOOLS = {tool.name: tool for tool in _ALL}
