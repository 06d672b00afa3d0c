"""Gemini CLI, whose compactions show in its log only, through the real client and daemon.

The recorded payloads come in the order of a session, while the log grows as the CLI lets it grow.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.client import Fleet
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.hook import HookStatusGet
from fleetd.protocol.requests.lock import LockAcquire
from tests.support.gemini_log import GeminiLog, replaced, says
from tests.support.hook_client import hook

from .recorded import names, recorded

PROMPT = "Create hello.txt"
HEADING = "## Recovery Context"
# What happens from prompt to answer, and between the calls of the model.
TURN = (
    "BeforeAgent",
    "PreCompress",
    "BeforeTool.write_file",
    "AfterTool.write_file",
    "PreCompress",
    "BeforeTool.run_shell_command",
    "AfterTool.run_shell_command",
    "PreCompress",
    "AfterAgent",
)
TOOL = "AfterTool.run_shell_command"


class Session:
    """One session; every event has a moment of its own, as the CLI's have."""

    def __init__(self, directory: Path) -> None:
        self.log = GeminiLog(directory)
        self.log.add(replaced())
        self.told = 0
        self.passed_over = 0

    def requests(self, opening: str = "This is the context.") -> str | None:
        """Tell that a request is about to be sent; return what it then begins with, if changed."""
        self.passed_over += 1
        messages = [{"role": "user", "content": opening}, {"role": "user", "content": PROMPT}]
        request = {"model": "gemini-2.5-pro", "messages": messages, "config": {}}
        said = self.tell("BeforeModel", "no-spool", llm_request=request)
        if not said:
            return None
        [(channel, output)] = json.loads(said).items()
        assert (channel, output["hookEventName"]) == ("hookSpecificOutput", "BeforeModel")
        assert sorted(output) == ["hookEventName", "llm_request"]
        [changed] = output["llm_request"].pop("messages")
        assert output["llm_request"] == {}
        assert changed.pop("role") == "user"
        return str(changed.pop("content"))

    def tell(self, name: str, *words: str, **fields: Any) -> str:
        """Run the hook for a recorded payload and return what it printed."""
        self.told += 1
        given = {
            **recorded("gemini", name),
            "cwd": str(Path.cwd()),
            "transcript_path": str(self.log.path),
            "timestamp": f"2026-11-21T20:14:22.{self.told:03}Z",
            **fields,
        }
        if name.endswith("write_file"):
            written = {"filePath": str(Path.cwd() / "hello.txt"), "isNewFile": True}
            given["tool_response"] = {"llmContent": "Written.", "returnDisplay": written}
        ran = hook(json.dumps(given), "gemini", *words)
        assert (ran.status, ran.err) == (0, b"")
        return ran.out.decode()

    def turn(self, first: str) -> None:
        """Play a whole turn in which nobody is told anything; its prompt gets this id."""
        for name in TURN:
            assert self.tell(name) == ""
            if name == "BeforeAgent":
                self.log.add(says(first))
        self.log.add(says(f"{first}, answered"))

    def briefed(self, name: str, **fields: Any) -> bool:
        """Tell an event, and return whether the answer is a briefing and nothing else."""
        said = self.tell(name, **fields)
        if not said:
            return False
        [(channel, output)] = json.loads(said).items()
        assert channel == "hookSpecificOutput"
        assert sorted(output) == ["additionalContext", "hookEventName"]
        assert output["hookEventName"] == name.partition(".")[0]
        assert output["additionalContext"].count(HEADING) == 1
        for known in (PROMPT, "\n- hello.txt\n", "- false failed just now"):
            assert known in output["additionalContext"]
        return True


@pytest.fixture
def session(connect: Callable[[], Fleet], tmp_path: Path) -> Iterator[Session]:
    """Return a session that has gone through its first turn."""
    begun = Session(tmp_path)
    assert begun.tell("SessionStart") == ""
    begun.turn("first")
    yield begun
    [status] = [each for each in connect().call(HookStatusGet()).harnesses if each.deliveries]
    assert (status.harness, status.unfit) == ("gemini", 0)
    assert status.deliveries == begun.told - begun.passed_over


def kinds(client: Fleet) -> list[str]:
    return [each.type for each in client.call(EventList(limit=1_000)).events]


