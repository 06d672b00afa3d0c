"""Two agents want the same thing at the same moment: one gets it, the other learns who has it."""

import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fleetctl.client import Fleet
from fleetd.protocol.errors import FleetError, InvalidState, LockConflict
from fleetd.protocol.request import Request
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointCreate
from fleetd.protocol.requests.event import EventAppend, EventList
from fleetd.protocol.requests.lock import LockAcquire, LockList, LockRelease
from fleetd.protocol.requests.message import MessageAck, MessageList, MessageSend
from fleetd.protocol.requests.mission import MissionCreate, MissionStart, NewSortie
from fleetd.protocol.requests.recovery import RecoveryRestore
from fleetd.protocol.requests.sortie import SortieComplete, SortieGet, SortieList, SortieStart

ROUNDS = 20
AGENTS = ("spec-1", "spec-2")


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Make calls from threads that start together; return their results, or their refusals."""
    barrier = threading.Barrier(len(calls))
    outcomes: list[Any] = [None] * len(calls)

    def run(index: int, call: Callable[[], Any]) -> None:
        barrier.wait(10)
        try:
            outcomes[index] = call()
        except FleetError as error:
            outcomes[index] = error

    threads = [threading.Thread(target=run, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert None not in outcomes
    return outcomes


def both(rivals: tuple[Fleet, Fleet], *requests: Request[Any]) -> list[Any]:
    """Let each rival send its request at the same moment."""
    pairs = zip(rivals, requests, strict=True)
    return at_once(*(partial(client.call, request) for client, request in pairs))


def winner_of(outcomes: list[Any]) -> tuple[str, FleetError]:
    """Return who won and what the other was told; there must be exactly one of each."""
    refused = [outcome for outcome in outcomes if isinstance(outcome, FleetError)]
    assert len(refused) == 1, outcomes
    return AGENTS[1 - outcomes.index(refused[0])], refused[0]


@pytest.fixture
def rivals(connect) -> tuple[Fleet, Fleet]:
    return connect(), connect()


@pytest.fixture
def operator(connect) -> Fleet:
    return connect()


@pytest.fixture
def mission(operator, home):
    """Return a mission with a sortie for every round."""
    new = [NewSortie(f"S{n}", files=[f"src/{n}.py"]) for n in range(ROUNDS)]
    made = operator.call(MissionCreate("Race", project_dir=str(home / "project"), sorties=new))
    for agent in AGENTS:
        operator.call(AgentRegister(agent, "specialist", mission_id=made.id))
    return operator.call(MissionStart(made.id))


def test_the_same_lock(rivals, operator, mission):
    winners = set()
    for number in range(ROUNDS):
        file = f"src/{number}.py"
        requests = [LockAcquire(agent, file, mission_id=mission.id) for agent in AGENTS]

        outcomes = both(rivals, *requests)

        winner, refusal = winner_of(outcomes)
        winners.add(winner)
        assert isinstance(refusal, LockConflict)
        assert refusal.message.startswith(f"{file} is locked by {winner} until ")
        assert refusal.values["existing_lock"]["held_by"] == winner
        (held,) = [lock for lock in operator.call(LockList()).locks if lock.file == file]
        assert held.held_by == winner
    tokens = [lock.fencing_token for lock in operator.call(LockList()).locks]
    assert len(set(tokens)) == ROUNDS


def test_the_same_lock_with_patience(rivals, operator, mission):
    """Both get it, one after the other, and never together."""
    log: list[tuple[str, str]] = []

    def work(client: Fleet, agent: str) -> None:
        for _ in range(ROUNDS):
            with_lock = client.call(
                LockAcquire(agent, "src/0.py", mission_id=mission.id, wait_ms=20_000)
            )
            log.append(("in", agent))
            log.append(("out", agent))
            client.call_raw("lock.release", {"lock_id": with_lock.id, "agent_id": agent})

    at_once(
        lambda: work(rivals[0], AGENTS[0]) or True,
        lambda: work(rivals[1], AGENTS[1]) or True,
    )

    assert len(log) == 4 * ROUNDS
    for entered, left in zip(log[::2], log[1::2], strict=True):
        assert (entered[0], left[0]) == ("in", "out")
        assert entered[1] == left[1]
    page = operator.call(EventList(mission.id, "lock_acquired", limit=1_000))
    tokens = [event.data["fencing_token"] for event in page.events]
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 2 * ROUNDS


def until_waiting(home: Path, number: int) -> None:
    """Return when so many clients wait for a lock."""
    deadline = time.monotonic() + 10
    with closing(sqlite3.connect(home / "data" / "squawk.db")) as connection:
        while connection.execute("SELECT count(*) FROM lock_waits").fetchone() != (number,):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_waiter_whose_connection_is_gone_is_passed_over(daemon, rivals, operator, mission, home):
    held = operator.call(LockAcquire("dispatch-1", "src/0.py", mission_id=mission.id))
    first, second = (
        LockAcquire(agent, "src/0.py", mission_id=mission.id, wait_ms=20_000) for agent in AGENTS
    )
    params = msgspec.json.encode(first)
    got: list[Any] = []
    with socket.socket(socket.AF_UNIX) as gone:
        gone.connect(str(daemon.socket))
        gone.sendall(b'{"jsonrpc":"2.0","id":1,"method":"lock.acquire","params":%b}\n' % params)
        until_waiting(home, 1)
        thread = threading.Thread(target=lambda: got.append(rivals[1].call(second)))
        thread.start()
        until_waiting(home, 2)
    until_waiting(home, 1)

    operator.call(LockRelease(held.id, "dispatch-1"))
    thread.join(10)

    (lock,) = got
    assert lock.held_by == AGENTS[1]
    assert operator.call(LockList()).locks == [lock]
    until_waiting(home, 0)


def test_the_same_sortie_is_completed_once(rivals, operator, mission):
    for sortie in operator.call(SortieList(mission.id)).sorties:
        requests = [SortieComplete(sortie.id, f"by {agent}", agent) for agent in AGENTS]

        outcomes = both(rivals, *requests)

        winner, refusal = winner_of(outcomes)
        assert isinstance(refusal, InvalidState)
        assert f"Sortie {sortie.id} was already completed by {winner} at " in refusal.message
        assert refusal.values["assigned_to"] == winner
        now = operator.call(SortieGet(sortie.id))
        assert (now.assigned_to, now.result) == (winner, f"by {winner}")
    done = operator.call(EventList(mission.id, "sortie_completed", limit=1_000)).events
    assert len(done) == ROUNDS


def test_the_same_sortie_is_started_by_one(rivals, operator, mission):
    for sortie in operator.call(SortieList(mission.id)).sorties:
        requests = [SortieStart(sortie.id, agent) for agent in AGENTS]

        outcomes = both(rivals, *requests)

        winner, refusal = winner_of(outcomes)
        assert f"is assigned to {winner}, not to" in refusal.message


def test_the_same_message_is_acknowledged_once(rivals, operator, mission):
    for _ in range(ROUNDS):
        letter = operator.call(
            MessageSend("dispatch-1", ["spec-1"], "Review", mission_id=mission.id)
        )
        request = MessageAck(letter.id, "spec-1")

        outcomes = both(rivals, request, request)

        _, refusal = winner_of(outcomes)
        assert isinstance(refusal, InvalidState)
        told = f"Message {letter.id} was already acknowledged by spec-1 at "
        assert refusal.message.startswith(told)
        assert refusal.values["acked_by"] == "spec-1"
    letters = operator.call(MessageList(mission.id)).messages
    assert [letter.deliveries[0].status for letter in letters] == ["acked"] * ROUNDS
    acks = operator.call(EventList(mission.id, "message_acked", limit=1_000)).events
    assert len(acks) == ROUNDS


def test_the_same_mission_is_recovered_by_both_and_one_is_told(rivals, operator, mission):
    for _ in range(ROUNDS):
        checkpoint = operator.call(CheckpointCreate(mission.id))
        operator.call(EventAppend("file_modified", mission.id, "spec-1", {"file": "a"}))
        operator.call(SortieStart(operator.call(SortieList(mission.id)).sorties[0].id, "spec-1"))
        requests = [
            RecoveryRestore(checkpoint.id, requested_by=agent, agent_id=agent) for agent in AGENTS
        ]

        outcomes = both(rivals, *requests)

        assert [outcome.success for outcome in outcomes] == [True, True]
        assert outcomes[0].restored == outcomes[1].restored
        told = [bool(outcome.warnings) for outcome in outcomes]
        assert sorted(told) == [False, True]
        first, second = outcomes[told.index(False)], outcomes[told.index(True)]
        winner = AGENTS[told.index(False)]
        (warning,) = second.warnings
        assert warning.startswith(f"Already recovered from {checkpoint.id} by {winner} at ")
        assert f"({first.recovery_id})" in warning
    recovered = operator.call(EventList(mission.id, "fleet_recovered", limit=1_000)).events
    assert len(recovered) == 2 * ROUNDS


def test_the_same_lost_agent_has_one_successor(rivals, operator, mission):
    sorties = operator.call(SortieList(mission.id)).sorties
    for number in range(ROUNDS):
        lost = f"lost-{number}"
        operator.call(AgentRegister(lost, "specialist", mission_id=mission.id))
        operator.call(SortieStart(sorties[number].id, lost))
        operator.call(LockAcquire(lost, f"src/{number}.py", mission_id=mission.id))
        checkpoint = operator.call(CheckpointCreate(mission.id))
        requests = [
            RecoveryRestore(checkpoint.id, agent_id=agent, take_over_from=lost, scope="agent")
            for agent in AGENTS
        ]

        outcomes = both(rivals, *requests)

        winner, refusal = winner_of(outcomes)
        assert refusal.message == f"The work of {lost} was already taken over by {winner}."
        assert refusal.values["succeeded_by"] == winner
        now = operator.call(SortieList(mission.id)).sorties[number]
        assert now.assigned_to == winner
        (held,) = [
            lock
            for lock in operator.call(LockList(mission.id)).locks
            if lock.file == f"src/{number}.py"
        ]
        assert held.held_by == winner


def test_one_idempotency_key_used_by_both_is_applied_once(rivals, operator, mission):
    for _ in range(ROUNDS):
        request = CheckpointCreate(mission.id, idempotency_key=os.urandom(8).hex())

        first, second = both(rivals, request, request)

        assert first.id == second.id
    made = operator.call(EventList(mission.id, "fleet_checkpointed", limit=1_000)).events
    assert len(made) == ROUNDS
