"""What hooks told by name: the last event of each kind, and what no adapter knows."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from fleetd.domain.sessions.sightings import HARNESSES, KEPT_MS, NAMES, prune_sightings
from fleetd.engine.hooks.sighting_counts import clean_name
from fleetd.engine.hooks.sightings import write_sightings
from fleetd.protocol.errors import Storage
from fleetd.protocol.requests.hook import HarnessStatus, HookDeliver, HookStatusGet
from tests.harness.recorded import PAYLOADS
from tests.rules.hooks.test_hook_delivery import SESSION, deliver
from tests.support.fleet import HOUR, MINUTE, SECOND, Fleet, opened
from tests.support.statements import noted

_ids = itertools.count()


async def send(fleet: Fleet, payload: Any, harness: str = "claude", *args: str) -> None:
    """Deliver any payload; no answer is expected."""
    text = payload if isinstance(payload, str) else json.dumps(payload)
    request = HookDeliver(
        delivery_id=f"sighting-{next(_ids):08}", harness=harness, payload=text, args=list(args)
    )
    assert (await fleet.do(request)).stdout == ""


async def heard(fleet: Fleet, harness: str = "claude") -> HarnessStatus:
    rows = (await fleet.do(HookStatusGet())).harnesses
    return next(each for each in rows if each.harness == harness)


async def unknown(fleet: Fleet, harness: str = "claude") -> list[tuple[str, str, int]]:
    return [(each.kind, each.name, each.count) for each in (await heard(fleet, harness)).unknown]


async def test_the_last_event_of_each_kind_is_told_the_newest_first(fleet: Fleet) -> None:
    await deliver(fleet, "SessionStart", source="startup")
    begun = fleet.clock.now
    for number in range(3):
        fleet.clock.pass_by(MINUTE)
        await deliver(fleet, "PreToolUse", tool_name="Read", tool_use_id=f"t-{number}")
    told = await heard(fleet)
    assert [(each.event, each.count, each.last_at) for each in told.events] == [
        ("PreToolUse", 3, fleet.clock.now),
        ("SessionStart", 1, begun),
    ]
    assert told.unknown == []
    assert told.told_at == fleet.clock.now


async def test_a_renamed_event_is_answered_with_nothing_and_counted_by_its_name(
    fleet: Fleet,
) -> None:
    for _ in range(2):
        fleet.clock.pass_by(MINUTE)
        assert (await deliver(fleet, "UserPromptSent", prompt="Add login")).stdout == ""
    assert await unknown(fleet) == [("event", "UserPromptSent", 2)]
    told = await heard(fleet)
    assert (told.events, told.unfit, told.told_at) == ([], 0, None)


async def test_events_that_are_ignored_knowingly_are_known(fleet: Fleet) -> None:
    for event in ("WorktreeRemove", "InstructionsLoaded", "PostModelSwitch"):
        await deliver(fleet, event, file_path="/x", anything="else")
    told = await heard(fleet)
    assert {each.event for each in told.events} == {
        "WorktreeRemove", "InstructionsLoaded", "PostModelSwitch",
    }  # fmt: skip
    assert told.unknown == []


async def test_a_renamed_field_is_counted(fleet: Fleet) -> None:
    await deliver(fleet, "PreToolUse", toolName="Read", tool_use_id="t-1")
    assert await unknown(fleet) == [("field", "toolName", 1)]


async def test_payloads_of_no_known_form_are_counted_by_what_is_wrong(fleet: Fleet) -> None:
    await send(fleet, {"hook_event_name": "Stop", "sessionID": SESSION})
    await send(fleet, "no JSON")
    await send(fleet, {"event": "whatever_comes", "session_id": "s"}, "newcomer")
    assert await unknown(fleet) == [
        ("payload", "it has no session_id", 1),
        ("payload", "it is not a JSON object", 1),
    ]
    assert await unknown(fleet, "newcomer") == [("event", "whatever_comes", 1)]


@pytest.mark.parametrize("harness", ["claude", "codex", "gemini", "cursor", "copilot", "opencode"])
async def test_nothing_is_unknown_in_what_the_real_clis_told(fleet: Fleet, harness: str) -> None:
    files = sorted(PAYLOADS.glob(f"{harness}/[!_]*.json"))
    assert files
    for file in files:
        event = file.name.split(".")[0]
        words = [event] if harness == "copilot" else []
        text = json.dumps(json.loads(file.read_text("utf-8")))
        await fleet.do(
            HookDeliver(
                delivery_id=f"recorded-{next(_ids):08}", harness=harness, payload=text, args=words
            )
        )
    told = await heard(fleet, harness)
    assert told.unknown == []
    assert sum(each.count for each in told.events) == len(files)


async def test_a_retry_counts_once(fleet: Fleet) -> None:
    for _ in range(3):
        await deliver(fleet, "Surprise", delivery_id="the-same-one")
    assert await unknown(fleet) == [("event", "Surprise", 1)]


async def test_10_000_names_stay_64_and_the_rest_is_a_number(fleet: Fleet) -> None:
    for number in range(1_000):
        payload = {"session_id": SESSION, "hook_event_name": f"Event{number}"}
        await send(fleet, payload)
        if number == 500:
            await write_sightings(fleet.engine)
    many = {f"field{number}": 1 for number in range(10_000)}
    await deliver(fleet, "PreToolUse", tool_name="Read", **many)
    found = await unknown(fleet)
    events = {name: count for kind, name, count in found if kind == "event"}
    assert len(events) == NAMES + 1
    assert events[""] == 1_000 - NAMES
    fields = [name for kind, name, _ in found if kind == "field"]
    assert len(fields) == NAMES + 1
    assert "" in fields


async def test_names_of_10_mb_and_of_control_characters_are_short_and_printable(
    fleet: Fleet,
) -> None:
    await send(fleet, {"session_id": SESSION, "hook_event_name": "E" * 10_000_000})
    await deliver(fleet, "Evil\x1b]0;title\x07\n\u202eName\x9b")
    await deliver(fleet, "PreToolUse", tool_name="Read", **{"F" * 10_000_000: 1, "\x1b[2J": 1})
    await send(fleet, {"session_id": SESSION, "hook_event_name": "\u200b\u200b"})
    names = {(each.kind, each.name) for each in (await heard(fleet)).unknown}
    assert names == {
        ("event", "E" * 64),
        ("event", "Evil]0;titleName"),
        ("event", "(unprintable)"),
        ("field", "F" * 64),
        ("field", "[2J"),
    }


def test_a_secret_in_a_name_is_not_kept() -> None:
    key = "sk-ant-api03-" + "Ab1" * 30
    assert key[:20] not in clean_name(f"key {key}")
    assert key[:20] not in clean_name(f"{'x' * 50} {key}")


async def test_harnesses_are_bounded_too(fleet: Fleet) -> None:
    for number in range(HARNESSES + 20):
        await send(fleet, {"event": "what", "session_id": "s"}, f"cli-{number}")
        if number % 30 == 0:
            await write_sightings(fleet.engine)
    await write_sightings(fleet.engine)
    [row] = fleet.sql("SELECT count(DISTINCT harness) AS number FROM hook_names")
    assert row["number"] == HARNESSES


async def test_a_hook_writes_no_name_by_itself(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = noted(monkeypatch)
    await deliver(fleet, "SessionStart", source="startup")
    await deliver(fleet, "Surprise", unknown="field")
    assert not [each for each in statements if "hook_names" in each]
    await write_sightings(fleet.engine)
    assert [each for each in statements if "INSERT INTO hook_names" in each]
    statements.clear()
    await write_sightings(fleet.engine)
    assert statements == []


async def test_what_the_store_refuses_is_written_the_next_time(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await deliver(fleet, "Surprise")

    async def refuse(*_: Any) -> None:
        raise Storage("The disk is full.", hint="Make room.")

    with monkeypatch.context() as patch:
        patch.setattr(fleet.engine, "write", refuse)
        await write_sightings(fleet.engine)
    await deliver(fleet, "Surprise")
    assert await unknown(fleet) == [("event", "Surprise", 2)]


async def test_unknown_names_are_forgotten_after_a_week_and_events_stay(fleet: Fleet) -> None:
    await deliver(fleet, "SessionStart", source="startup")
    await deliver(fleet, "Surprise")
    fleet.clock.pass_by(KEPT_MS - HOUR)
    assert await unknown(fleet) == [("event", "Surprise", 1)]
    assert not await fleet.engine.write(prune_sightings)
    fleet.clock.pass_by(2 * HOUR)
    assert await unknown(fleet) == []
    while await fleet.engine.write(prune_sightings):
        pass
    assert fleet.sql("SELECT kind, name FROM hook_names") == [
        {"kind": "event", "name": "SessionStart"}
    ]


async def test_a_name_that_this_version_knows_is_told_no_more(fleet: Fleet) -> None:
    await deliver(fleet, "SessionStart", source="startup")
    values = "('claude', :kind, :name, 3, :at)"
    for kind, name in (("unknown_event", "Stop"), ("unknown_field", "prompt")):
        fleet.sql(f"INSERT INTO hook_names VALUES {values}", kind=kind, name=name,
                  at=fleet.clock.now)  # fmt: skip
    assert await unknown(fleet) == []


async def test_sessions_that_began_and_told_nothing_after_are_counted(fleet: Fleet) -> None:
    async def begin(session: str) -> None:
        fleet.clock.pass_by(MINUTE)
        await deliver(fleet, "SessionStart", source="startup", session_id=session)

    await begin("one")
    first = fleet.clock.now
    await begin("two")
    told = await heard(fleet)
    assert (told.silent_sessions, told.silent_since) == (2, first)
    fleet.clock.pass_by(SECOND)
    await deliver(fleet, "SessionEnd", session_id="two", reason="other")
    await deliver(fleet, "Renamed", session_id="one")
    assert (await heard(fleet)).silent_sessions == 2
    fleet.clock.pass_by(SECOND)
    await deliver(fleet, "UserPromptSubmit", session_id="one", prompt="Add login")
    told = await heard(fleet)
    assert (told.silent_sessions, told.silent_since) == (0, None)
    await begin("three")
    assert (await heard(fleet)).silent_sessions == 1


@pytest.mark.parametrize(
    ("harness", "text", "version"),
    [
        (
            "claude",
            (
                '{"type":"user","version":"2.1.329"}\n'
                '{"type":"assistant","message":{"version":"9"},"version":"2.1.330"}\n'
                '{"type":"summary","toolUseResult":{"version":"8.8.8"}}\n{"cut'
            ),
            "2.1.330",
        ),
        (
            "codex",
            (
                '{"type":"session_meta","payload":{"id":"x","cli_version":"0.169.0"}}\n'
                '{"type":"event_msg","payload":{"message":"\\"cli_version\\":\\"7\\""}}\n'
            ),
            "0.169.0",
        ),
        ("claude", "", None),
        ("claude", '{"version":"\\u001b[31m1.2.3"}\n', "[31m1.2.3"),
        ("gemini", '{"version":"0.61.0"}\n', None),
    ],
)
async def test_the_version_comes_from_the_transcript_once_a_session(
    fleet: Fleet, tmp_path: Path, harness: str, text: str, version: str | None
) -> None:
    transcript = tmp_path / "transcript.jsonl"
    transcript.write_text(text)
    payload = {
        "session_id": SESSION,
        "cwd": str(fleet.project),
        "transcript_path": str(transcript),
    }
    if harness == "codex":
        payload["turn_id"] = "turn"
    stop = "AfterAgent" if harness == "gemini" else "Stop"
    await send(fleet, payload | {"hook_event_name": stop, "timestamp": "1"}, harness)
    rows = {each.harness: each.version for each in (await fleet.do(HookStatusGet())).harnesses}
    assert list(rows.values()) == [version]
    transcript.write_text(text.replace("2.1.330", "2.1.331"))
    fleet.clock.pass_by(MINUTE)
    await send(fleet, payload | {"hook_event_name": stop, "timestamp": "2"}, harness)
    rows = {each.harness: each.version for each in (await fleet.do(HookStatusGet())).harnesses}
    assert list(rows.values()) == [version]


async def test_a_resumed_session_is_asked_for_its_version_again(
    fleet: Fleet, tmp_path: Path
) -> None:
    transcript = tmp_path / "transcript.jsonl"
    for version in ("2.1.330", "2.1.331"):
        transcript.write_text(json.dumps({"version": version}) + "\n")
        await deliver(fleet, "SessionStart", source="resume", transcript_path=str(transcript))
        fleet.clock.pass_by(MINUTE)
        await deliver(fleet, "Stop", transcript_path=str(transcript))
        assert (await heard(fleet)).version == version
        fleet.clock.pass_by(MINUTE)


async def test_cursor_tells_its_version_in_every_payload(fleet: Fleet) -> None:
    payload = {"conversation_id": "c", "generation_id": "g", "cursor_version": "2026.09.18"}
    await send(fleet, payload | {"hook_event_name": "stop"}, "cursor")
    assert (await heard(fleet, "cursor")).version == "2026.09.18"


async def test_the_end_of_the_daemon_writes_what_was_counted(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        await deliver(fleet, "Surprise")
    async with opened(tmp_path) as fleet:
        [row] = fleet.sql("SELECT kind, name, number FROM hook_names")
        assert row == {"kind": "unknown_event", "name": "Surprise", "number": 1}


async def test_nothing_is_counted_from_a_directory_that_is_to_be_ignored(tmp_path: Path) -> None:
    async with opened(tmp_path, project_ignore=[str(tmp_path / "project")]) as fleet:
        await deliver(fleet, "Surprise")
        assert (await fleet.do(HookStatusGet())).harnesses == []
        assert fleet.sql("SELECT name FROM hook_names") == []
