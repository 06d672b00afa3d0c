"""What an agent asks for is done once, however often the connection breaks before the answer."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from fleetctl.client.retry import LOSSES
from fleetctl.mcp_server import tools
from fleetctl.mcp_server.session import KEPT_S, DaemonClient, Session
from fleetd.protocol.errors import Unavailable
from fleetd.protocol.requests.checkpoint import CheckpointList
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.message import MessageList
from fleetd.protocol.requests.mission import MissionList
from fleetd.protocol.requests.sortie import SortieList
from tests.support.processes import Daemon

ONE_TOO_MANY = LOSSES + 1
Lossy = Callable[..., AbstractAsyncContextManager[list[dict[str, Any]]]]


async def relayed(
    stream: trio.SocketStream,
    daemon: Path,
    heard: list[dict[str, Any]],
    lose: list[str],
    heed: Callable[[str], object],
) -> None:
    """Carry one connection's calls to the daemon; answers to what is in ``lose`` do not come."""
    async with stream, await trio.open_unix_socket(daemon) as behind:
        asked = b""
        while data := await stream.receive_some():
            asked += data
            while b"\n" in asked:
                line, _, asked = asked.partition(b"\n")
                heard.append(json.loads(line))
                heed(heard[-1]["method"])
                await behind.send_all(line + b"\n")
                answer = b""
                while not answer.endswith(b"\n"):
                    answer += await behind.receive_some()
                if heard[-1]["method"] in lose:
                    lose.remove(heard[-1]["method"])
                    return
                with contextlib.suppress(trio.BrokenResourceError):  # who asked has left
                    await stream.send_all(answer)


@pytest.fixture
def lossy(daemon: Daemon, home: Path, monkeypatch: pytest.MonkeyPatch) -> Lossy:
    """Return what puts a socket before the daemon's that loses answers, and lists the calls."""

    @asynccontextmanager
    async def put(
        *lose: str, heed: Callable[[str], object] = lambda method: None
    ) -> AsyncIterator[list[dict[str, Any]]]:
        path = home / "run" / "lossy.sock"
        heard: list[dict[str, Any]] = []
        left = list(lose)
        with trio.socket.socket(trio.socket.AF_UNIX) as listening:
            await listening.bind(str(path))
            listening.listen()
            monkeypatch.setenv("FLEET_SOCKET", str(path))
            async with trio.open_nursery() as nursery:

                async def accept() -> None:
                    while True:
                        taken, _ = await listening.accept()
                        stream = trio.SocketStream(taken)
                        nursery.start_soon(relayed, stream, daemon.socket, heard, left, heed)

                nursery.start_soon(accept)
                yield heard
                nursery.cancel_scope.cancel()
        monkeypatch.delenv("FLEET_SOCKET")
        assert not left

    return put


def keys(heard: list[dict[str, Any]], method: str) -> list[str]:
    return [each["params"]["idempotency_key"] for each in heard if each["method"] == method]


async def test_mcp_calls_that_are_tried_again_keep_their_idempotency_key(
    lossy: Lossy, connect: Any
) -> None:
    session = Session(DaemonClient(), "alice")
    letter = tools.SendArguments(to=["bob"], subject="Ready?")
    async with lossy(*["message.send"] * ONE_TOO_MANY) as heard:
        with pytest.raises(Unavailable, match="closed the connection"):
            await tools.send(session, letter)
        # It was told to call again.
        told = await tools.send(session, letter)

    assert len(keys(heard, "message.send")) == ONE_TOO_MANY + 1
    assert len(set(keys(heard, "message.send"))) == 1
    [sent] = connect().call(MessageList()).messages
    assert sent.id in told


