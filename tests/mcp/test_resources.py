"""Resources and the prompt: what a client reads without calling a tool."""

import pytest
from mcp.shared.exceptions import MCPError

from tests.mcp.conftest import AgentWithTools, Start
from tests.support.processes import ids


async def text(agent: AgentWithTools, uri: str) -> str:
    [contents] = (await agent.client.read_resource(uri, cache_mode="reload")).contents
    assert contents.mime_type == "text/markdown"
    return str(contents.text)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_mission_and_its_checkpoints_can_be_listed_and_read(
    near: Start, mode: str
) -> None:
    async with near(mode=mode) as alice:
        always = ["fleet://mission", "fleet://checkpoints", "fleet://briefing"]
        listed = await alice.client.list_resources(cache_mode="reload")
        assert [each.uri for each in listed.resources] == always
        begun = await alice.does("plan", goal="Add login", sorties=[{"title": "Form"}])
        [mission], [form] = ids("msn", begun), ids("srt", begun)
        await alice.does("sortie", sortie_id=form, state="start")
        await alice.does("note", next_steps=["Check the form"])
        await alice.does("lock", file="a.py")
        [checkpoint] = ids("chk", await alice.does("checkpoint", reason="Halfway"))
        listed = await alice.client.list_resources(cache_mode="reload")
        assert [each.uri for each in listed.resources] == [
            *always,
            f"fleet://checkpoint/{checkpoint}",
        ]
        assert "Halfway" in (listed.resources[-1].description or "")
        assert "Form (you)" in await text(alice, "fleet://mission")
        assert "Form (you)" in await text(alice, f"fleet://mission/{mission}")
        assert "Halfway" in await text(alice, "fleet://checkpoints")
        kept = await text(alice, f"fleet://checkpoint/{checkpoint}")
        for words in ("Halfway", "Check the form", f"Sortie {form} in_progress", "a.py held by"):
            assert words in kept
        assert "Check the form" in await text(alice, "fleet://briefing")
        templates = (await alice.client.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates] == [
            "fleet://mission/{mission_id}",
            "fleet://checkpoint/{checkpoint_id}",
        ]


async def test_what_is_not_there_is_an_error_that_says_so(near: Start) -> None:
    async with near() as alice:
        for uri, told in (
            ("fleet://nothing", "There is no resource fleet://nothing"),
            ("fleet://checkpoint/chk-00000000", "chk-00000000"),
            (
                "fleet://mission/zzz",
                "There is no resource fleet://mission/zzz. Read fleet://mission, ",
            ),
            ("fleet://checkpoint/..%2Fetc", "There is no resource"),
            ("file:///etc/passwd", "There is no resource"),
            ("fleet://mission", "You have no mission"),
        ):
            with pytest.raises(MCPError, match=told) as caught:
                await alice.client.read_resource(uri)
            assert "rpc." not in str(caught.value)
        with pytest.raises(MCPError, match="no prompt"):
            await alice.client.get_prompt("forget")
        with pytest.raises(MCPError, match="no tool"):
            await alice.client.call_tool("forget", {})
        assert "alice" not in await alice.does("agents")


async def test_the_prompt_briefs(near: Start) -> None:
    async with near() as alice:
        [prompt] = (await alice.client.list_prompts()).prompts
        assert prompt.name == "recover"
        with pytest.raises(MCPError, match="You have no mission"):
            await alice.client.get_prompt("recover")
        await alice.does("plan", goal="Add login")
        await alice.does("note", next_steps=["Check it"])
        [message] = (await alice.client.get_prompt("recover")).messages
        assert message.role == "user"
        assert "Add login" in message.content.text
        assert "Check it" in message.content.text
