"""Mail: order, delivered is not done, letters to nobody yet and to those who left."""

import pytest

from fleetd.protocol.errors import InvalidState, NotFound
from fleetd.protocol.requests.agent import AgentDeregister, AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointGet
from fleetd.protocol.requests.message import (
    MessageAck,
    MessageInbox,
    MessageList,
    MessageRequeue,
    MessageSend,
)
from tests.support.fleet import MINUTE, SECOND
from tests.support.statements import noted


async def inbox(fleet, agent, **more):
    return (await fleet.do(MessageInbox(agent, **more))).messages


def states(message):
    return {delivery.agent_id: delivery.status for delivery in message.deliveries}


async def test_letters_arrive_in_the_order_of_sending(fleet):
    mission = await fleet.mission(0)
    subjects = [f"Letter {n}" for n in range(20)]
    for number, subject in enumerate(subjects):
        sender = f"spec-{number % 3}"
        await fleet.write(mission, ["dispatch-1"], subject, sender=sender, priority="low")

    first = await inbox(fleet, "dispatch-1", limit=7)
    everything = await inbox(fleet, "dispatch-1")

    assert [letter.subject for letter in first] == subjects[:7]
    assert [letter.subject for letter in everything] == subjects


async def test_delivered_is_not_done(fleet):
    mission = await fleet.mission(0)
    sent = await fleet.write(mission, ["spec-1", "spec-2"], body="Please look")
    assert states(sent) == {"spec-1": "queued", "spec-2": "queued"}
    fleet.clock.pass_by(MINUTE)

    (read,) = await inbox(fleet, "spec-1")

    assert states(read) == {"spec-1": "delivered", "spec-2": "queued"}
    (delivery,) = [d for d in read.deliveries if d.agent_id == "spec-1"]
    assert (delivery.delivered_at, delivery.acked_at, delivery.attempts) == (
        fleet.clock.now,
        None,
        1,
    )
    # What was read and not dealt with is shown again: the reader may have forgotten it.
    (again,) = await inbox(fleet, "spec-1")
    assert again == read
    await fleet.do(MessageAck(sent.id, "spec-1"))
    assert await inbox(fleet, "spec-1") == []
    (old,) = await inbox(fleet, "spec-1", include_acked=True)
    assert states(old) == {"spec-1": "acked", "spec-2": "queued"}
    assert len(await fleet.events(mission, "message_delivered")) == 1


async def test_a_letter_is_acknowledged_once(fleet):
    mission = await fleet.mission(0)
    letter = await fleet.write(mission, ["spec-1"])
    await fleet.do(MessageAck(letter.id, "spec-1"))
    at = fleet.clock.now
    fleet.clock.pass_by(MINUTE)

    with pytest.raises(InvalidState) as refused:
        await fleet.do(MessageAck(letter.id, "spec-1"))

    told = f"Message {letter.id} was already acknowledged by spec-1 at {at}."
    assert refused.value.message == told
    assert refused.value.values["acked_by"] == "spec-1"
    assert len(await fleet.events(mission, "message_acked")) == 1


async def test_only_a_recipient_acknowledges(fleet):
    mission = await fleet.mission(0)
    letter = await fleet.write(mission, ["spec-1"])

    with pytest.raises(NotFound, match="was not sent to spec-2"):
        await fleet.do(MessageAck(letter.id, "spec-2"))
    with pytest.raises(NotFound, match="Message not found: msg-00000000"):
        await fleet.do(MessageAck("msg-00000000", "spec-1"))


async def test_a_recipient_named_twice_gets_one_letter(fleet):
    mission = await fleet.mission(0)
    await fleet.write(mission, ["spec-1", "spec-1"])

    (letter,) = await inbox(fleet, "spec-1")
    assert letter.to == ["spec-1"]


async def test_a_letter_to_one_who_left_is_refused_and_leaves_a_trace(fleet):
    mission = await fleet.mission(0)
    await fleet.agents(mission, "dispatch-1", "spec-1", "spec-2")
    await fleet.do(AgentDeregister("spec-1", "finished"))

    with pytest.raises(InvalidState, match="spec-1 has left the fleet") as refused:
        await fleet.do(MessageSend("dispatch-1", ["spec-2", "spec-1"], "Review"))

    assert refused.value.values["gone"] == ["spec-1"]
    assert await inbox(fleet, "spec-2") == []
    assert fleet.sql("SELECT * FROM messages") == []
    (event,) = await fleet.events(mission, "message_failed")
    assert event.data["error"] == "spec-1 has left"
    (checkpoint_id,) = await fleet.checkpoint_ids(mission, "error")
    checkpoint = await fleet.do(CheckpointGet(checkpoint_id))
    assert checkpoint.created_by == "dispatch-1"
    assert checkpoint.trigger_details.startswith("DeliveryFailure: message to spec-1")

    await fleet.do(AgentDeregister("spec-2", "finished"))
    with pytest.raises(InvalidState, match="spec-1, spec-2 have left the fleet"):
        await fleet.do(MessageSend("dispatch-1", ["spec-1", "spec-2"], "Review"))

    await fleet.do(AgentRegister("spec-1", "specialist", mission_id=mission.id))
    await fleet.do(MessageSend("dispatch-1", ["spec-1"], "Welcome back"))
    assert [letter.subject for letter in await inbox(fleet, "spec-1")] == ["Welcome back"]


