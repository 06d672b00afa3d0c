"""Tokens of sessions: transcripts are read in portions, and each request counts once."""

import json
import os
from pathlib import Path
from typing import Any

import apsw
import hypothesis.strategies as st
import pytest
import trio
from hypothesis import example, given, settings

from fleetd.domain.core.context import BatchSizes
from fleetd.domain.usage.transcripts import Transcript
from fleetd.engine.jobs.daily import tidy
from fleetd.engine.usage import portion
from fleetd.engine.usage.portion import read_portion
from fleetd.engine.usage.reading import read_transcripts
from fleetd.host.file_system import PathWalk
from fleetd.protocol.errors import InvalidParams, NotFound
from fleetd.protocol.requests.hook import HookDeliver
from fleetd.protocol.requests.mission import MissionCancel, MissionDelete
from fleetd.protocol.requests.system import SystemForget
from fleetd.protocol.requests.usage import (
    BudgetList,
    ModelUsage,
    UsageBudget,
    UsageGet,
    UsageReport,
)
from tests.rules.hooks.test_hook_delivery import SESSION, deliver
from tests.support.fleet import DAY, HOUR, MINUTE, NOON, SECOND, Fleet, opened
from tests.support.statements import noted
from tests.support.transcripts import (
    TranscriptFile,
    claude_line,
    codex_count,
    codex_line,
    text_of,
)

OTHER = "0f459b8a-ddba-4f6c-9d81-64d0cae95a84"


async def begins(fleet: Fleet, session: str = SESSION, path: str = "") -> TranscriptFile:
    """Begin a session whose transcript is the file that is returned."""
    file = TranscriptFile(fleet.project / "home" / (path or f"{session}.jsonl"))
    await goes_on(fleet, file, session)
    return file


async def goes_on(fleet: Fleet, file: TranscriptFile, session: str = SESSION) -> None:
    fleet.clock.pass_by(SECOND)
    told = {"session_id": session, "transcript_path": str(file.path)}
    await deliver(fleet, "UserPromptSubmit", prompt="Add login", **told)


async def report(fleet: Fleet, **wanted: Any) -> UsageReport:
    fleet.clock.pass_by(1)
    return await fleet.do(UsageGet(**wanted))


def tokens(models: list[ModelUsage]) -> tuple[int, ...]:
    """Return requests, input, output, cache read, cache write."""
    return (
        sum(each.requests for each in models),
        sum(each.input_tokens for each in models),
        sum(each.output_tokens for each in models),
        sum(each.cache_read_tokens for each in models),
        sum(each.cache_write_tokens for each in models),
    )


def of(told: UsageReport) -> dict[str | None, tuple[int, ...]]:
    return {group.name: tokens(group.models) for group in told.groups}


async def requests(fleet: Fleet, **wanted: Any) -> int:
    told = await report(fleet, **wanted)
    return sum(each.requests for group in told.groups for each in group.models)


async def test_a_session_is_counted_for_its_agent_mission_sortie_model_and_day(
    fleet: Fleet,
) -> None:
    file = await begins(fleet)
    todos = [{"content": "Write it", "status": "in_progress", "activeForm": "Writing"}]
    fleet.clock.pass_by(9 * SECOND)
    plan = {"tool_name": "TodoWrite", "tool_input": {"todos": todos}, "tool_use_id": "t-1"}
    await deliver(fleet, "PostToolUse", transcript_path=str(file.path), **plan)
    fleet.clock.pass_by(MINUTE)
    file.add(claude_line(2), claude_line(2), claude_line(20))
    told = await report(fleet)
    [agent] = of(told)
    both = (2, 222, 20, 2_000, 100)
    assert of(told) == {agent: both}
    assert told.reading.repeated == 1
    [mission] = (await report(fleet, by="mission")).groups
    assert (mission.title, tokens(mission.models)) == ("Add login", both)
    sorties = {
        group.title: tokens(group.models)[0] for group in (await report(fleet, by="sortie")).groups
    }
    assert sorties == {None: 1, "Write it": 1}
    assert of(await report(fleet, by="model")) == {"claude-sonnet-4-5": both}
    assert of(await report(fleet, by="day")) == {"2026-01-05": both}
    assert of(await report(fleet, agent_id=agent, mission_id=mission.name)) == {agent: both}
    assert await requests(fleet, agent_id=agent, since_time="2026-01-05T12:00:10.000Z") == 1
    assert await requests(fleet, agent_id=agent, until_time="2026-01-05T12:00:19.999Z") == 1
    assert await requests(fleet, agent_id=agent, until_time="2026-01-05T12:00:20.000Z") == 2
    [first] = mission.models
    assert (first.cache_write_1h_tokens, first.from_input_tokens) == (40, 0)


