"""A mission loses an agent, and its daemon, and goes on: real processes, socket and commands."""

import re
import threading
import time

import pytest

from fleetctl.client import Fleet
from fleetd.protocol.errors import FleetError
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointCreate
from fleetd.protocol.requests.lock import LockAcquire
from fleetd.protocol.requests.message import MessageSend
from fleetd.protocol.requests.mission import MissionCreate, MissionStart, NewSortie
from fleetd.protocol.requests.recovery import RecoveryRestore
from fleetd.protocol.requests.sortie import (
    SortieComplete,
    SortieList,
    SortieProgress,
    SortieStart,
)
from tests.support.processes import fleetctl

# What the daemon finishes after a restart, and what a kill may therefore add.
LATE = {"checkpoint_created"}


def done(*argv):
    result = fleetctl(*argv)
    assert result.status == 0, (argv, result)
    return result


def restart(daemon):
    """Kill the daemon without warning and start it again."""
    daemon.kill()
    daemon.start()


def everything(daemon):
    """Return all that clients can see, as plain data; the events apart."""
    with Fleet(daemon.socket) as client:
        events = client.call_raw("event.list", {"limit": 1_000})["events"]
        missions = client.call_raw("mission.list", {})["missions"]
        state = {
            "missions": missions,
            "agents": client.call_raw("agent.list", {}),
            "locks": client.call_raw("lock.list", {"active": False}),
            "messages": client.call_raw("message.list", {}),
            "checkpoints": client.call_raw("checkpoint.list", {"limit": 1_000}),
            "recoveries": client.call_raw("recovery.list", {}),
            "sorties": [client.call_raw("sortie.list", {"mission_id": m["id"]}) for m in missions],
        }
    return state, [event for event in events if event["type"] not in LATE]


def without_seq(events):
    return [{name: value for name, value in event.items() if name != "seq"} for event in events]


