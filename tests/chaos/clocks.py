"""Stepped clocks, suspended machines, restarts: one ``context_compacted`` per silence.

A round is a random history of an engine under virtual time, beside a model of a silence: for some
time the machine was awake, nothing was done, no agent was busy, and at least one was not waiting.
"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import trio
import trio.testing

from fleetd.domain.recovery.state import begin_episode
from fleetd.engine import repositories
from fleetd.engine.jobs import timers
from fleetd.host.clock import Uptime
from fleetd.protocol.requests.agent import AgentHeartbeat, AgentRegister
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.mission import MissionFail, MissionGet
from fleetd.protocol.requests.recovery import RecoveryRestore
from fleetd.protocol.requests.sortie import SortieProgress, SortieStart
from tests.chaos.campaign import Campaign, Run
from tests.chaos.ledger import quietly
from tests.chaos.view import check
from tests.support.fleet import HOUR, MINUTE, SECOND, Clock, Fleet, opened

LIMIT = 5 * MINUTE
LONGEST_CALL = 60 * MINUTE
SOON = SECOND
STEPS, LESS = 40, 25
BEAT_S = 150
TIMES = (20 * SECOND, MINUTE, 4 * MINUTE, LIMIT, LIMIT + 1, LIMIT + 2 * SECOND, 11 * MINUTE, HOUR)


def campaign(run: Run) -> None:
    """Run one history after the other."""
    for number in run.rounds():
        root = run.place / f"r{number}"
        root.mkdir()
        asks_no_git = mock.patch.object(repositories, "working_tree", _no_repository)
        with quietly(), asks_no_git, _planted(run.planted):
            history = _History(run, root)
            trio.run(history.live, clock=trio.testing.MockClock(autojump_threshold=0))


async def _no_repository(directory: str | None) -> None:
    """Do not run Git: virtual time would advance while a real process works."""


def _planted(defect: str | None) -> Any:
    if defect == "looks-late":
        sleep = timers.Pauses.sleep

        async def longer(self: timers.Pauses, seconds: float, *rest: Any) -> bool:
            return await sleep(self, seconds + 5, *rest)

        return mock.patch.object(timers.Pauses, "sleep", longer)
    return mock.patch.object(timers, "PAUSE_S", timers.PAUSE_S)


class WallClock(Clock):
    """A clock whose awake time follows the wall clock."""

    def uptime(self) -> Uptime:
        return Uptime(self(), self.boot_id)


@dataclass
class Watched:
    """A mission in the model; moments are on the awake clock, ``at`` is on the wall clock."""

    id: str
    agent: str
    sortie: str
    active: int
    at: int
    open: bool = True
    waiting: bool = False
    calls: dict[str, int] = field(default_factory=dict)
    noticed: bool = False
    silences: int = 0

    def due(self) -> int | None:
        """Return the moment when it becomes silent, None if it will not."""
        if not self.open or self.waiting or self.noticed:
            return None
        ends = [since + LONGEST_CALL for since in self.calls.values()]
        return max([self.active + LIMIT, *ends]) + 1


class _History:
    """The runs of one engine, and the model beside it."""

    def __init__(self, run: Run, root: Path) -> None:
        self._run, self._root, self._chance = run, root, run.chance
        self._clock = WallClock() if run.planted == "wall-clock" else Clock()
        self._missions: list[Watched] = []
        self._up_since = 0
        self._begun: list[tuple[str, int]] = []
        self._calls = 0

    async def live(self) -> None:
        """Take random steps, in several runs of the engine."""
        self._clock.follow_trio()
        steps = STEPS if self._run.judged and not self._run.planted else LESS
        while steps > 0:
            async with self._engine():
                for _ in range(self._chance.randint(4, 12)):
                    await self._step()
                    await self._compare()
                    steps -= 1
            await self._rest()
        self._run.add("silences", sum(mission.silences for mission in self._missions))

    @asynccontextmanager
    async def _engine(self) -> AsyncIterator[None]:
        async with opened(self._root, clock=self._clock) as self._fleet:
            if self._run.planted == "forgotten-over-a-restart":
                self._fleet.sql("DELETE FROM episodes")
                self._fleet.sql("UPDATE missions SET silent = 0")
            self._up_since = self._awake()
            write = self._fleet.engine.write

            async def noted(rule: Any, *args: Any, **named: Any) -> Any:
                result = await write(rule, *args, **named)
                if rule is begin_episode and result:
                    self._begun.append((args[0], self._awake()))
                return result

            setattr(self._fleet.engine, "write", noted)  # noqa: B010
            async with trio.open_nursery() as nursery:
                nursery.start_soon(timers.scan_liveness, self._fleet.engine)
                nursery.start_soon(self._beat, self._fleet)
                await trio.sleep(1.5)
                await self._compare()
                yield
                nursery.cancel_scope.cancel()

    async def _beat(self, fleet: Fleet) -> None:
        """Let every agent send heartbeats, which do not keep a mission active."""
        while True:
            for mission in self._missions:
                await fleet.do(AgentHeartbeat(mission.agent))
            await trio.sleep(BEAT_S)

    def _awake(self) -> int:
        """Return how long the machine was really awake, whatever clock the engine sees."""
        return Clock.uptime(self._clock).awake_ms

    async def _rest(self) -> None:
        """Leave the engine closed for a while; sometimes reboot the machine."""
        if self._chance.random() < 0.7:
            await trio.sleep(self._chance.choice(TIMES) / 1000)
            return
        clock = self._clock
        passed = clock._passed()
        clock.pass_by(passed)
        clock.follow_trio()
        clock.reboot(self._chance.choice(TIMES))
        for mission in self._missions:  # only timestamps remain to count from
            mission.active = min(-max(clock() - mission.at, 0), 0)
            mission.calls.clear()

    # Steps

    async def _step(self) -> None:
        steps = [self._pass_time] * 6 + [self._work] * 3 + [self._call] * 2 + [self._wait] * 2
        steps += [self._set_clock, self._sleep] * 2 + [self._begin, self._end, self._recover]
        await self._chance.choice(steps if self._missions else [self._begin])()

    def _any(self, **fields: Any) -> Watched | None:
        found = [
            mission
            for mission in self._missions
            if mission.open and all(getattr(mission, name) == v for name, v in fields.items())
        ]
        return self._chance.choice(found) if found else None

    def _active(self, mission: Watched) -> None:
        mission.active, mission.at, mission.noticed = self._awake(), self._clock(), False

    async def _pass_time(self) -> None:
        await trio.sleep(self._chance.choice(TIMES) / 1000)

    async def _set_clock(self) -> None:
        self._clock.step(self._chance.choice((-HOUR, -MINUTE, MINUTE, HOUR)))

    async def _sleep(self) -> None:
        self._clock.suspend(self._chance.choice((MINUTE, LIMIT + SECOND, 3 * HOUR)))

    async def _begin(self) -> None:
        if sum(mission.open for mission in self._missions) >= 3:
            return
        made = await self._fleet.mission(2)
        agent, (sortie, _) = f"agent-{len(self._missions)}", await self._fleet.sorties(made)
        await self._fleet.do(AgentRegister(agent, "specialist", mission_id=made.id))
        await self._fleet.do(SortieStart(sortie.id, agent))
        watched = Watched(made.id, agent, sortie.id, self._awake(), self._clock())
        self._missions.append(watched)

    async def _end(self) -> None:
        if mission := self._any():
            await self._fleet.do(MissionFail(mission.id, "No"))
            mission.open = False

    async def _work(self) -> None:
        """Do something, or only read: reading is no activity."""
        if not (mission := self._any(waiting=False)):
            return
        if self._chance.random() < 0.5:
            await self._fleet.do(MissionGet(mission.id))
        else:
            await self._fleet.do(SortieProgress(mission.sortie, 50, "Working"))
            self._active(mission)

    async def _call(self) -> None:
        """Begin a tool call or end one."""
        if not (mission := self._any(waiting=False)):
            return
        if mission.calls and self._chance.random() < 0.5:
            name, _ = mission.calls.popitem()
            await self._tell(mission, "tool_finished", name)
        else:
            self._calls += 1
            await self._tell(mission, "tool_started", f"call-{self._calls}")
            mission.calls[f"call-{self._calls}"] = self._awake()
        self._active(mission)

    async def _wait(self) -> None:
        """Wait for the user, or continue with the user's answer."""
        if mission := self._any():
            mission.waiting = not mission.waiting
            mission.calls.clear()
            await self._tell(mission, "agent_paused" if mission.waiting else "prompt_submitted")
            self._active(mission)

    async def _tell(self, mission: Watched, kind: str, call: str | None = None) -> None:
        data = {} if call is None else {"call_id": call}
        await self._fleet.do(EventAppend(kind, mission.id, mission.agent, data))

    async def _recover(self) -> None:
        """Recover a mission with a noticed silence; that is no activity either."""
        if mission := self._any(noticed=True):
            await self._fleet.do(RecoveryRestore(mission_id=mission.id))

    # Checks

    async def _compare(self) -> None:
        """Compare the noticed silences and their times with the model."""
        await self._fleet.settle()
        now = self._awake()
        for name, when in self._begun:
            (mission,) = (each for each in self._missions if each.id == name)
            due = mission.due()
            check(due is not None, f"{name} was said to be silent at {when}: {mission}")
            first = max(due or 0, self._up_since)
            check(first <= when <= first + SOON, f"{name} was due at {due}, noticed at {when}")
            mission.noticed, mission.silences = True, mission.silences + 1
        self._begun.clear()
        for mission in self._missions:
            due = mission.due()
            late = due is not None and now > max(due, self._up_since) + SOON
            check(not late, f"nobody noticed at {now} that {mission.id} is silent since {due}")
        told = Counter(
            event.mission_id for event in await self._fleet.events(None, "context_compacted")
        )
        expected = {mission.id: mission.silences for mission in self._missions if mission.silences}
        check(told == expected, f"context_compacted was told {told}, expected: {expected}")


CAMPAIGN = Campaign(
    name="clocks",
    what="steps clocks, sends machines to sleep and restarts, beside a model of silence",
    unit="histories",
    run=campaign,
    short=6,
    long=2_000,
    planted=dict.fromkeys(("wall-clock", "forgotten-over-a-restart", "looks-late"), 15),
)
