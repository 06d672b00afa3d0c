"""Notes: added once, pinned by a person, withdrawn with a reason, and never edited."""

from typing import Any

import pytest

from fleetd.protocol.errors import InvalidParams, InvalidState, LimitExceeded, NotFound
from fleetd.protocol.records import Note
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.mission import MissionCancel, MissionCreate, MissionStart
from fleetd.protocol.requests.note import NoteAdd, NoteList, NotePin, NoteWithdraw
from tests.support.fleet import Fleet

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


async def add(fleet: Fleet, mission_id: str, text: str, **more: Any) -> Note:
    given = {"kind": "decision", "mission_id": mission_id} | more
    return await fleet.do(NoteAdd(text=text, **given))


async def texts(fleet: Fleet, **asked: Any) -> list[str]:
    return [note.text for note in (await fleet.do(NoteList(**asked))).notes]


async def test_a_note_says_whose_word_it_is(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "alice")
    mine = await add(fleet, mission.id, " Use argon2 ", because="bcrypt cuts at 72 bytes")
    assert (mine.text, mine.because, mine.origin, mine.agent_id) == (
        *("Use argon2", "bcrypt cuts at 72 bytes", "person", None),
    )
    hers = await add(fleet, mission.id, "No bcrypt", kind="ruled-out", agent_id="alice")
    assert (hers.kind, hers.origin, hers.agent_id) == ("ruled-out", "agent", "alice")
    assert (await fleet.do(NoteList(mission.id))).notes == [mine, hers]
    assert await texts(fleet, newest=True) == ["No bcrypt", "Use argon2"]
    assert await texts(fleet, kind="ruled-out") == ["No bcrypt"]
    assert await texts(fleet, agent_id="alice") == ["No bcrypt"]
    assert await texts(fleet, after=mine.id) == ["No bcrypt"]
    assert await texts(fleet, limit=1, newest=True, after=hers.id) == ["Use argon2"]


async def test_it_goes_to_the_mission_of_the_place_or_of_its_author(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "alice")
    here = await fleet.do(NoteAdd("finding", "Tests need Redis", cwd=str(fleet.project)))
    hers = await fleet.do(NoteAdd("finding", "Redis is slow", agent_id="alice"))
    assert (here.mission_id, hers.mission_id) == (mission.id, mission.id)
    with pytest.raises(InvalidParams, match="names a mission"):
        await fleet.do(NoteAdd("finding", "Nowhere"))
    with pytest.raises(NotFound):
        await add(fleet, "msn-00000000", "Nowhere")


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("src/a.py", "src/a.py"),
        ("{project}/src/../src/a.py", "src/a.py"),
        ("{project}", "{project}"),
        ("/etc/hosts", "/etc/hosts"),
        ("../other/b.py", "{parent}/other/b.py"),
    ],
)
async def test_its_path_is_told_from_the_missions_directory(
    fleet: Fleet, path: str, kept: str
) -> None:
    mission = await fleet.mission()
    names = {"project": str(fleet.project), "parent": str(fleet.project.parent)}
    note = await add(
        fleet, mission.id, "Generated", path=path.format(**names), cwd=str(fleet.project)
    )
    assert note.path == kept.format(**names)


async def test_without_a_directory_a_path_is_the_whole_one(fleet: Fleet) -> None:
    mission = await fleet.do(MissionStart((await fleet.do(MissionCreate("Anywhere"))).id))
    for path in ("/etc/hosts", "src/a.py"):
        assert (await add(fleet, mission.id, path, path=path)).path == path


async def test_the_same_note_of_the_same_author_is_added_once(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "alice", "bob")
    first = await add(fleet, mission.id, "Use argon2", agent_id="alice")
    end = (await fleet.do(EventList())).position
    assert await add(fleet, mission.id, "Use argon2", agent_id="alice") == first
    assert (await fleet.do(EventList())).position == end
    assert (await add(fleet, mission.id, "Use argon2", agent_id="bob")).id != first.id
    await fleet.do(NoteWithdraw(first.id, "Too slow"))
    assert (await add(fleet, mission.id, "Use argon2", agent_id="alice")).id != first.id


@pytest.mark.parametrize("text", ["", " \n\t "])
async def test_an_empty_one_is_refused_with_the_limit(fleet: Fleet, text: str) -> None:
    mission = await fleet.mission()
    with pytest.raises(InvalidParams, match="text is empty; it takes 1 to 2,000 characters"):
        await add(fleet, mission.id, text)
    note = await add(fleet, mission.id, "Use argon2")
    with pytest.raises(InvalidParams, match="reason is empty; it takes 1 to 2,000 characters"):
        await fleet.do(NoteWithdraw(note.id, text))


async def test_an_ended_mission_takes_no_more(fleet: Fleet) -> None:
    mission = await fleet.mission()
    note = await add(fleet, mission.id, "Use argon2")
    await fleet.do(MissionCancel(mission.id, "Enough"))
    with pytest.raises(InvalidState, match="accepts no more notes"):
        await add(fleet, mission.id, "Use scrypt")
    assert (await fleet.do(NoteWithdraw(note.id, "Wrong"))).withdrawn_reason == "Wrong"