def test_each_compaction_is_briefed_once_with_the_next_tool(
    session: Session, connect: Callable[[], Fleet]
) -> None:
    assert not session.briefed("BeforeAgent")
    for number in range(2):
        assert session.tell("PreCompress") == ""
        session.log.add(replaced(f"summary {number}", "thanks", "second"))
        assert session.tell("BeforeTool.run_shell_command") == ""
        assert session.briefed(TOOL)
        session.log.add(says("and on"))
        assert not session.briefed(TOOL)
    assert session.tell("AfterAgent") == ""
    assert not session.briefed("BeforeAgent")
    assert session.tell("SessionEnd") == ""
    assert kinds(connect()).count("window_compacted") == 2


def test_a_compaction_after_the_last_tool_is_briefed_with_the_next_prompt(
    session: Session,
) -> None:
    session.log.add(replaced("summary", "thanks"), says("answered"))
    assert session.briefed("BeforeAgent")
    assert not session.briefed(TOOL)
    assert not session.briefed("BeforeAgent")


def test_a_request_after_a_compaction_holds_the_briefing_until_a_lasting_one_is_given(
    session: Session, connect: Callable[[], Fleet]
) -> None:
    assert session.requests() is None
    session.log.add(replaced("summary", "thanks"))
    for _ in range(2):
        changed = session.requests("The <context>")
        assert changed is not None
        begin, heading, rest = changed.partition("\n\n<hook_context>")
        assert (begin, heading) == ("The <context>", "\n\n<hook_context>")
        assert rest.count(HEADING) == 1
        assert rest.count("<") == 1
        assert PROMPT in rest
    # Nothing was recovered, and nothing was recorded.
    client = connect()
    assert not {"window_compacted", "recovery_briefed"} & {*kinds(client)}
    assert session.briefed(TOOL)
    assert session.requests() is None
    assert kinds(client).count("window_compacted") == 1


@pytest.mark.parametrize(
    "request_", [None, 7, {}, {"messages": []}, {"messages": [7]}, {"messages": [{"content": 7}]}]
)
def test_a_request_that_cannot_be_repeated_stays_as_it_is(session: Session, request_: Any) -> None:
    session.log.add(replaced("summary", "thanks"))
    session.passed_over += 1
    assert session.tell("BeforeModel", llm_request=request_) == ""
    assert session.briefed("BeforeAgent")


def test_a_request_of_a_session_that_nobody_has_heard_of_stays_as_it_is(
    session: Session,
) -> None:
    session.passed_over += 1
    request = {"messages": [{"role": "user", "content": "x"}]}
    assert session.tell("BeforeModel", session_id="other", llm_request=request) == ""


def test_a_session_that_goes_on_in_a_new_process_is_not_compacted(
    session: Session, tmp_path: Path, connect: Callable[[], Fleet]
) -> None:
    assert session.tell("SessionEnd") == ""
    session.log = GeminiLog(tmp_path, "later")
    assert session.tell("SessionStart", source="resume") == ""
    session.log.add(replaced("first", "first, answered"))
    session.turn("second")
    assert kinds(connect()).count("window_compacted") == 0


@pytest.mark.parametrize("shows", [True, False])
def test_a_compaction_that_a_person_asked_for_is_briefed_if_the_log_shows_it(
    session: Session, shows: bool
) -> None:
    assert session.tell("PreCompress", trigger="manual") == ""
    if shows:
        session.log.add(replaced("summary", "thanks"))
    assert session.briefed("BeforeAgent") == shows
    assert not session.briefed(TOOL)
    assert not session.briefed("BeforeAgent")


def test_an_edit_of_what_another_agent_holds_is_refused(
    session: Session, connect: Callable[[], Fleet]
) -> None:
    held = str(Path.cwd() / "hello.txt")
    assert session.tell("BeforeTool.write_file", "enforce-locks") == ""
    connect().call(LockAcquire("rival", held))
    assert session.tell("BeforeTool.write_file") == ""
    said = json.loads(session.tell("BeforeTool.write_file", "enforce-locks"))
    assert sorted(said) == ["decision", "reason"]
    assert said["decision"] == "deny"
    assert said["reason"].startswith(f"{held} is locked by rival since")
    assert session.tell("BeforeTool.run_shell_command", "enforce-locks") == ""


def test_every_recorded_payload_passes_also_when_claudes_settings_sent_it(
    connect: Callable[[], Fleet],
) -> None:
    for name in names("gemini"):
        assert hook(json.dumps(recorded("gemini", name)), "claude").silent
    [status] = [each for each in connect().call(HookStatusGet()).harnesses if each.deliveries]
    kept = [name for name in names("gemini") if name != "BeforeModel"]
    assert (status.harness, status.deliveries) == ("gemini", len(kept))
    assert status.unfit == 0
