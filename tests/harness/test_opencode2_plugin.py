"""The plugin in the place of OpenCode 2, which is played by its documented rules."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fleetctl
from fleetctl.client import Fleet
from fleetd.protocol.requests.agent import AgentList, AgentRegister
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.hook import HookStatusGet
from fleetd.protocol.requests.lock import LockAcquire
from fleetd.protocol.requests.mission import MissionList
from tests.support.processes import Daemon

NODE = shutil.which("node")
PLUGIN = Path(fleetctl.__file__).parent / "plugins" / "opencode.js"
HOST = Path(__file__).with_name("opencode2_host.mjs")
SESSION = "ses_dfe88ae76ffeyjF9utykxFXhs4"
HEADING = "## Recovery Context"
EXIT_S = 60

pytestmark = pytest.mark.skipif(NODE is None, reason="there is no node to load the plugin")


class OpenCode2Host:
    """OpenCode 2 as the plugin sees it: hooks that get one event each, and a stream of events."""

    def __init__(self, plugin: Path, how: str = "new") -> None:
        self.process = subprocess.Popen(
            [str(NODE), str(HOST), str(plugin), how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _answer(self, **said: Any) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(said) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def hook(self, name: str, **event: Any) -> Any:
        """Run a hook and return its event as it is afterwards, and what it threw."""
        return self._answer(hook=name, event={"sessionID": SESSION, "agent": "build", **event})

    def event(self, kind: str, **data: Any) -> None:
        event = {"id": "evt_1", "created": 1, "type": kind, "data": {"sessionID": SESSION, **data}}
        assert self._answer(event=event)["threw"] is None

    def prompt(self, words: str, message: str = "msg_1") -> None:
        prompt = {"text": words, "files": []}
        self.hook("session.prompt", messageID=message, prompt=prompt, delivery="steer")

    def request(self) -> list[str]:
        """Return the texts of the system prompt of one request."""
        system = [{"type": "text", "text": "You are OpenCode."}]
        answer = self.hook("session.context", system=system, messages=[], tools={}, kind="primary")
        assert answer["threw"] is None
        return [part["text"] for part in answer["event"]["system"]]

    def compact(self) -> None:
        self.hook("session.compaction", system=[], messages=[], tools={}, kind="compaction")

    def tool(self, name: str, call: str, given: Any, **ended: Any) -> str | None:
        """Call a tool; return what the hook before it threw."""
        about = {"tool": name, "id": call, "messageID": "msg_2", "input": given}
        threw: str | None = self.hook("tool.execute.before", **about)["threw"]
        if threw is None:
            self.hook("tool.execute.after", **about, **({"status": "completed"} | ended))
        return threw

    def end(self) -> None:
        if self.process.stdin and not self.process.stdin.closed:
            self._answer(end=True)
            self.process.stdin.close()
        assert self.process.wait(EXIT_S) == 0
        if self.process.stdout:
            self.process.stdout.close()


@pytest.fixture
def start(home: Path) -> Iterator[Callable[..., OpenCode2Host]]:
    """Return a function that starts OpenCode 2; none outlives the test."""
    (home / "package.json").write_text('{"type": "module"}')
    shutil.copy(PLUGIN, home / "plugin.js")
    running: list[OpenCode2Host] = []

    def begin(plugin: Path = home / "plugin.js", how: str = "new") -> OpenCode2Host:
        running.append(OpenCode2Host(plugin, how))
        return running[-1]

    yield begin
    for each in running:
        each.end()


def kinds(client: Fleet) -> list[str]:
    return [each.type for each in client.call(EventList(limit=1_000)).events]


def test_after_a_compaction_each_request_holds_the_briefing_once(
    daemon: Daemon, connect: Callable[[], Fleet], start: Callable[..., OpenCode2Host]
) -> None:
    opencode = start()
    opencode.event("session.created", title="New", agent="build")
    opencode.prompt("Add login")
    opencode.tool("write", "call_1", {"filePath": "form.py", "content": "x" * 500_000})
    failed = {"result": {"content": [], "metadata": {"exit": 1}}}
    opencode.tool("shell", "call_2", {"command": "make"}, **failed)
    opencode.tool("read", "call_3", {}, status="error", error={"message": "File not found"})
    assert opencode.request() == ["You are OpenCode."]
    for number, file in enumerate(("form.py", "second.py")):
        opencode.compact()
        for _ in range(2):
            [own, briefing] = opencode.request()
            assert own == "You are OpenCode."
            assert briefing.count(HEADING) == 1
            assert "Add login" in briefing
            assert f"\n- {file}\n" in briefing
        # The event tells what the hook has told already.
        opencode.event("session.compaction.ended", reason="auto", text="What was done")
        assert len(opencode.request()) == 2
        opencode.tool("write", f"call_{number}x", {"filePath": "second.py"})
    opencode.event("session.text.ended", text="Done.")
    opencode.event("session.execution.succeeded")
    opencode.end()
    client = connect()
    [mission] = client.call(MissionList()).missions
    assert mission.title == "Add login"
    told = kinds(client)
    assert told.count("window_compacted") == 2
    assert told.count("command_finished") == 1
    assert told.count("prompt_submitted") == told.count("agent_answered") == 1
    [status] = [each for each in client.call(HookStatusGet()).harnesses if each.deliveries]
    assert (status.harness, status.unfit) == ("opencode", 0)


def test_a_compaction_that_no_hook_announces_is_briefed_too(
    daemon: Daemon, start: Callable[..., OpenCode2Host]
) -> None:
    opencode = start()
    opencode.prompt("Add login")
    opencode.event("session.compaction.ended", reason="manual", text="What was done")
    assert len(opencode.request()) == 2


def test_a_compaction_that_failed_is_none(
    daemon: Daemon, connect: Callable[[], Fleet], start: Callable[..., OpenCode2Host]
) -> None:
    opencode = start()
    opencode.prompt("Add login")
    opencode.compact()
    opencode.event("session.compaction.failed", error={"message": "too long"})
    assert opencode.request() == ["You are OpenCode."]
    assert "window_compacted" not in kinds(connect())


@pytest.mark.parametrize("how", ["new", "resumed"])
def test_a_session_that_a_hook_tells_of_first_is_known_by_its_age(
    daemon: Daemon, connect: Callable[[], Fleet], start: Callable[..., OpenCode2Host], how: str
) -> None:
    opencode = start(how=how)
    opencode.prompt("Add login")
    opencode.event("session.created", title="New")
    opencode.end()
    [status] = [each for each in connect().call(HookStatusGet()).harnesses if each.deliveries]
    assert status.deliveries == {"new": 3, "resumed": 2}[how]


@pytest.mark.parametrize(
    ("kind", "data", "needs"),
    [
        (
            "permission.asked",
            {"action": "shell", "resources": ["git push"]},
            ("permission", "shell: git push"),
        ),
        ("question.asked", {"questions": [{"question": "Which?"}]}, ("question", "Which?")),
        (
            "form.created",
            {"form": {"sessionID": SESSION, "title": "Which?"}},
            ("question", "Which?"),
        ),
    ],
)
def test_what_waits_for_a_person_is_told_until_work_goes_on(
    daemon: Daemon,
    connect: Callable[[], Fleet],
    start: Callable[..., OpenCode2Host],
    kind: str,
    data: dict[str, Any],
    needs: tuple[str, str],
) -> None:
    opencode = start()
    opencode.prompt("Add login")
    opencode.event(kind, **data)
    client = connect()
    opencode.compact()  # is answered after all that was told before
    [agent] = client.call(AgentList()).agents
    assert (agent.status, agent.needs, agent.needs_text) == ("waiting", *needs)
    opencode.tool("shell", "call_1", {"command": "make"}, result={"metadata": {"exit": 0}})
    opencode.compact()
    [agent] = client.call(AgentList()).agents
    assert (agent.status, agent.needs) == ("active", None)


def test_an_edit_of_a_file_that_another_agent_holds_is_refused_where_that_was_asked_for(
    daemon: Daemon, connect: Callable[[], Fleet], start: Callable[..., OpenCode2Host], home: Path
) -> None:
    strict = home / "strict.js"
    text = PLUGIN.read_text("utf-8")
    strict.write_text(text.replace("const ARGS = []\n", 'const ARGS = ["enforce-locks"]\n'))
    client = connect()
    client.call(AgentRegister(agent_id="other", role="specialist"))
    client.call(LockAcquire(file=str(Path.cwd() / "held.py"), agent_id="other"))
    assert start().tool("write", "call_1", {"filePath": "held.py"}) is None
    enforcing = start(strict)
    refused = enforcing.tool("write", "call_2", {"filePath": "held.py"})
    assert refused is not None
    assert "locked by other" in refused
    assert enforcing.tool("write", "call_3", {"filePath": "free.py"}) is None


@pytest.mark.parametrize("odd", [None, 7, "x", [], {}, {"text": 7}])
def test_no_hook_throws_and_no_event_ends_the_stream_whatever_they_are(
    home: Path, start: Callable[..., OpenCode2Host], odd: Any
) -> None:
    opencode = start()
    for name in opencode.hook("session.prompt")["hooks"]:
        for fields in ({"sessionID": odd}, {"prompt": odd, "input": odd, "system": odd}):
            assert opencode.hook(name, **fields)["threw"] is None
    for kind in ("session.created", "form.created", "session.text.ended", "constructor", "x"):
        opencode.event(kind, sessionID=odd, text=odd, form=odd)
    assert opencode.request()[0] == "You are OpenCode."
