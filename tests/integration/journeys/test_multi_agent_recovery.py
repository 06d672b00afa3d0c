"""Five agents, two of which die: their work goes on while the others do not notice."""

import signal

import pytest

from fleetctl.client import sync as fleetctl_client
from fleetd.protocol.errors import InvalidState
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.lock import LockAcquire, LockCheck
from fleetd.protocol.requests.message import MessageInbox, MessageSend
from fleetd.protocol.requests.mission import MissionCreate, MissionStart, NewSortie
from fleetd.protocol.requests.sortie import SortieList, SortieProgress, SortieStart
from tests.support.fleet import place_of
from tests.support.processes import fleetctl

AGENTS = [f"spec-{n}" for n in range(1, 6)]


def done(*argv):
    result = fleetctl(*argv)
    assert result.status == 0, (argv, result)
    return result


class FiveAgents:
    """Five specialists, each with a process, a sortie, a lock and a letter."""

    def __init__(self, daemon, home, mortal):
        self.daemon = daemon
        self.processes = {agent: mortal() for agent in AGENTS}
        new = [NewSortie(f"S{n}", files=[f"src/{n}.py"]) for n in range(6)]
        with fleetctl_client.Fleet(daemon.socket) as client:
            made = client.call(
                MissionCreate("Fleet", project_dir=str(home / "project"), sorties=new)
            )
            self.mission = client.call(MissionStart(made.id)).id
            client.call(AgentRegister("dispatch-1", "dispatch", mission_id=self.mission))
            self.sorties = [s.id for s in client.call(SortieList(self.mission)).sorties]
            self.locks = {}
            for number, agent in enumerate(AGENTS):
                pid = self.processes[agent].pid
                client.call(AgentRegister(agent, "specialist", pid=pid, mission_id=self.mission))
                client.call(SortieStart(self.sorties[number], agent))
                client.call(SortieProgress(self.sorties[number], 50, f"Begun by {agent}"))
                lock = client.call(LockAcquire(agent, f"src/{number}.py", mission_id=self.mission))
                self.locks[agent] = lock
                letter = MessageSend("dispatch-1", [agent], f"For {agent}", mission_id=self.mission)
                client.call(letter)
        self.checkpoint = done("checkpoint", "--mission", self.mission).id("chk")

    def lose(self, agent):
        """End an agent's process the way a crash would."""
        self.processes[agent].send_signal(signal.SIGKILL)
        self.processes[agent].wait()

    def look(self, agents):
        """Return all that belongs to some agents, as plain data."""
        with fleetctl_client.Fleet(self.daemon.socket) as client:
            sorties = client.call_raw("sortie.list", {"mission_id": self.mission})["sorties"]
            locks = client.call_raw("lock.list", {"active": False})["locks"]
            letters = client.call_raw("message.list", {})["messages"]
            known = client.call_raw("agent.list", {})["agents"]
        return {
            "sorties": [s for s in sorties if s["assigned_to"] in agents],
            "locks": [lock for lock in locks if lock["held_by"] in agents],
            "letters": [m for m in letters if set(m["to"]) & set(agents)],
            "agents": [agent for agent in known if agent["id"] in agents],
        }


@pytest.fixture
def fleet(daemon, home, mortal):
    return FiveAgents(daemon, home, mortal)


def test_when_one_of_five_compacts_four_do_not_notice(fleet, daemon):
    others = AGENTS[1:]
    with fleetctl_client.Fleet(daemon.socket) as client:
        client.call(SortieProgress(fleet.sorties[0], 95, "Confused"))
    before = fleet.look(others)
    daemon.kill()
    daemon.start()

    resumed = done(
        "resume", "--checkpoint", fleet.checkpoint, "--agent", "spec-1", "--scope", "agent", "--yes"
    )

    assert fleet.look(others) == before
    (own,) = fleet.look(["spec-1"])["sorties"]
    assert (own["progress"], own["progress_notes"]) == (50, "Begun by spec-1")
    assert "- Sorties: 1\n- Locks: 1\n- Messages: 1\n" in resumed.out
    prompt = resumed.out.partition("--- Recovery Context ---\n")[2]
    assert "Begun by spec-1" in prompt
    for other in others:
        assert f"Begun by {other}" not in prompt
        assert f"For {other}" not in prompt


