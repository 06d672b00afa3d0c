"""How full a window is: from what an agent CLI sends or writes to the row of its session."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from fleetd.engine.hooks import facts
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.hook import HookDeliver, HookReply
from tests.harness.recorded import PAYLOADS, recorded
from tests.support.fleet import SECOND, Fleet
from tests.support.gemini_log import GeminiLog, replaced, says

_ids = itertools.count()
HOSTILE = (-1, "70000", True, 10**15, 10**400, 1e308, None, [7], {"tokens": 7})


async def deliver(fleet: Fleet, harness: str, payload: dict[str, Any]) -> HookReply:
    request = HookDeliver(
        delivery_id=f"delivery-{next(_ids):08}", harness=harness, payload=json.dumps(payload)
    )
    fleet.clock.pass_by(3 * SECOND)
    return await fleet.do(request)


def known(fleet: Fleet) -> tuple[int | None, int | None]:
    """Return tokens and size as they stand in the row of the one session."""
    [row] = fleet.sql("SELECT window_tokens, window_size FROM sessions WHERE subagent = ''")
    return row["window_tokens"], row["window_size"]


async def events(fleet: Fleet) -> list[str]:
    return [event.type for event in (await fleet.do(EventList(limit=1_000))).events]


def claude(event: str, **fields: Any) -> dict[str, Any]:
    return {**recorded("claude", "SessionStart.resume"), "hook_event_name": event, **fields}


async def test_a_resumed_session_says_what_is_in_its_window(fleet: Fleet) -> None:
    await deliver(fleet, "claude", recorded("claude", "SessionStart.resume"))
    assert known(fleet) == (42_637, None)
    model = "claude-opus-4-6[1m]"
    await deliver(fleet, "claude", claude("SessionStart", context_tokens=50_000, model=model))
    assert known(fleet) == (50_000, 1_000_000)


@pytest.mark.parametrize(
    ("event", "fields"), [("PostCompact", {}), *(("SessionStart", {"source": "compact"}),)]
)
async def test_after_a_compaction_the_figures_are_forgotten(
    fleet: Fleet, event: str, fields: dict[str, Any]
) -> None:
    await deliver(fleet, "claude", recorded("claude", "SessionStart.resume"))
    await deliver(fleet, "claude", claude("PreCompact", trigger="auto"))
    assert known(fleet) == (42_637, None)
    told = {name: value for name, value in claude(event, **fields).items() if "tokens" not in name}
    await deliver(fleet, "claude", told)
    assert known(fleet) == (None, None)


@pytest.mark.parametrize("tokens", HOSTILE)
async def test_what_is_no_count_never_reaches_the_row(fleet: Fleet, tokens: Any) -> None:
    await deliver(fleet, "claude", claude("SessionStart", context_tokens=tokens))
    assert known(fleet) == (None, None)
    window = {"tokens": 7, "size": tokens}
    payload = {"event": "session.idle", "session_id": "ses_1", "cwd": "/p", "window": window}
    await deliver(fleet, "opencode", payload)
    [row] = fleet.sql("SELECT window_tokens, window_size FROM sessions WHERE harness = 'opencode'")
    assert tuple(row.values()) == (7, None)


async def test_a_count_is_neither_an_event_nor_activity(fleet: Fleet) -> None:
    about = {"session_id": "ses_1", "cwd": "/p"}
    await deliver(fleet, "opencode", {"event": "session.created"} | about)
    idle = {"event": "session.idle", "window": {"tokens": 7, "size": 10}}
    await deliver(fleet, "opencode", idle | about)
    before = await events(fleet)
    # A prompt of a subagent's is nobody's word, so the count is all that this tells.
    below = {"event": "chat.message", "session_id": "ses_2", "parent_id": "ses_1", "cwd": "/p"}
    await deliver(fleet, "opencode", below | {"window": {"tokens": 9, "size": 10}})
    assert await events(fleet) == before
    assert known(fleet) == (7, 10)
    assert len(fleet.sql("SELECT 1 AS one FROM sessions")) == 1


async def test_cursor_says_it_before_a_compaction_and_of_that_alone(fleet: Fleet) -> None:
    await deliver(fleet, "cursor", recorded("cursor", "sessionStart"))
    await deliver(fleet, "cursor", recorded("cursor", "preCompact"))
    assert known(fleet) == (None, None)


async def test_codex_says_it_in_the_rollout_that_is_read_at_these_moments(
    fleet: Fleet, tmp_path: Path
) -> None:
    rollout = tmp_path / "rollout-x.jsonl"
    lines = (PAYLOADS / "codex" / "_rollout.counts.jsonl").read_text("utf-8").splitlines(True)
    about = {"transcript_path": str(rollout), "cwd": str(fleet.project)}

    async def tell(name: str, written: int) -> tuple[int | None, int | None]:
        rollout.write_text("".join(lines[:written]))
        await deliver(fleet, "codex", recorded("codex", name) | about)
        return known(fleet)

    assert await tell("SessionStart.startup", 1) == (None, None)
    assert await tell("PreCompact.auto", 3) == (250_010, 258_400)
    assert await tell("PostCompact.auto", 5) == (None, None)
    assert await tell("Stop", len(lines)) == (1_010, 258_400)


def answered(tokens: int, **more: Any) -> dict[str, Any]:
    """Return the line of an answer, in the order in which Gemini CLI writes its fields."""
    counts = {"input": tokens, "output": 5, "cached": 0, "thoughts": 0, "tool": 0, "total": tokens}
    return {"id": "a", "content": "x", "tokens": counts, "model": "gemini-3.1-pro-preview", **more}


async def test_gemini_says_it_in_the_log_that_is_looked_at_for_compactions(
    fleet: Fleet, tmp_path: Path
) -> None:
    log = GeminiLog(tmp_path)
    log.add(replaced(), says("first"), answered(500_000))
    payload = recorded("gemini", "AfterTool.run_shell_command")
    payload |= {"cwd": str(fleet.project), "transcript_path": str(log.path)}

    async def tell(moment: int) -> tuple[int | None, int | None]:
        await deliver(fleet, "gemini", payload | {"timestamp": f"2026-11-21T20:14:22.{moment}Z"})
        return known(fleet)

    assert await tell(100) == (500_005, 1_048_576)
    log.add(replaced("summary", "thanks", "third"))
    assert await tell(101) == (None, None)
    log.add(answered(9_000))
    assert await tell(102) == (9_005, 1_048_576)


def used_in(log: GeminiLog) -> list[tuple[int, int | None]]:
    return [(each.tokens, each.size) for each in facts.log_of(str(log.path))[1]]


def test_what_a_tool_was_given_is_no_count(tmp_path: Path) -> None:
    log = GeminiLog(tmp_path)
    given = {"args": {"tokens": {"input": 999_999, "output": 1}}}
    log.add(replaced(), answered(7, toolCalls=[given]))
    assert used_in(log) == [(12, 1_048_576)]
    log.add(answered(8, model="gemma-4-31b-it"))
    assert used_in(log) == [(13, None)]
    log.add({"id": "b", "tokens": {"input": -4, "output": 1}})
    assert used_in(log) == []


def test_a_log_without_an_end_of_a_line_says_nothing(tmp_path: Path) -> None:
    log = GeminiLog(tmp_path)
    log.path.write_text('"tokens":{"input":1,"output":1}')
    assert used_in(log) == []
    log.path.write_text('\n{"$set":{"messages":[{"tokens":{"input":1,"output":1}}')
    assert used_in(log) == []