async def test_requeueing_repeats_what_was_delivered_and_nothing_else(fleet):
    mission = await fleet.mission(0)
    letter = await fleet.write(mission, ["spec-1", "spec-2", "spec-3"])
    await inbox(fleet, "spec-1")
    await fleet.do(MessageAck(letter.id, "spec-2"))

    again = await fleet.do(MessageRequeue(letter.id))

    assert states(again) == {"spec-1": "queued", "spec-2": "acked", "spec-3": "queued"}
    (event,) = await fleet.events(mission, "message_requeued")
    assert event.data == {"message_id": letter.id, "to": ["spec-1"]}
    with pytest.raises(InvalidState, match="no delivery to queue again"):
        await fleet.do(MessageRequeue(letter.id, "spec-2"))
    (read,) = await inbox(fleet, "spec-1")
    assert [d.attempts for d in read.deliveries if d.agent_id == "spec-1"] == [2]


async def test_letters_are_listed_by_whether_somebody_still_waits(fleet):
    mission = await fleet.mission(0)
    waiting = await fleet.write(mission, ["spec-1"])
    read = await fleet.write(mission, ["spec-2"])
    await inbox(fleet, "spec-2")

    async def listed(pending):
        return [m.id for m in (await fleet.do(MessageList(mission.id, pending))).messages]

    assert await listed(True) == [waiting.id]
    assert await listed(False) == [read.id]
    assert await listed(None) == [waiting.id, read.id]


async def test_letters_are_listed_up_to_a_time(fleet):
    mission = await fleet.mission(0)
    first = await fleet.write(mission, ["spec-1"])
    fleet.clock.pass_by(SECOND)
    second = await fleet.write(mission, ["spec-1"])

    for letter, known in ((first, [first.id]), (second, [first.id, second.id])):
        page = await fleet.do(MessageList(mission.id, until_time=letter.sent_at))
        assert [each.id for each in page.messages] == known


async def test_mail_costs_few_statements(fleet, monkeypatch):
    mission = await fleet.mission(0)
    await fleet.agents(mission, "dispatch-1", "spec-1", "spec-2")
    statements = noted(monkeypatch)

    async def cost(request):
        statements.clear()
        return await fleet.do(request), len(statements)

    sent, most = await cost(MessageSend("dispatch-1", ["spec-1", "spec-2"], "Please look"))
    assert most <= 9
    for _ in range(20):
        await fleet.write(mission, ["spec-1"])
    read, most = await cost(MessageInbox("spec-1"))
    assert (len(read.messages), most <= 4) == (21, True)
    assert (await cost(MessageInbox("spec-1")))[1] <= 2
    assert (await cost(MessageInbox("spec-9")))[1] <= 1
    assert (await cost(MessageAck(sent.id, "spec-1")))[1] <= 8
    await fleet.do(MessageList())  # a store may run a rule twice until it knows its statements
    assert (await cost(MessageList()))[1] <= 2


async def test_what_is_answered_is_what_is_stored(fleet):
    mission = await fleet.mission(0)
    await fleet.agents(mission, "dispatch-1", "spec-1", "spec-2", "heir")

    async def stored():
        return (await fleet.do(MessageList())).messages

    named = {"body": "Look", "thread_id": "t-1", "priority": "high"}
    sent = await fleet.write(mission, ["spec-2", "spec-1", "never-seen"], **named)
    assert await stored() == [sent]
    free = await fleet.do(MessageSend("nobody", ["spec-1"], "Of no mission"))
    assert await stored() == [sent, free]
    assert free.mission_id is None
    fleet.clock.pass_by(MINUTE)
    assert await inbox(fleet, "spec-1") == await stored()
    told = (await fleet.events(kind="message_delivered"))[-1]
    assert (told.stream, told.data) == ("agent:spec-1", {"message_id": free.id})
    for _ in range(2):
        fleet.clock.pass_by(MINUTE)
        again = await fleet.do(MessageRequeue(sent.id, "spec-1"))
        assert (await stored())[0] == again
        assert states(again) == {"spec-2": "queued", "spec-1": "queued", "never-seen": "queued"}
        await inbox(fleet, "spec-1")
    for reader in ("spec-1", "spec-2"):
        fleet.clock.pass_by(MINUTE)
        assert (await fleet.do(MessageAck(sent.id[:-1], reader))) == (await stored())[0]
    attempts = {delivery.agent_id: delivery.attempts for delivery in (await stored())[0].deliveries}
    assert attempts == {"spec-2": 0, "spec-1": 3, "never-seen": 0}


async def test_an_inbox_is_noted_in_the_order_of_its_mail(fleet):
    one, other = await fleet.mission(0), await fleet.mission(0, title="Other")
    sent = [await fleet.write(each, ["spec-1"]) for each in (one, other, one, one, other)]

    assert await inbox(fleet, "spec-1", limit=4) == (await fleet.do(MessageList())).messages[:4]

    told = await fleet.events(kind="message_delivered")
    assert [event.data["message_id"] for event in told] == [letter.id for letter in sent[:4]]
    assert [event.mission_id for event in told] == [each.id for each in (one, other, one, one)]
