"""Codex's recorded runs through the real client and daemon, their rollout growing beside them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from fleetctl.client import Fleet
from fleetd.protocol.records import Mission
from fleetd.protocol.requests.checkpoint import CheckpointList
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.hook import HookStatusGet
from fleetd.protocol.requests.mission import MissionList
from fleetd.protocol.requests.recovery import RecoveryList
from fleetd.protocol.requests.sortie import SortieList
from tests.support.hook_client import hook

from .recorded import PAYLOADS

FOLDER = PAYLOADS / "codex"
SCHEMAS = Path(__file__).parent / "schemas"
HEADING = "## Recovery Context"
# How the briefing tells of the last failed command, with what it printed.
FAILED = """- cat nofile failed just now; its output ends:
  > Exit code 1
  > cat: nofile: No such file or directory
"""


class Run:
    """A recorded run, told again in this project's directory."""

    def __init__(self, connect: Callable[[], Fleet], name: str, rollout: str | None) -> None:
        self.client = connect()
        self.project = str(Path.cwd())
        self.transcript = Path.cwd() / "rollout-recorded.jsonl"
        lines = (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()
        self.hooks = [json.loads(line) for line in lines]
        self.rollout = self._here(rollout) if rollout else []
        self.told = 0

    def _here(self, name: str) -> list[str]:
        text = (FOLDER / f"{name}.jsonl").read_text("utf-8")
        return text.replace("/home/user/proj", self.project).splitlines(keepends=True)

    def tell(self, told: dict[str, Any], **fields: Any) -> str:
        """Run the hook for one recorded line, the rollout as long as it was at that moment."""
        self.transcript.write_text("".join(self.rollout[: told.get("lines", 0)]), "utf-8")
        raw = told["raw"].replace("/home/user/proj", self.project)
        given = {**json.loads(raw), "transcript_path": str(self.transcript), **fields}
        self.told += 1
        ran = hook(json.dumps(given), "codex")
        assert (ran.status, ran.err) == (0, b"")
        return ran.out.decode()

    def play(self, *, plans: bool = True) -> list[tuple[str, str]]:
        """Tell everything, and return what was answered to which event, silence left out."""
        answered = []
        for told in self.hooks:
            given = json.loads(told["raw"])
            if given.get("tool_name") == "update_plan" and not plans:
                continue
            if said := self.tell(told):
                answered.append((" ".join((told["ev"], given.get("source", ""))), said))
        return answered

    def values(self, kind: str, name: str) -> list[Any]:
        """Return one field of every event of a type."""
        found = self.client.call(EventList(None, kind, limit=500)).events
        return [each.data.get(name) for each in found]

    def commands(self) -> list[tuple[str, str | None]]:
        """Return every command that ended, and how, as far as that became known."""
        calls = self.values("command_finished", "call_id")
        lines = self.values("command_finished", "command")
        results = self.values("command_finished", "result")
        told = zip(calls, lines, results, strict=True)
        return list({call: (line, result) for call, line, result in told}.values())

    @property
    def mission(self) -> Mission:
        [mission] = self.client.call(MissionList()).missions
        return mission

    def steps(self) -> list[tuple[str, str]]:
        sorties = self.client.call(SortieList(self.mission.id)).sorties
        return [(each.title, each.status) for each in sorties]

    def checkpoints(self) -> list[str | None]:
        page = self.client.call(CheckpointList(self.mission.id, trigger="compaction"))
        return [each.trigger_details for each in page.checkpoints]


def briefing(said: str) -> str:
    """Return the briefing in a reply to a new window, which Codex's schema must allow."""
    allowed = json.loads((SCHEMAS / "session-start.command.output.json").read_text("utf-8"))
    given = json.loads(said)
    Draft7Validator(allowed).validate(given)
    assert given["hookSpecificOutput"]["hookEventName"] == "SessionStart"
    text: str = given["hookSpecificOutput"]["additionalContext"]
    assert text.count(HEADING) == 1
    return text


@pytest.mark.parametrize("plans", [True, False])
def test_what_no_hook_tells_comes_out_of_the_rollout_once(
    connect: Callable[[], Fleet], plans: bool
) -> None:
    run = Run(connect, "_sequence.planned", "_rollout.planned")
    [(event, said)] = run.play(plans=plans)

    assert event == "SessionStart compact"
    text = briefing(said)
    for known in ("edit a.txt", "Run tests", "\n- b.txt\n", FAILED):
        assert known in text
    assert run.mission.title == "edit a.txt"
    assert run.mission.project_dir == run.project
    assert run.checkpoints() == ["Before the auto compaction of codex-01a2016d"]
    assert run.steps() == [("Write b.txt", "completed"), ("Run tests", "in_progress")]
    files = [f"{run.project}/{name}" for name in ("a.txt", "b.txt", "b.txt")]
    assert run.values("file_modified", "file") == files
    assert run.commands() == [("false", "FAIL"), ("cat nofile", "FAIL"), ("true", "PASS")]
    assert run.values("tool_failed", "error") == [
        "Exit code 1",
        "Exit code 1\ncat: nofile: No such file or directory",
    ]
    assert len(run.values("window_compacted", "summary")) == 1
    assert run.values("agent_answered", "message") == ["DONE"]
    assert [each.state for each in run.client.call(RecoveryList()).recoveries] == ["resumed"]
    # The session is over with a step still open.
    assert run.mission.status == "cancelled"
    [status] = [each for each in run.client.call(HookStatusGet()).harnesses if each.deliveries]
    assert (status.harness, status.deliveries, status.unfit) == ("codex", run.told, 0)


def test_without_a_rollout_a_run_is_followed_as_far_as_its_hooks_tell(
    connect: Callable[[], Fleet],
) -> None:
    run = Run(connect, "_sequence", None)
    [(event, said)] = run.play()
    assert event == "SessionStart compact"
    assert "\n- a.txt\n" in briefing(said)
    assert run.commands() == [("echo hi", None), ("false", None)]
    assert run.values("tool_failed", "error") == []
    assert run.mission.status == "completed"
    assert run.steps() == []


def test_a_session_that_is_resumed_full_is_briefed_once(connect: Callable[[], Fleet]) -> None:
    run = Run(connect, "_sequence.planned", "_rollout.planned")
    named = {(told["ev"], json.loads(told["raw"]).get("source", "")): told for told in run.hooks}
    opened, prompt = named["SessionStart", "startup"], named["UserPromptSubmit", ""]
    assert run.tell(opened) == ""
    assert run.tell(prompt) == ""
    assert run.tell(named["Stop", ""]) == ""
    assert run.tell(named["SessionEnd", ""]) == ""
    assert run.tell(named["PreCompact", ""]) == ""
    assert run.tell(named["PostCompact", ""]) == ""
    answers = [
        run.tell(opened, source="resume"),
        run.tell(named["SessionStart", "compact"]),
        run.tell(prompt, prompt="go on"),
    ]
    [said] = filter(None, answers)
    assert "Run tests" in briefing(said)
    assert run.mission.status == "in_progress"


def test_an_interrupted_turn_tells_what_became_of_it(connect: Callable[[], Fleet]) -> None:
    run = Run(connect, "_sequence.planned", "_rollout.planned")
    stop = next(number for number, told in enumerate(run.hooks) if told["ev"] == "PreCompact")
    for told in run.hooks[:stop]:
        assert run.tell(told) == ""
    assert run.values("tool_failed", "error") == []
    assert run.tell(run.hooks[stop], hook_event_name="Interrupt") == ""
    assert run.commands() == [("false", "FAIL"), ("cat nofile", "FAIL"), ("true", "PASS")]
    assert run.checkpoints() == []
