"""A client that listens is told when what it has read is out of date."""

from typing import Any

import mcp_types as types
import pytest
import trio
from mcp.client.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPDeprecationWarning

from fleetd.protocol.requests.mission import MissionCreate, MissionStart
from tests.mcp.conftest import Start


async def test_a_client_is_told_what_changed_and_of_nothing_else(agent: Start, daemon) -> None:
    uris = ["fleet://mission", "fleet://checkpoints"]
    async with agent("--agent", "alice") as alice, agent("--agent", "bob") as bob:
        await alice.does("plan", goal="Add login", sorties=[{"title": "Form"}])
        async with alice.client.listen(resource_subscriptions=uris) as told:
            heard: set[str] = set()
            while heard != set(uris):
                await bob.does("plan", sorties=[{"title": "More"}])
                with trio.move_on_after(1):
                    async for event in told:
                        assert isinstance(event, ResourceUpdated)
                        heard.add(event.uri)
            # Also over a restart of the daemon.
            daemon.kill()
            daemon.start()
            heard.clear()
            while not heard:
                await bob.does("plan", sorties=[{"title": "Still more"}])
                with trio.move_on_after(1):
                    async for event in told:
                        heard.add(event.uri)


async def test_an_older_client_subscribes_and_unsubscribes(agent: Start, connect) -> None:
    heard: list[str] = []

    async def hear(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.append(message.params.uri)

    async with agent("--agent", "alice", mode="legacy", message_handler=hear) as alice:
        await alice.does("plan", goal="Add login")
        with pytest.warns(MCPDeprecationWarning):
            await alice.client.subscribe_resource("fleet://mission")
        while not heard:
            await alice.does("plan", sorties=[{"title": "More"}])
            await trio.sleep(0.1)
        assert set(heard) == {"fleet://mission"}
        with pytest.warns(MCPDeprecationWarning):
            await alice.client.unsubscribe_resource("fleet://mission")
        heard.clear()
        elsewhere = connect().call(MissionCreate("Elsewhere", project_dir="/nowhere"))
        connect().call(MissionStart(elsewhere.id))
        await alice.does("mission")
    assert heard == []
