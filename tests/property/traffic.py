"""What agents do to each other: coming and going, locks, mail, errors, cursors."""

from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import rule

from fleetd.engine.jobs.liveness import scan
from fleetd.protocol.requests.agent import AgentDeregister, AgentHeartbeat, AgentRegister
from fleetd.protocol.requests.checkpoint import ErrorReport
from fleetd.protocol.requests.event import CursorAdvance
from fleetd.protocol.requests.lock import (
    LockAcquire,
    LockCheck,
    LockForceRelease,
    LockRelease,
    LockRenew,
)
from fleetd.protocol.requests.message import (
    MessageAck,
    MessageInbox,
    MessageRequeue,
    MessageSend,
)
from fleetd.protocol.timestamps import to_ms
from tests.property.checker import Step
from tests.property.machine import AGENT, FleetStateMachine, present, some
from tests.property.model import OPEN, Lease
from tests.support.fleet import HOUR, MINUTE, SECOND

FILE = st.sampled_from(["/srv/a.py", "/srv/b.py"])
LENGTH = st.sampled_from([5 * SECOND, 10 * MINUTE, 2 * HOUR])


class TrafficRules(FleetStateMachine):
    """Agents, locks, mail, errors."""

    # Agents

    @rule(agent=AGENT, mission=st.none() | some("mission"))
    def register(self, agent: str, mission: str | None) -> None:
        role: Any = "dispatch" if agent.startswith("dispatch") else "specialist"
        silent, maybe = self.model.fall_silent(self.clock.awake_ms, self.opened)
        registered = self.ask(AgentRegister(agent, role, mission_id=mission))
        self.model.agents[agent] = "active"
        self.model.heirs.pop(agent, None)
        # Who took work over before it was there goes where that is.
        inherited = registered.agent.mission_id
        self.model.joined[agent] = mission or self.model.joined.get(agent) or inherited
        self.check(Step(silent=silent, maybe_silent=maybe))

    @rule()
    def notice(self) -> None:
        """The daemon looks for silences, as its timers would have it do."""
        silent, maybe = self.model.fall_silent(self.clock.awake_ms, self.opened)
        self.fleet.call(lambda fleet: scan(fleet.engine))
        self.check(Step(silent=silent, maybe_silent=maybe))
        assert all(self.model.newest(mission) for mission in silent)

    def heartbeat(self, agent: str) -> None:
        if self.ask(AgentHeartbeat(agent), None if agent in self.model.agents else "not_found"):
            self.model.heard(agent, self.clock.awake_ms)
        self.check()

    @rule(agent=AGENT)
    def deregister(self, agent: str) -> None:
        model = self.model
        before = model.agents.get(agent)
        self.ask(AgentDeregister(agent), None if before else "not_found")
        if before and before != "gone":
            model.agents[agent] = "gone"
            for path in [path for path, own in model.leases.items() if own.agent == agent]:
                del model.leases[path]
        self.check()

    # Locks

    @rule(file=FILE, agent=AGENT, mission=st.none() | some("mission"), length=LENGTH)
    def acquire(self, file: str, agent: str, mission: str | None, length: int) -> None:
        model, held = self.model, self.model.lease(file, self.now)
        refused = "lock_conflict" if held and held.agent != agent else None
        lock = self.ask(LockAcquire(agent, file, mission_id=mission, timeout_ms=length), refused)
        if lock:
            until, token = self.now + length, lock.fencing_token
            assert (lock.held_by, to_ms(lock.expires_at)) == (agent, until)
            assert lock.mission_id == mission or mission is None
            assert token == held.token if held else token > self.witness.token
            model.leases[file] = Lease(lock.id, agent, token, until, length, lock.mission_id)
            model.grants[lock.id] = file
        self.check()

    @present("lock")
    @rule(lock=some("lock"), agent=AGENT, length=st.none() | LENGTH)
    def renew(self, lock: str, agent: str, length: int | None) -> None:
        refused = self.model.refuses_holder(lock, agent, self.now)
        if self.ask(LockRenew(lock, agent, timeout_ms=length), refused):
            own = self.model.leases[self.model.grants[lock]]
            own.length = length or own.length
            own.until = self.now + own.length
        self.check()

    @present("lock")
    @rule(lock=some("lock"), agent=AGENT)
    def release(self, lock: str, agent: str) -> None:
        if self.ask(LockRelease(lock, agent), self.model.refuses_holder(lock, agent, self.now)):
            del self.model.leases[self.model.grants[lock]]
        self.check()

    @present("lock")
    @rule(lock=some("lock"), agent=AGENT)
    def force_release(self, lock: str, agent: str) -> None:
        path = self.model.path_of(lock)
        refused = None if path else "invalid_state"
        if self.ask(LockForceRelease(lock, agent, "Stuck"), refused) and path:
            del self.model.leases[path]
        self.check()

    def check_token(self, file: str, back: int) -> None:
        token = max(0, self.witness.token - back)
        lease = self.model.lease(file, self.now)
        guards = lease is not None and lease.token == token
        assert self.ask(LockCheck(file, token)).valid == guards

    # Mail

    @rule(
        sender=AGENT,
        to=st.lists(AGENT, min_size=1, max_size=2),
        mission=st.none() | some("mission"),
        times=st.integers(1, 2),
    )
    def send(self, sender: str, to: list[str], mission: str | None, times: int) -> None:
        model = self.model
        readers = list(dict.fromkeys(model.reader(agent) for agent in to))
        gone = [agent for agent in readers if model.agents.get(agent) == "gone"]
        belongs = mission or model.joined.get(sender)
        for _ in range(times):
            newest = self.newest_error(belongs)
            request = MessageSend(sender, to, "Review", mission_id=mission)
            sent = self.ask(request, "invalid_state" if gone else None)
            if sent:
                assert sent.mission_id == belongs
                model.letters[sent.id] = dict.fromkeys(readers, "queued")
                model.posted_in[sent.id] = belongs
                self.check()
            else:
                who = ", ".join(gone)
                what = f"DeliveryFailure: message to {who} could not be delivered: Review"
                self.error_taken(belongs, what, newest)

    @rule(agent=AGENT, limit=st.sampled_from([1, 50]))
    def inbox(self, agent: str, limit: int) -> None:
        page = self.ask(MessageInbox(agent, limit=limit))
        waiting = self.model.inbox(agent)[:limit]
        assert [letter.id for letter in page.messages] == waiting, "lost, or out of order"
        for letter in waiting:
            self.model.letters[letter][agent] = "delivered"
        self.check()

    @present("letter")
    @rule(letter=some("letter"), agent=AGENT)
    def ack(self, letter: str, agent: str) -> None:
        status = self.model.letters[letter].get(agent)
        refused = {None: "not_found", "acked": "invalid_state"}.get(status)
        if self.ask(MessageAck(letter, agent), refused):
            self.model.letters[letter][agent] = "acked"
        self.check()

    @present("letter")
    @rule(letter=some("letter"), agent=st.none() | AGENT)
    def requeue(self, letter: str, agent: str | None) -> None:
        to = self.model.letters[letter]
        again = [one for one in to if to[one] == "delivered" and agent in (None, one)]
        self.ask(MessageRequeue(letter, agent), None if again else "invalid_state")
        for one in again:
            to[one] = "queued"
            self.witness.read.discard((letter, one))
        self.check()

    # Errors

    def newest_error(self, mission: str | None) -> str | None:
        errors = [one.id for one in self.model.of(str(mission)) if one.trigger == "error"]
        return errors[0] if errors else None

    def error_taken(self, mission: str | None, details: str, newest: str | None) -> str | None:
        """Look whether an error took a checkpoint, or joined the one before; return which."""
        if mission is None or self.model.missions[mission] not in OPEN:
            self.check()
            return None
        self.settle_step()
        taken = [one for one in self.view.new if one.mission_id == mission]
        if taken:
            self.compare(Step([(mission, "error", details)]))
            return taken[0].id
        assert newest, "no checkpoint was taken of an error"
        before = self.model.checkpoints[newest]
        same = (before.status, before.sorties, before.locks, before.letters)
        assert before.details == details
        assert same == self.model.holds(mission, self.now), "a change was swallowed"
        self.compare(Step())
        return newest

    @rule(
        agent=AGENT,
        mission=st.none() | some("mission"),
        name=st.sampled_from(["ValueError", "OSError"]),
        times=st.integers(1, 3),
    )
    def report_error(self, agent: str, mission: str | None, name: str, times: int) -> None:
        belongs = mission or self.model.joined.get(agent)
        joined: set[str | None] = set()
        for _ in range(times):
            newest = self.newest_error(belongs)
            reply = self.ask(ErrorReport(agent, "exception", name, "no", mission))
            assert reply.checkpoint_id == self.error_taken(belongs, f"{name}: no", newest)
            joined.add(reply.checkpoint_id)
        assert len(joined) == 1, "a storm of one error made several checkpoints"

    # Cursors

    def advance(self, consumer: str, step: int) -> None:
        before, end = self.model.cursors.get(consumer, 0), self.witness.position
        position = max(0, before + step)
        refused = "invalid_state" if position < before else None
        refused = "invalid_params" if position > end else refused
        if self.ask(CursorAdvance(consumer, "fleet", position), refused):
            self.model.cursors[consumer] = position
        self.check()

    @rule(agent=AGENT, file=FILE, number=st.integers(-3, 3))
    def gather_facts(self, agent: str, file: str, number: int) -> None:
        self.heartbeat(agent)
        self.check_token(file, abs(number))
        self.advance(agent, number)