async def test_agents_can_add_so_many_and_a_person_more(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetd.domain.notes.notes.STANDING", 3)
    mission = await fleet.mission()
    await fleet.agents(mission, "alice")
    notes = [await add(fleet, mission.id, f"N{n}", agent_id="alice") for n in range(3)]
    with pytest.raises(LimitExceeded, match="has 3 notes"):
        await add(fleet, mission.id, "One more", agent_id="alice")
    await add(fleet, mission.id, "A person's")
    for note in notes[:2]:
        await fleet.do(NoteWithdraw(note.id, "Old", agent_id="alice"))
    await add(fleet, mission.id, "One more", agent_id="alice")


async def test_a_withdrawn_one_stays_with_its_reason(fleet: Fleet) -> None:
    mission = await fleet.mission()
    note = await add(fleet, mission.id, "Use argon2")
    withdrawn = await fleet.do(NoteWithdraw(note.id[:8], "Too slow on the phone"))
    assert withdrawn.text == note.text
    assert (withdrawn.withdrawn_at, withdrawn.withdrawn_by, withdrawn.withdrawn_reason) == (
        *(fleet.clock.now, None, "Too slow on the phone"),
    )
    assert await texts(fleet) == []
    assert (await fleet.do(NoteList(withdrawn=True))).notes == [withdrawn]
    with pytest.raises(InvalidState, match=r"was withdrawn at .*: Too slow on the phone"):
        await fleet.do(NoteWithdraw(note.id, "Again"))
    with pytest.raises(InvalidState, match="was withdrawn"):
        await fleet.do(NotePin(note.id))


async def test_an_agent_withdraws_what_is_its_own(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "alice", "bob")
    hers = await add(fleet, mission.id, "Use argon2", agent_id="alice")
    mine = await add(fleet, mission.id, "No new dependency", kind="constraint")
    pinned = await add(fleet, mission.id, "Never push", kind="constraint", agent_id="bob")
    await fleet.do(NotePin(pinned.id))
    for note, why in ((hers, "alice's"), (mine, "a person's"), (pinned, "pinned by a person")):
        with pytest.raises(InvalidState, match=f"is {why}; bob cannot withdraw it"):
            await fleet.do(NoteWithdraw(note.id, "I think not", agent_id="bob"))
    gone = await fleet.do(NoteWithdraw(hers.id, "Too slow", agent_id="alice"))
    assert gone.withdrawn_by == "alice"
    for note in (mine, pinned):
        await fleet.do(NoteWithdraw(note.id, "Not so"))


async def test_only_a_person_pins(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "alice")
    note = await add(fleet, mission.id, "Use argon2", agent_id="alice")
    with pytest.raises(InvalidState, match="Only a person can pin a note; alice is an agent"):
        await fleet.do(NotePin(note.id, agent_id="alice"))
    assert (await fleet.do(NotePin(note.id))).pinned_at == fleet.clock.now
    end = (await fleet.do(EventList())).position
    assert (await fleet.do(NotePin(note.id))).pinned_at == fleet.clock.now
    assert (await fleet.do(EventList())).position == end
    assert (await fleet.do(NotePin(note.id, pinned=False))).pinned_at is None


async def test_whoever_runs_in_an_agents_process_is_that_agent(fleet: Fleet) -> None:
    """A command in an agent's shell does not have to say whose it is."""
    from fleetd.engine.services.agents import facts_of

    facts = facts_of(fleet._caller)
    assert facts.agent_pid is not None
    mission = await fleet.mission()
    await fleet.do(AgentRegister("alice", "specialist", mission_id=mission.id, pid=facts.agent_pid))
    note = await add(fleet, mission.id, "Use argon2")
    assert (note.origin, note.agent_id) == ("agent", "alice")
    with pytest.raises(InvalidState, match="Only a person"):
        await fleet.do(NotePin(note.id))


async def test_each_change_is_told_and_only_an_agents_is_activity(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "alice")
    note = await add(fleet, mission.id, "Use argon2", agent_id="alice")
    before = (await fleet.again(mission)).last_activity_at
    fleet.clock.pass_by(60_000)
    await fleet.do(NotePin(note.id))
    await fleet.do(NotePin(note.id, pinned=False))
    mine = await add(fleet, mission.id, "No bcrypt")
    await fleet.do(NoteWithdraw(mine.id, "Said twice"))
    assert (await fleet.again(mission)).last_activity_at == before
    await fleet.do(NoteWithdraw(note.id, "Too slow", agent_id="alice"))
    assert (await fleet.again(mission)).last_activity_at == fleet.clock.now
    told = (await fleet.do(EventList(mission_id=mission.id))).events[-6:]
    assert [event.type for event in told] == [
        *("note_added", "note_pinned", "note_unpinned", "note_added"),
        *("note_withdrawn", "note_withdrawn"),
    ]
    assert told[0].data["text"] == "Use argon2"
    assert not any("text" in event.data for event in told if event.type != "note_added")
    assert told[-1].data["reason"] == "Too slow"


async def test_secrets_are_removed(fleet: Fleet) -> None:
    mission = await fleet.mission()
    note = await add(fleet, mission.id, f"The token is {SECRET}", because=f"token={SECRET}")
    gone = await fleet.do(NoteWithdraw(note.id, f"It was {SECRET}"))
    assert SECRET not in f"{note.text}{note.because}{gone.withdrawn_reason}"
    assert SECRET not in str(fleet.dump())