async def test_what_is_read_once_is_not_read_again(fleet: Fleet) -> None:
    file = await begins(fleet)
    file.add(claude_line(1))
    assert await requests(fleet) == 1
    size = file.path.stat().st_size
    [row] = fleet.sql("SELECT position FROM transcripts")
    assert row["position"] == size
    file.add_bytes(text_of(claude_line(2))[:-30])
    assert await requests(fleet) == 1
    file.add_bytes(text_of(claude_line(2))[-30:])
    assert await requests(fleet) == 2
    assert (await report(fleet)).reading.repeated == 0


@pytest.mark.parametrize("name", ["shrunk", "replaced"])
async def test_a_file_that_shrank_or_was_replaced_is_read_anew(fleet: Fleet, name: str) -> None:
    file = await begins(fleet)
    file.add(*(claude_line(n) for n in range(5)))
    assert await requests(fleet) == 5
    kept = [claude_line(n) for n in ((3, 4) if name == "shrunk" else range(2, 9))]
    file.path.write_bytes(text_of(*kept))
    assert await requests(fleet) == (5 if name == "shrunk" else 9)
    assert (await report(fleet)).reading.repeated == len({2, 3, 4} & {*range(9)}) - (
        name == "shrunk"
    )


async def test_a_fork_counts_only_what_is_new(fleet: Fleet) -> None:
    first = await begins(fleet)
    first.add(claude_line(1), claude_line(2))
    second = await begins(fleet, OTHER)
    second.add(claude_line(1), claude_line(2), claude_line(3))
    told = await report(fleet)
    assert sorted(number for number, *_ in of(told).values()) == [1, 2]
    assert told.reading.repeated == 2


async def test_the_largest_figures_of_a_message_count(fleet: Fleet) -> None:
    file = await begins(fleet)
    file.add(claude_line(1, output_tokens=1))
    assert [figures[2] for figures in of(await report(fleet)).values()] == [1]
    file.add(claude_line(1, output_tokens=80), claude_line(1, output_tokens=7))
    assert [figures[2] for figures in of(await report(fleet)).values()] == [80]


async def test_subagents_count_once_for_the_agent_of_their_session(fleet: Fleet) -> None:
    file = await begins(fleet)
    file.add(claude_line(1))
    inner = TranscriptFile(file.path.with_suffix("") / "subagents" / "agent-a1.jsonl")
    inner.add(claude_line(2), claude_line(3))
    told = {"session_id": SESSION, "transcript_path": str(file.path)}
    own = {"agent_id": "a1", "agent_type": "Explore", "agent_transcript_path": str(inner.path)}
    await deliver(fleet, "SubagentStop", last_assistant_message="x", **told, **own)
    found = of(await report(fleet))
    assert [number for number, *_ in found.values()] == [3]
    [agent] = fleet.sql("SELECT agent_id FROM sessions WHERE subagent = ''")
    assert list(found) == [agent["agent_id"]]


