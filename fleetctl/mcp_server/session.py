"""A session: the server's daemon, the agent that it is, the directory that it works in.

Each request has a connection of its own: a server that rests for hours takes no place in the
daemon, which has only so many, and none of it goes stale. Sessions change under a server
(``/clear``, a resumed one, hooks that come later), so who the agent is is asked with every call.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import unquote, urlparse

from fleetd.protocol.errors import FleetError, InvalidState, NotFound, Unavailable
from fleetd.protocol.records import Agent, Mission, Sortie
from fleetd.protocol.request import Request
from fleetd.protocol.requests.agent import AgentCurrent
from fleetd.protocol.requests.mission import MissionCurrent, MissionGet, MissionList
from fleetd.protocol.requests.sortie import SortieList
from fleetd.protocol.requests.system import SystemStatus
from fleetd.protocol.types import OPEN_MISSION

from ..client import AsyncFleet, ConnectionLost, TooSlow
from ..client.retry import RESTART_S, keyed, new_key
from ..context import LOCK_KEY_PREFIXES
from ..integrations.registry import HARNESSES

R = TypeVar("R")
# How long the same call again means the one that was lost: an agent calls again at once or asks
# its user first.
KEPT_S = 120.0
_What = tuple[str, bytes]


class DaemonClient:
    """Carries requests to the daemon, over its restarts; only the client sends one again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._was_there = False
        self._clock = clock
        # The keys of calls that nobody knows the outcome of, each with the time it is kept until.
        self._unknown: dict[_What, tuple[str, float]] = {}

    async def call(self, request: Request[R], *, once: bool = False) -> R:
        """Return the answer to a request; raises FleetError.

        A daemon that was there a moment ago is waited for, since it may be starting again. What is
        to be done ``once`` has its key again when the same is asked soon after the connection
        failed: an agent that was told to call again is answered what came of the first call.
        """
        what = (request.method, request.encoded())
        key = self._kept(what) if once else new_key()
        try:
            async with AsyncFleet(away_s=RESTART_S if self._was_there else 0) as fleet:
                answer = await fleet.call(keyed(request, key))
        except FleetError as error:
            self._was_there = not isinstance(error, Unavailable)
            # Whoever cancels a call knows that it may be done; to ask again is a new wish then.
            if once and isinstance(error, ConnectionLost | TooSlow):
                self._unknown[what] = (key, self._clock() + KEPT_S)
            raise
        self._was_there = True
        return answer

    def _kept(self, what: _What) -> str:
        """Return the key of the same call when nobody knows what became of it, else a new one."""
        now = self._clock()
        self._unknown = {each: kept for each, kept in self._unknown.items() if kept[1] > now}
        return self._unknown.pop(what, (new_key(), now))[0]


# How many missions that nobody has started are looked at.
PENDING = 1_000


class Session:
    """One server's place in the fleet.

    ``wanted`` is the agent that a person said it is, None to find out.
    """

    def __init__(self, client: DaemonClient, wanted: str | None) -> None:
        self.ask = client.call
        self._wanted = wanted
        self.cwd = os.getcwd()  # noqa: PTH109 - as it is named, links and all
        self.client_name = ""

    def place(self, roots: Sequence[str]) -> None:
        """Work in the client's first directory, unless the server was started in one of them."""
        directories = [place for uri in roots if (place := _directory(uri))]
        here = self.real_cwd
        if directories and not any(_within(os.path.realpath(each), here) for each in directories):
            self.cwd = directories[0]

    @property
    def real_cwd(self) -> str:
        """Return the directory with its links resolved, as missions name theirs."""
        return os.path.realpath(self.cwd)

    async def me(self) -> Agent:
        """Return the agent that this is, registered now if nobody did that yet."""
        agent = await self.known()
        if agent is not None:
            return agent
        join = AgentCurrent(self._wanted, True, harness_of(self.client_name), self.cwd)
        agent = (await self.ask(join)).agent
        if agent is None:
            raise InvalidState("fleetd did not return your agent.", hint="Call again.")
        if agent.pid is None:
            # Nothing but its name tells this agent from others.
            self._wanted = agent.id
        return agent

    async def known(self) -> Agent | None:
        """Return the agent that this is, None when nobody has registered it."""
        return (await self.ask(AgentCurrent(self._wanted))).agent

    async def mission(self, agent: Agent | None) -> Mission | None:
        """Return the open mission of an agent, else the one of this directory that it would join.

        That is the rule by which an agent is registered, so that what it read of before is what it
        works on afterwards.
        """
        if agent is not None and agent.mission_id is not None:
            own = await self.ask(MissionGet(agent.mission_id))
            if own.status in OPEN_MISSION:
                return own
        return await self._current() or await self._waiting()

    async def _current(self) -> Mission | None:
        try:
            current = await self.ask(MissionCurrent(cwd=self.cwd))
        except InvalidState:  # several, and none of this directory
            return None
        found = current.mission
        # One that is somewhere else is nobody's business here, and neither is another session's.
        if found is None or is_automatic(found):
            return None
        return found if not found.project_dir or current.belongs else None

    async def _waiting(self) -> Mission | None:
        """Return the mission that somebody created for this directory and nobody has started."""
        known = (await self.ask(MissionList(status="pending", limit=PENDING))).missions
        here = [
            each
            for each in known
            if each.project_dir
            and _within(each.project_dir, self.real_cwd)
            and not is_automatic(each)
        ]
        if any(each.machine for each in here):  # the same path is another directory elsewhere
            machine = (await self.ask(SystemStatus())).machine
            here = [each for each in here if each.machine == machine]
        return max(here, key=lambda each: each.last_activity_at or each.created_at, default=None)

    async def my_mission(self, agent: Agent | None) -> Mission:
        """Return the mission that there has to be; raises NotFound."""
        mission = await self.mission(agent)
        if mission is None:
            raise NotFound(
                "You have no mission.",
                hint="Start one with plan and a goal, or join one with sortie start.",
            )
        return mission

    async def sorties(self, mission: Mission) -> list[Sortie]:
        """Return the sorties of a mission."""
        return (await self.ask(SortieList(mission.id))).sorties


def is_automatic(mission: Mission) -> bool:
    """Return whether a mission was made by itself for a session."""
    return mission.origin == "session"


def _directory(uri: str) -> str | None:
    """Return the directory that a root is, None for one that is none of this machine."""
    try:
        parts = urlparse(uri)
    except ValueError:
        return None
    path = unquote(parts.path)
    # Also False for what no file can be called.
    usable = parts.scheme == "file" and path.startswith("/") and os.path.isdir(path)  # noqa: PTH112
    return path if usable else None


def _within(directory: str, path: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def harness_of(client: str) -> str | None:
    """Return the harness that a client is, by the name that it gives itself."""
    name = client.lower()
    return next((each for each in HARNESSES if each in name), client[:200] or None)


def absolute(session: Session, file: str) -> str:
    """Return a file's path, against the directory of the server; the key of a lock as it is."""
    if file.startswith(LOCK_KEY_PREFIXES):
        return file
    return os.path.normpath(os.path.join(session.cwd, os.path.expanduser(file)))  # noqa: PTH111, PTH118