def wait_for_event(client, kind):
    """Return once there is an event that the daemon writes by itself."""
    deadline = time.monotonic() + 10
    while not client.call_raw("event.list", {"type": kind})["events"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for_files(client):
    """Return once every checkpoint has its file."""
    deadline = time.monotonic() + 10
    while client.call_raw("system.status", {})["backup_backlog"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def checkpoint_details(mission):
    listed = done("checkpoints", "list", "--mission", mission, "--limit", "50", "--json").json
    return [each["trigger_details"] for each in listed]


def assert_nothing_lost(daemon):
    """Kill the daemon; after its restart everything must be there, and files agree with rows."""
    state, events = everything(daemon)
    restart(daemon)
    state_after, events_after = everything(daemon)
    assert state_after == state
    assert without_seq(events_after) == without_seq(events)
    with Fleet(daemon.socket) as client:
        wait_for_files(client)
        verified = client.call_raw("checkpoint.verify", {})
    assert verified["ok"], verified
    assert all(finding["ok"] for finding in verified["findings"])


def test_recovery_from_the_loss_of_an_agent(daemon, mortal, home):
    created = done(
        "mission",
        "create",
        "Implement user authentication",
        *(text for n in range(4) for text in ("--sortie", f"S{n}")),
    )
    mission = created.id("msn")
    done("mission", "start", mission)
    sorties = [s["id"] for s in done("sortie", "list", "--mission", mission, "--json").json]
    worker = mortal()
    done("agent", "start", "dispatch-1", "--role", "dispatch", "--mission", mission)
    done("agent", "start", "spec-1", "--mission", mission, "--pid", str(worker.pid))
    done("sortie", "start", sorties[0], "--agent", "spec-1")
    done("sortie", "complete", sorties[0], "--agent", "spec-1")
    done("sortie", "start", sorties[1], "--agent", "spec-1")
    done("sortie", "progress", sorties[1], "--percent", "60", "--notes", "Half of auth.ts")
    done("lock", "acquire", "src/auth.ts", "--agent", "spec-1", "--mission", mission)
    done("mail", "send", "Review", "--from", "dispatch-1", "--to", "spec-1", "--mission", mission)
    checkpoint = done("checkpoint", "--note", "Before the storm").id("chk")
    done("sortie", "progress", sorties[1], "--percent", "90", "--notes", "Something wrong")
    assert_nothing_lost(daemon)

    worker.kill()
    worker.wait()
    with Fleet(daemon.socket) as client:
        wait_for_event(client, "agent_lost")
        wait_for_files(client)
    # The loss itself took a newer checkpoint, of what was wrong already.
    back = ("--checkpoint", checkpoint)
    before = everything(daemon)
    shown = done("resume", *back, "--dry-run")
    assert shown.out.startswith("[DRY RUN] Would restore:\n- Sorties: 4\n- Locks: 1\n- Messages: 1")
    assert everything(daemon) == before
    assert_nothing_lost(daemon)

    successor = ("--agent", "spec-2", "--take-over-from", "spec-1", "--scope", "mission")
    resumed = done("resume", *back, "-y", *successor)
    assert f"Checkpoint: {checkpoint} (25%)" in resumed.out
    assert "Recovery complete:\n- Sorties: 4\n- Locks: 1\n- Messages: 1\n" in resumed.out
    prompt = resumed.out.partition("--- Recovery Context ---\n")[2]
    assert prompt.startswith("## Recovery Context\n")
    assert "\n- You took over from spec-1\n" in prompt
    assert "**Progress**: 25% (1/4 sorties complete), 4 sorties restored\n" in prompt
    assert "Half of auth.ts" in prompt
    assert re.search(r"^- You hold src/auth\.ts for \d+m \d+s more$", prompt, re.M)
    assert re.search(r"^- Mail from dispatch-1, .*: “Review”$", prompt, re.M)
    # Neither a lock nor its token is anything that the agent could use.
    assert not re.search(r"\b(lck|chk|msg|rcv)-[0-9a-f]{8}\b|token", prompt)
    assert_nothing_lost(daemon)

    sortie = done("sortie", "show", sorties[1], "--json").json
    assert (sortie["assigned_to"], sortie["progress"]) == ("spec-2", 60)
    (lock,) = done("lock", "list", "--json").json
    assert lock["held_by"] == "spec-2"
    (letter,) = done("mail", "inbox", "spec-2", "--json").json
    assert letter["subject"] == "Review"
    for each in sorties[1:]:
        done("sortie", "start", each, "--agent", "spec-2")
        done("sortie", "complete", each, "--agent", "spec-2")
    done("mission", "complete", mission)
    told = done("mission", "show", mission, "--json").json
    assert (told["status"], told["progress_percent"]) == ("completed", 100)
    details = checkpoint_details(mission)
    assert details[0] == "Mission completed"
    for milestone in ("Reached 25% milestone", "Reached 50% milestone", "Reached 75% milestone"):
        assert details.count(milestone) == 1

    restart(daemon)
    with Fleet(daemon.socket) as client:
        wait_for_event(client, "checkpoints_pruned")
    # Of a finished mission the last one stays.
    assert checkpoint_details(mission) == ["Mission completed"]
    assert done("mission", "show", mission, "--json").json == told


def test_a_kill_after_every_step_loses_nothing(daemon, home):
    """Each step is acknowledged, then the daemon dies."""

    def call(request):
        with Fleet(daemon.socket) as client:
            answer = client.call(request)
        assert_nothing_lost(daemon)
        return answer

    new = [NewSortie(f"S{n}", files=[f"src/{n}.py"]) for n in range(4)]
    mission = call(MissionCreate("Killed", project_dir=str(home / "project"), sorties=new))
    call(MissionStart(mission.id))
    with Fleet(daemon.socket) as client:
        sorties = client.call(SortieList(mission.id)).sorties
    call(AgentRegister("spec-1", "specialist", mission_id=mission.id))
    call(SortieStart(sorties[0].id, "spec-1"))
    lock = call(LockAcquire("spec-1", "src/0.py", mission_id=mission.id))
    call(MessageSend("dispatch-1", ["spec-1"], "Review", mission_id=mission.id))
    call(SortieComplete(sorties[0].id))
    call(SortieProgress(sorties[1].id, 50, "Half"))
    checkpoint = call(CheckpointCreate(mission.id))
    call(SortieProgress(sorties[1].id, 90))
    result = call(RecoveryRestore(checkpoint.id, agent_id="spec-1"))

    assert result.restored.sorties == 4
    again = call(LockAcquire("spec-1", "src/0.py", mission_id=mission.id))
    assert again.fencing_token > lock.fencing_token


@pytest.mark.parametrize("pause_ms", [0, 1, 2, 4, 8])
def test_a_recovery_killed_half_way_ends_in_the_same_state(daemon, home, pause_ms):
    new = [NewSortie(f"S{n}") for n in range(300)]
    with Fleet(daemon.socket) as client:
        mission = client.call(MissionCreate("Killed", sorties=new))
        client.call(MissionStart(mission.id))
        sorties = client.call(SortieList(mission.id)).sorties
        checkpoint = client.call(CheckpointCreate(mission.id))
        for sortie in sorties[:50]:
            client.call(SortieStart(sortie.id, "spec-1"))

    def restore():
        try:
            with Fleet(daemon.socket) as client:
                client.call_raw("recovery.restore", {"checkpoint_id": checkpoint.id})
        except FleetError:
            return  # the daemon died under it: that is what this test is about

    thread = threading.Thread(target=restore)
    thread.start()
    time.sleep(pause_ms / 1000)
    daemon.kill()
    thread.join(30)
    daemon.start()

    with Fleet(daemon.socket) as client:
        halfway = [s.status for s in client.call(SortieList(mission.id)).sorties]
        client.call(RecoveryRestore(checkpoint.id))
        after = client.call(SortieList(mission.id)).sorties
        recoveries = client.call_raw("recovery.list", {})["recoveries"]
        recovered = client.call_raw("event.list", {"type": "fleet_recovered"})["events"]
    # All or nothing: no mixture of before and after is ever seen.
    assert halfway.count("in_progress") in (0, 50)
    assert [sortie.status for sortie in after] == ["pending"] * 300
    assert len(recovered) == len(recoveries) == (1 if halfway.count("in_progress") else 2)
    assert_nothing_lost(daemon)


def test_a_new_start_offers_the_recovery(daemon, home):
    mission = done("mission", "create", "Offered", "--sortie", "One").id("msn")
    done("mission", "start", mission)
    checkpoint = done("checkpoint", "--mission", mission).id("chk")
    restart(daemon)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLEET_ACTIVITY_THRESHOLD_MS", "1")
        started = done("agent", "start", "spec-7", "--mission", mission, "--auto-resume")

    assert "## Recovery Context\n" in started.out
    with Fleet(daemon.socket) as client:
        (recovery,) = client.call_raw("recovery.list", {})["recoveries"]
    assert (recovery["checkpoint_id"], recovery["agent_id"]) == (checkpoint, "spec-7")
