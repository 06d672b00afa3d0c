"""A session: the server's daemon, its agent, and its working directory.

Each request has its own connection. So a server that is idle for hours uses up none of the
daemon's limited connections, and no connection goes stale. Sessions change under a server
(``/clear``, a resumed session, hooks that come later), so every call asks who the agent is.
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
# How long a repeated call counts as a retry of the lost one: an agent retries immediately, or asks
# its user first.
KEPT_S = 120.0
_What = tuple[str, bytes]


class DaemonClient:
    """Sends requests to the daemon across its restarts; only the client retries one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._was_there = False
        self._clock = clock
        # The keys of calls with an unknown outcome, each with the time until which it is kept.
        self._unknown: dict[_What, tuple[str, float]] = {}

    async def call(self, request: Request[R], *, once: bool = False) -> R:
        """Return the answer to a request; raises FleetError.

        If the daemon answered the last call, this waits for it: it may be restarting. A request
        to be done ``once`` reuses its key when it is repeated soon after the connection failed. So
        an agent that calls again gets the outcome of the first call.
        """
        what = (request.method, request.encoded())
        key = self._kept(what) if once else new_key()
        try:
            async with AsyncFleet(away_s=RESTART_S if self._was_there else 0) as fleet:
                answer = await fleet.call(keyed(request, key))
        except FleetError as error:
            self._was_there = not isinstance(error, Unavailable)
            # A cancelled call is not kept: its caller knows that it may be done, and repeating it
            # is a new request.
            if once and isinstance(error, ConnectionLost | TooSlow):
                self._unknown[what] = (key, self._clock() + KEPT_S)
            raise
        self._was_there = True
        return answer

    def _kept(self, what: _What) -> str:
        """Return the key of the same call if its outcome is unknown, else a new one."""
        now = self._clock()
        self._unknown = {each: kept for each, kept in self._unknown.items() if kept[1] > now}
        return self._unknown.pop(what, (new_key(), now))[0]


# The number of pending missions that are searched.
PENDING = 1_000


class Session:
    """One server's place in the fleet.

    ``wanted`` is the agent that a user named, None to find out.
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
        """Return the agent of this session, and register it if necessary."""
        agent = await self.known()
        if agent is not None:
            return agent
        join = AgentCurrent(self._wanted, True, harness_of(self.client_name), self.cwd)
        agent = (await self.ask(join)).agent
        if agent is None:
            raise InvalidState("fleetd did not return your agent.", hint="Call again.")
        if agent.pid is None:
            # Only its name distinguishes this agent from others.
            self._wanted = agent.id
        return agent

    async def known(self) -> Agent | None:
        """Return the agent of this session, None when it is not registered."""
        return (await self.ask(AgentCurrent(self._wanted))).agent

    async def mission(self, agent: Agent | None) -> Mission | None:
        """Return the open mission of an agent, else the one of this directory that it would join.

        Registering an agent follows the same rule, so that an agent works on the mission that it
        read about before.
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
        # A mission of another directory or of another session does not concern this agent.
        if found is None or is_automatic(found):
            return None
        return found if not found.project_dir or current.belongs else None

    async def _waiting(self) -> Mission | None:
        """Return the pending mission that was created for this directory."""
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
        """Return the agent's mission; raises NotFound without one."""
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
    """Return whether a mission was created automatically for a session."""
    return mission.origin == "session"


def _directory(uri: str) -> str | None:
    """Return the directory of a root, None if it is not one on this machine."""
    try:
        parts = urlparse(uri)
    except ValueError:
        return None
    path = unquote(parts.path)
    # isdir is also False for a name that no file can have.
    usable = parts.scheme == "file" and path.startswith("/") and os.path.isdir(path)  # noqa: PTH112
    return path if usable else None


def _within(directory: str, path: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def harness_of(client: str) -> str | None:
    """Return the harness of a client, by the name that the client reports."""
    name = client.lower()
    return next((each for each in HARNESSES if each in name), client[:200] or None)


def absolute(session: Session, file: str) -> str:
    """Return a file's path, relative to the server's directory; a lock key stays unchanged."""
    if file.startswith(LOCK_KEY_PREFIXES):
        return file
    return os.path.normpath(os.path.join(session.cwd, os.path.expanduser(file)))  # noqa: PTH111, PTH118