def test_two_lost_agents_have_two_successors(fleet, daemon):
    fleet.lose("spec-1")
    fleet.lose("spec-2")
    living = ["spec-3", "spec-4", "spec-5"]
    before = fleet.look(living)

    for lost, successor in (("spec-1", "spec-6"), ("spec-2", "spec-7")):
        taken = done(
            "resume",
            "--checkpoint",
            fleet.checkpoint,
            "--scope",
            "agent",
            "--agent",
            successor,
            "--take-over-from",
            lost,
            "--yes",
        )
        assert f"\n- You took over from {lost}\n" in taken.out
        assert f"Begun by {lost}" in taken.out
        daemon.kill()
        daemon.start()

    assert fleet.look(living) == before
    with fleetctl_client.Fleet(daemon.socket) as client:
        sorties = client.call(SortieList(fleet.mission)).sorties
        assert [s.assigned_to for s in sorties] == ["spec-6", "spec-7", *living, None]
        for lost, successor in (("spec-1", "spec-6"), ("spec-2", "spec-7")):
            old = fleet.locks[lost]
            check = LockCheck(place_of(old.normalized_path), old.fencing_token)
            assert not client.call(check).valid
            (held,) = client.call_raw("lock.list", {"held_by": successor})["locks"]
            assert held["normalized_path"] == old.normalized_path
            assert held["fencing_token"] > old.fencing_token
            (letter,) = client.call(MessageInbox(successor)).messages
            assert letter.subject == f"For {lost}"
    statuses = {agent["id"]: agent["status"] for agent in fleet.look(AGENTS)["agents"]}
    assert statuses == {
        "spec-1": "lost",
        "spec-2": "lost",
        "spec-3": "active",
        "spec-4": "active",
        "spec-5": "active",
    }


def test_a_living_agent_keeps_its_work(fleet, daemon):
    refused = fleetctl(
        "resume",
        "--checkpoint",
        fleet.checkpoint,
        "--agent",
        "spec-6",
        "--take-over-from",
        "spec-1",
        "--yes",
    )

    assert refused.status == 1
    pid = fleet.processes["spec-1"].pid
    assert f"Agent spec-1 is still running (process {pid})" in refused.err
    (own,) = fleet.look(["spec-1"])["sorties"]
    assert own["assigned_to"] == "spec-1"


def test_the_whole_fleet_comes_back_from_one_checkpoint(fleet, daemon):
    with fleetctl_client.Fleet(daemon.socket) as client:
        for number in range(5):
            client.call(SortieProgress(fleet.sorties[number], 99, "Lost in thought"))
        for agent in AGENTS:
            held = fleet.locks[agent].id
            client.call_raw("lock.release", {"lock_id": held, "agent_id": agent})
        thief = client.call(LockAcquire("stranger", "src/4.py", mission_id=fleet.mission))
    for agent in AGENTS:
        fleet.lose(agent)
    daemon.kill()
    daemon.start()

    resumed = fleetctl("resume", "--checkpoint", fleet.checkpoint, "--yes")

    # A recovery that left lock conflicts still took place.
    assert resumed.status == 0
    assert "- Sorties: 6\n- Locks: 4\n- Messages: 5\n" in resumed.out
    assert "Lock conflict: src/4.py held by stranger" in resumed.out
    state = fleet.look(AGENTS)
    assert [s["progress"] for s in state["sorties"]] == [50] * 5
    active = [lock for lock in state["locks"] if lock["status"] == "active"]
    assert sorted(lock["held_by"] for lock in active) == AGENTS[:4]
    assert {agent["status"] for agent in state["agents"]} == {"lost"}

    forced = done("resume", "--checkpoint", fleet.checkpoint, "--force-locks", "--yes")
    assert "Force-released lock: src/4.py (was held by stranger)" in forced.out
    with fleetctl_client.Fleet(daemon.socket) as client:
        assert not client.call(
            LockCheck(place_of(thief.normalized_path), thief.fencing_token)
        ).valid


def test_dispatch_dies_and_its_specialists_work_on(fleet, daemon, mortal):
    dispatch = mortal()
    with fleetctl_client.Fleet(daemon.socket) as client:
        register = AgentRegister(
            "dispatch-1", "dispatch", pid=dispatch.pid, mission_id=fleet.mission
        )
        client.call(register)
        dispatch.kill()
        dispatch.wait()
        for number in (0, 1):
            complete = {"sortie_id": fleet.sorties[number], "agent_id": AGENTS[number]}
            client.call_raw("sortie.complete", complete)

    resumed = done("resume", "--checkpoint", fleet.checkpoint, "--agent", "dispatch-1", "--yes")

    assert "**Progress**: 33% (2/6 sorties complete), 4 sorties restored" in resumed.out
    state = fleet.look(AGENTS)
    assert [s["status"] for s in state["sorties"]] == ["completed"] * 2 + ["in_progress"] * 3
    with (
        fleetctl_client.Fleet(daemon.socket) as client,
        pytest.raises(InvalidState, match="already completed"),
    ):
        client.call_raw("sortie.complete", {"sortie_id": fleet.sorties[0], "agent_id": "spec-1"})