async def test_a_rollout_of_codex_and_a_log_of_gemini_are_counted(fleet: Fleet) -> None:
    rollout = await begins(fleet, path="rollout-1.jsonl")
    rollout.add(codex_line("session_meta", 0, {"id": SESSION}))
    rollout.add(codex_line("turn_context", 0, {"model": "gpt-5.5"}))
    rollout.add(codex_count(1, [100, 40, 10], [100, 40, 10]))
    assert of(await report(fleet, by="model")) == {"gpt-5.5": (1, 60, 10, 40, 0)}
    # What is known of the lines before is kept between portions.
    rollout.add(codex_count(2, [100, 40, 10], [100, 40, 10]))
    rollout.add(codex_count(3, [300, 80, 30], [200, 40, 20]))
    assert of(await report(fleet, by="model")) == {"gpt-5.5": (2, 220, 30, 80, 0)}
    log = TranscriptFile(fleet.project / ".gemini" / "chats" / "session.jsonl")
    told = {"session_id": OTHER, "transcript_path": str(log.path), "prompt": "Add login"}
    await deliver(fleet, "BeforeAgent", **told)
    tokens = {"input": 100, "output": 10, "cached": 40, "thoughts": 5, "tool": 0, "total": 115}
    message = {"id": "m-1", "timestamp": fleet.clock.now, "model": "gemini-2.5-pro"}
    log.add(message | {"tokens": tokens}, message | {"tokens": tokens, "toolCalls": []})
    assert of(await report(fleet, by="model"))["gemini-2.5-pro"] == (1, 60, 15, 40, 0)


SCHEMA = """
CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT);
CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT NOT NULL,
    time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, data TEXT NOT NULL);
"""


async def test_the_messages_of_opencode_are_read_from_its_database(fleet: Fleet) -> None:
    path = fleet.project / "opencode.db"
    fleet.engine.transcripts._opencode_database = str(path)
    told = {"event": "session.created", "session_id": "ses_1", "cwd": str(fleet.project)}
    request = HookDeliver(delivery_id="opencode-1", harness="opencode", payload=json.dumps(told))
    await fleet.do(request)
    assert (await report(fleet)).reading.missing == 1
    database = apsw.Connection(str(path))
    database.execute(SCHEMA)
    database.execute("INSERT INTO session VALUES ('ses_1', NULL), ('ses_2', 'ses_1'), ('x', NULL)")

    def write(number: int, session: str, completed: int | None) -> None:
        time = {"created": NOON + number, "completed": completed}
        given = {"input": 100, "output": 10, "reasoning": 0, "cache": {"read": 5, "write": 0}}
        data = {"role": "assistant", "time": time, "modelID": "m", "tokens": given}
        database.execute(
            "INSERT OR REPLACE INTO message VALUES (?, ?, ?, 0, ?)",
            (f"msg_{number}", session, NOON + number, json.dumps(data)),
        )

    write(1, "ses_1", NOON + 5)
    write(2, "ses_2", None)
    write(3, "ses_2", NOON + 9)
    write(4, "x", NOON + 10)
    assert await requests(fleet) == 2
    write(2, "ses_2", NOON + 11)
    assert await requests(fleet) == 3
    assert (await report(fleet)).reading.missing == 0
    database.close()


async def test_of_other_clis_and_without_a_transcript_it_is_not_known(fleet: Fleet) -> None:
    await deliver(fleet, "UserPromptSubmit", prompt="Add login")
    told = {"hook_event_name": "sessionStart", "conversation_id": "c-1", "generation_id": "g"}
    payload = json.dumps(told | {"cursor_version": "3", "workspace_roots": [str(fleet.project)]})
    await fleet.do(HookDeliver(delivery_id="cursor-01", harness="cursor", payload=payload))
    found = await report(fleet)
    assert (found.groups, found.not_known_more) == ([], 0)
    assert [each.harness for each in found.not_known] == ["claude", "cursor"]


async def test_a_hook_costs_no_statement_for_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await begins(fleet)
    seen = noted(monkeypatch)
    await goes_on(fleet, file)
    assert seen
    assert not [each for each in seen if "transcripts" in each or "usage_records" in each]