async def test_a_plan_and_a_checkpoint_whose_answers_are_lost_are_there_once(
    lossy: Lossy, connect: Any
) -> None:
    session = Session(DaemonClient(), "alice")
    begun = tools.PlanArguments(goal="Add login", sorties=[tools.NewSortieArguments(title="Form")])
    more = tools.PlanArguments(
        sorties=[tools.NewSortieArguments(title="Tests"), tools.NewSortieArguments(title="Docs")]
    )
    lost = [
        *["mission.create"] * ONE_TOO_MANY,
        *["mission.update"] * ONE_TOO_MANY,
        *["checkpoint.create"] * ONE_TOO_MANY,
    ]
    async with lossy(*lost):
        for tool, asked in (
            (tools.plan, begun),
            (tools.plan, more),
            (tools.checkpoint, tools.CheckpointArguments(reason="Now")),
        ):
            with pytest.raises(Unavailable):
                await tool(session, asked)  # type: ignore[operator]
            await tool(session, asked)  # type: ignore[operator]

    [mission] = connect().call(MissionList()).missions
    sorties = connect().call(SortieList(mission.id)).sorties
    assert [each.title for each in sorties] == ["Form", "Tests", "Docs"]
    assert connect().call(CheckpointList(mission.id)).total == 1


async def test_what_is_asked_a_second_time_on_purpose_is_done_a_second_time(
    lossy: Lossy, connect: Any
) -> None:
    session = Session(DaemonClient(), "alice")
    async with lossy() as heard:
        for _ in range(2):
            await tools.send(session, tools.SendArguments(to=["bob"], subject="Ready?"))

    assert len(set(keys(heard, "message.send"))) == 2
    assert len(connect().call(MessageList()).messages) == 2


async def test_mcp_plan_is_atomic_an_error_in_the_middle_leaves_nothing(
    lossy: Lossy, connect: Any
) -> None:
    session = Session(DaemonClient(), "alice")
    pieces = [tools.NewSortieArguments(title="Form"), tools.NewSortieArguments(title="Tests")]
    async with lossy() as heard:
        await tools.plan(session, tools.PlanArguments(goal="Add login", sorties=pieces))
        await tools.plan(
            session, tools.PlanArguments(sorties=[tools.NewSortieArguments(title="Docs")])
        )

    changing = [each["method"] for each in heard if "idempotency_key" in each["params"]]
    assert [each for each in changing if each != "agent.current"] == [
        "mission.create",
        "mission.update",
    ]
    [mission] = connect().call(MissionList()).missions
    assert (mission.status, mission.total_sorties) == ("in_progress", 3)
    events = connect().call(EventList(mission_id=mission.id)).events
    assert [each.type for each in events if each.agent_id == "alice"][:2] == [
        "mission_created",
        "sortie_created",
    ]


async def test_a_call_that_was_cancelled_is_no_call_whose_outcome_is_unknown(
    lossy: Lossy, connect: Any
) -> None:
    session = Session(DaemonClient(), "alice")
    await tools.plan(session, tools.PlanArguments(goal="Add login"))
    asked = tools.CheckpointArguments(reason="Now")
    window = trio.CancelScope()

    def heed(method: str) -> None:
        if method == "checkpoint.create":
            window.cancel()

    async with lossy(heed=heed) as heard:
        with window:
            await tools.checkpoint(session, asked)
        assert window.cancelled_caught
        await tools.checkpoint(session, asked)

    assert len(set(keys(heard, "checkpoint.create"))) == 2


async def test_the_key_of_a_lost_call_is_kept_for_a_short_time_only(
    lossy: Lossy, connect: Any
) -> None:
    now = [0.0]
    session = Session(DaemonClient(lambda: now[0]), "alice")
    letter = tools.SendArguments(to=["bob"], subject="Ready?")
    async with lossy(*["message.send"] * ONE_TOO_MANY) as heard:
        with pytest.raises(Unavailable, match="closed the connection"):
            await tools.send(session, letter)
        now[0] += KEPT_S
        await tools.send(session, letter)

    assert len(set(keys(heard, "message.send"))) == 2
    assert len(connect().call(MessageList()).messages) == 2
