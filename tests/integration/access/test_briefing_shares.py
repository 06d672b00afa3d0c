"""One agent cannot push out of a briefing what others need to be read, however much it writes."""

import pytest

from fleetd.domain.checkpoints.derived_context import OF_ONE
from fleetd.domain.recovery.prompt import MESSAGES, MESSAGES_OF_ONE
from fleetd.protocol.records import Mission
from fleetd.protocol.requests.agent import AgentNote
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.lock import LockAcquire
from fleetd.protocol.requests.mission import MissionCreate, MissionStart, NewSortie
from fleetd.protocol.requests.recovery import RecoveryContextGet
from fleetd.protocol.requests.sortie import SortieCreate
from tests.support.fleet import Fleet

RULE = "Never touch the production database."


async def drowned(fleet: Fleet, maker: str | None, reader: str = "alice") -> Mission:
    """Give the reader work, mail and a user, and let mallory write over all of it."""
    own = [NewSortie(f"Own piece {n}", assigned_to=reader) for n in range(3)]
    made = await fleet.do(MissionCreate("Add login", sorties=own))
    mission = await fleet.do(MissionStart(made.id))
    await fleet.agents(mission, "alice", "bob", "mallory", "dispatch-1")
    await fleet.do(LockAcquire(reader, "/p/own.py", mission_id=mission.id))
    await fleet.do(EventAppend("prompt_submitted", mission.id, reader, {"prompt": RULE}))
    await fleet.do(AgentNote(reader, blockers=["The reviewer is away"]))
    for n in range(150):
        await fleet.do(
            SortieCreate(
                mission.id, f"M{n} " + "m" * 400, "m" * 900, [f"m/{n}"], reader, agent_id=maker
            )
        )
    for _ in range(60):
        await fleet.write(mission, [reader], "M" * 300, body="m" * 2_000, sender="mallory")
    await fleet.write(mission, [reader], "Bob asks", body="What about it?", sender="bob")
    for n in range(20):
        told = {"prompt": f"Mallory's user {n} " + "m" * 3_000}
        await fleet.do(EventAppend("prompt_submitted", mission.id, "mallory", told))
    await fleet.do(AgentNote("mallory", "m" * 900, ["m" * 900] * 50, ["m" * 900] * 50))
    return mission


@pytest.mark.parametrize("budget", [9_500, 4_000])
@pytest.mark.parametrize("reader", ["alice", "dispatch-1"])
@pytest.mark.parametrize("maker", ["mallory", None])
async def test_sorties_and_mail_of_one_agent_push_out_nothing(
    fleet: Fleet, maker: str | None, reader: str, budget: int
) -> None:
    mission = await drowned(fleet, maker, reader)
    asked = RecoveryContextGet(mission.id, reader, max_chars=budget)
    prompt = (await fleet.do(asked)).prompt
    assert len(prompt) <= budget
    assert f"> {RULE}" in prompt
    assert "- The reviewer is away" in prompt
    assert "- Own piece 0 (to do)\n" in prompt
    assert "- You hold /p/own.py for 10m 0s more\n" in prompt
    letters = prompt.count("- Mail from ")
    assert f"\n- ({61 - letters} more: fleetctl mail inbox {reader})\n" in prompt
    assert prompt.count("- Mail from mallory") <= MESSAGES_OF_ONE
    assert "- Mail from bob, just now: “Bob asks”: “What about it?”\n" in prompt
    if maker:
        steps = (await fleet.do(asked)).recovery_context.next_steps
        assert sum(step.startswith("mallory: “M") for step in steps) == OF_ONE
        assert f"{150 - OF_ONE} more sorties that mallory made" in steps


@pytest.mark.parametrize("budget", [500, 600, 700, 800, 1_000, 2_000, 4_000, 9_500])
@pytest.mark.parametrize("reader", ["alice", "dispatch-1"])
async def test_the_users_newest_instruction_always_stays(
    fleet: Fleet, reader: str, budget: int
) -> None:
    mission = await drowned(fleet, "mallory", reader)
    asked = RecoveryContextGet(mission.id, reader, max_chars=budget)
    prompt = (await fleet.do(asked)).prompt
    assert len(prompt) <= budget
    assert f"\n- Your user, just now:\n  > {RULE}\n" in prompt
    if budget >= 1_000:
        assert f"\n### Task\n- Your user, just now:\n  > {RULE}\n" in prompt


async def test_what_anothers_user_said_says_to_whom(fleet: Fleet) -> None:
    mission = await drowned(fleet, "mallory", "dispatch-1")
    prompt = (await fleet.do(RecoveryContextGet(mission.id, "dispatch-1"))).prompt
    task, before = (
        prompt.partition(f"### {heading}\n")[2].partition("\n\n")[0]
        for heading in ("Task", "What Your User Said Before")
    )
    # Its own stays its task, though mallory's user said more since.
    assert task == f"- Your user, just now:\n  > {RULE}"
    told = before.count("- Your user, just now, to mallory:\n")
    assert told == before.count("Mallory's user") >= 1
    assert f"\n- ({4 - told} more: fleetctl events --mission {mission.id})" in before


async def test_of_many_senders_there_are_not_more_letters_than_can_be_read(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "alice")
    for n in range(30):
        await fleet.write(mission, ["alice"], f"Letter {n}", sender=f"agent-{n}")
    prompt = (await fleet.do(RecoveryContextGet(mission.id, "alice"))).prompt
    assert prompt.count("- Mail from agent-") == MESSAGES
    assert f"- ({30 - MESSAGES} more: fleetctl mail inbox" in prompt