HOSTILE = ["/dev/zero", "/proc/self/mem", "relative.jsonl", "/no/such/file.jsonl"]


@pytest.mark.parametrize("path", [*HOSTILE, "pipe", "directory"])
async def test_what_is_no_file_of_ours_is_missing(fleet: Fleet, path: str) -> None:
    if path == "pipe":
        path = str(fleet.project / "pipe.jsonl")
        os.mkfifo(path)
    elif path == "directory":
        path = str(fleet.project)
    await deliver(fleet, "UserPromptSubmit", prompt="Add login", transcript_path=path)
    told = await report(fleet)
    assert told.groups == []
    assert told.reading.missing == (0 if path == "relative.jsonl" else 1)


async def test_a_path_with_a_secret_is_not_kept(fleet: Fleet) -> None:
    secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    await begins(fleet, path=f"{secret}/s.jsonl")
    await report(fleet)
    assert fleet.sql("SELECT * FROM transcripts") == []


async def test_broken_lines_are_counted_and_shown(fleet: Fleet) -> None:
    file = await begins(fleet)
    file.add(claude_line(1))
    file.add_bytes(b'{"type":"assistant","message":{"usage":\n\n')
    file.add(claude_line(2))
    told = await report(fleet)
    assert await requests(fleet) == 2
    assert (told.reading.broken_lines, told.reading.outstanding_bytes) == (1, 0)


async def test_a_line_that_is_longer_than_a_portion_is_passed_over(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portion.read_portion, "__defaults__", (1_000,))
    file = await begins(fleet)
    file.add(claude_line(1), {"type": "user", "text": "x" * 5_000}, claude_line(2))
    told = await report(fleet)
    assert await requests(fleet) == 2
    assert (told.reading.long_lines, told.reading.broken_lines) == (1, 0)


def test_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    """However large a file is, a portion of it is in memory: 40 MB here, by 256 KiB each."""
    import tracemalloc

    file = TranscriptFile(tmp_path / "s.jsonl")
    line = text_of(claude_line(1), {"type": "user", "text": "x" * 20_000})
    for _ in range(20):
        file.add_bytes(line * 100)
    assert file.path.stat().st_size > 40_000_000
    each = Transcript(path=str(file.path), harness="claude", session_id="s")
    tracemalloc.start()
    portions, told = 0, 0
    while True:
        read = read_portion(PathWalk(), each, NOON, 262_144)
        told += len(read.records)
        portions += 1
        each = Transcript(
            path=each.path,
            harness="claude",
            session_id="s",
            position=read.position,
            head=read.head,
            state=read.state,
        )
        if read.whole:
            break
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (told, each.position) == (2_000, file.path.stat().st_size)
    assert portions > 100
    assert most < 2_000_000


# What happens to the files of a session: lines come whole or torn, it is forked, or read.
STEPS = st.one_of(
    st.tuples(st.just("line"), st.integers(0, 30)),
    st.tuples(st.just("torn"), st.integers(1, 400)),
    st.tuples(st.just("fork"), st.just(0)),
    st.tuples(st.just("replace"), st.just(0)),
    st.tuples(st.just("read"), st.integers(700, 3_000)),
)


class Session:
    """The files of a session and its forks, and which messages were written whole."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.files: list[tuple[str, TranscriptFile]] = []
        self.told: set[int] = set()
        self._rest = b""

    async def begin(self, data: bytes = b"") -> None:
        name = f"{SESSION[:-2]}{len(self.files):02}"
        file = await begins(self.fleet, name)
        file.add_bytes(data)
        self.files.append((name, file))

    def write(self, number: int, torn_at: int | None = None) -> None:
        self.complete()
        line = text_of(claude_line(number))
        self.files[-1][1].add_bytes(line[:torn_at])
        self.told.add(number)
        self._rest = b"" if torn_at is None else line[torn_at:]

    def complete(self) -> None:
        """Write the rest of a torn line."""
        self.files[-1][1].add_bytes(self._rest)
        self._rest = b""

    async def do(self, what: str, number: int) -> None:
        file = self.files[-1][1]
        if what == "read":
            self.fleet.clock.pass_by(SECOND)
            portion.read_portion.__defaults__ = (number,)
            await read_transcripts(self.fleet.engine, pause_s=0)
        elif what == "line":
            self.write(number)
        elif what == "torn":
            self.write(number % 31, number)
        else:
            self.complete()
            data = file.path.read_bytes()
            if what == "fork":
                await self.begin(data)
            else:
                # Its lines are there in another order, and some twice.
                lines = sorted(data.splitlines(keepends=True), reverse=True)
                file.path.write_bytes(b"".join([*lines, *lines[:3]]))


BEGINS_AS_BEFORE = [
    *(("line", 0), ("line", 2), ("replace", 0), ("replace", 0), ("replace", 0), ("read", 700)),
    *(("line", 1), ("replace", 0)),
]


@settings(max_examples=15, deadline=None)
@example(steps=BEGINS_AS_BEFORE)
@given(steps=st.lists(STEPS, max_size=25))
def test_whatever_happens_to_files_each_request_counts_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    async def check() -> None:
        async with opened(tmp_path_factory.mktemp("fleet")) as fleet:
            session = Session(fleet)
            await session.begin()
            for what, number in steps:
                await session.do(what, number)
            session.complete()
            for name, file in session.files:
                await goes_on(fleet, file, name)
            assert await requests(fleet) == len(session.told)
            assert (await report(fleet)).reading.broken_lines == 0

    default = portion.read_portion.__defaults__
    try:
        trio.run(check)
    finally:
        portion.read_portion.__defaults__ = default


async def test_days_are_those_of_the_time_zone(fleet: Fleet) -> None:
    file = await begins(fleet)
    # Ten past eight in the evening, UTC.
    file.add(claude_line(1, NOON + 8 * HOUR + 10 * MINUTE))
    fleet.clock.pass_by(DAY)
    days = {"UTC": "05", "Asia/Kolkata": "06", "+05:45": "06", "-08:00": "05"}
    for zone, day in days.items():
        assert list(of(await report(fleet, by="day", time_zone=zone))) == [f"2026-01-{day}"]
    for zone in ("Europe/Nowhere", "../etc/passwd", "+25:00", "/etc/localtime"):
        with pytest.raises(InvalidParams, match="no time zone"):
            await report(fleet, by="day", time_zone=zone)


async def test_an_unknown_id_is_not_found(fleet: Fleet) -> None:
    for wanted in ({"mission_id": "msn-00000000"}, {"agent_id": "nobody"}):
        with pytest.raises(NotFound):
            await report(fleet, **wanted)


async def test_requests_are_kept_apart_where_a_price_may_change(fleet: Fleet) -> None:
    file = await begins(fleet)
    file.add(claude_line(1, input_tokens=1), claude_line(2, input_tokens=190_000))
    file.add(claude_line(3, input_tokens=210_000))
    [group] = (await report(fleet)).groups
    assert [each.from_input_tokens for each in group.models] == [0, 128_001, 200_001]


@pytest.fixture
def batches() -> BatchSizes:
    """Return small batches, so that a few rows are many pages."""
    return BatchSizes(rows=3, looked_at=4, records=2)


async def test_records_past_their_time_go_and_do_not_come_back(fleet: Fleet) -> None:
    file = await begins(fleet)
    file.add(*(claude_line(n) for n in range(10)))
    assert await requests(fleet) == 10
    fleet.clock.pass_by(91 * DAY)
    await tidy(fleet.engine)
    assert await requests(fleet) == 0
    await goes_on(fleet, file)
    file.path.write_bytes(text_of(claude_line(3), claude_line(50, fleet.clock())))
    assert await requests(fleet) == 1


async def test_what_is_of_tomorrow_is_not_counted(fleet: Fleet) -> None:
    file = await begins(fleet)
    file.add(claude_line(1, NOON + 3 * DAY), claude_line(2))
    assert await requests(fleet) == 1


async def test_a_session_that_is_forgotten_is_not_counted_again(fleet: Fleet) -> None:
    file = await begins(fleet)
    file.add(claude_line(1), claude_line(2))
    fleet.clock.pass_by(MINUTE)
    assert await requests(fleet) == 2
    await fleet.do(SystemForget(session_id=SESSION))
    assert fleet.sql("SELECT * FROM usage_records") == []
    assert fleet.sql("SELECT * FROM transcripts") == []
    fleet.clock.pass_by(MINUTE)
    await goes_on(fleet, file)
    file.add(claude_line(3, fleet.clock()))
    assert await requests(fleet) == 1


async def test_a_mission_that_is_forgotten_takes_its_records_and_a_deleted_one_does_not(
    fleet: Fleet,
) -> None:
    file = await begins(fleet)
    file.add(claude_line(1))
    [mission] = (await report(fleet, by="mission")).groups
    await fleet.do(UsageBudget(mission_id=mission.name or "", tokens=5))
    await fleet.do(MissionCancel(mission_id=mission.name or "", reason="x"))
    await fleet.do(MissionDelete(mission_id=mission.name or ""))
    assert of(await report(fleet, by="mission")) == {None: (1, 101, 10, 1_000, 50)}
    assert fleet.sql("SELECT * FROM budgets") == []
    second = await begins(fleet, OTHER)
    second.add(claude_line(2))
    names = [group.name for group in (await report(fleet, by="mission")).groups if group.name]
    await fleet.do(SystemForget(mission_id=names[0]))
    assert await requests(fleet) == 1


async def test_transcripts_of_sessions_that_are_gone_go(fleet: Fleet) -> None:
    file = await begins(fleet)
    file.add(claude_line(1))
    assert await requests(fleet) == 1
    fleet.sql("DELETE FROM sessions")
    fleet.clock.pass_by(HOUR)
    await tidy(fleet.engine)
    assert fleet.sql("SELECT * FROM transcripts") == []
    assert await requests(fleet) == 1


async def test_a_transcript_that_nobody_names_any_more_is_left_alone(fleet: Fleet) -> None:
    file = await begins(fleet)
    file.add(claude_line(1))
    fleet.clock.pass_by(HOUR)
    assert await requests(fleet) == 1
    assert fleet.sql("SELECT pending FROM transcripts") == [{"pending": 0}]
    await goes_on(fleet, file)
    assert await requests(fleet) == 1
    assert fleet.sql("SELECT pending FROM transcripts") == [{"pending": 1}]


async def test_budgets_of_open_missions_are_listed_with_what_was_taken(fleet: Fleet) -> None:
    file = await begins(fleet)
    file.add(*(claude_line(n) for n in range(10)))
    [mission] = (await report(fleet, by="mission")).groups
    name = mission.name or ""
    assert (await report(fleet, mission_id=name)).budget is not None
    assert (await fleet.do(BudgetList())).budgets == []
    await fleet.do(UsageBudget(mission_id=name, usd_cents=500))
    await fleet.do(UsageBudget(mission_id=name, tokens=1_000))
    [budget] = (await fleet.do(BudgetList())).budgets
    assert (budget.tokens, budget.usd_cents, budget.title) == (1_000, None, "Add login")
    assert tokens(budget.models)[0] == 10
    with pytest.raises(InvalidParams, match="not in both"):
        await fleet.do(UsageBudget(mission_id=name, tokens=1, usd_cents=1))
    await fleet.do(UsageBudget(mission_id=name))
    assert (await fleet.do(BudgetList())).budgets == []
    with pytest.raises(NotFound):
        await fleet.do(UsageBudget(mission_id="msn-00000000", tokens=1))


async def test_the_end_of_the_daemon_loses_no_transcript(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        file = await begins(fleet)
        file.add(claude_line(1))
    async with opened(tmp_path, clock=fleet.clock) as again:
        assert await requests(again) == 1
