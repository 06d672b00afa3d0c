"""The plugin in OpenCode's place: node loads it, and a real daemon or none at all is behind it."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fleetctl
from fleetctl.client import Fleet
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.hook import HookStatusGet
from fleetd.protocol.requests.lock import LockAcquire
from fleetd.protocol.requests.mission import MissionList
from fleetd.protocol.requests.recovery import RecoveryList
from tests.support.processes import Daemon

NODE = shutil.which("node")
PLUGIN = Path(fleetctl.__file__).parent / "plugins" / "opencode.js"
HOST = Path(__file__).with_name("opencode_host.mjs")
SESSION = "ses_dfe88ae76ffeyjF9utykxFXhs4"
TRANSFORM = "experimental.chat.messages.transform"
COMPACTING = "experimental.session.compacting"
EXIT_S = 60

pytestmark = pytest.mark.skipif(NODE is None, reason="there is no node to load the plugin")


class OpenCodeHost:
    """OpenCode as the plugin sees it: a process that calls hooks."""

    def __init__(self, plugin: Path) -> None:
        self.process = subprocess.Popen(
            [str(NODE), str(HOST), str(plugin)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hook(self, name: str, given: Any = None, output: Any = None) -> Any:
        """Run a hook, which must not throw, and return what became of its output."""
        answer = self.answer(name, given, output)
        assert answer["threw"] is None
        return answer["output"]

    def answer(self, name: str, given: Any = None, output: Any = None) -> Any:
        """Run a hook and return everything about it."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(
            json.dumps({"hook": name, "input": given, "output": output}) + "\n"
        )
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def event(self, kind: str, **properties: Any) -> None:
        self.hook("event", {"event": {"type": kind, "properties": properties}})

    def begin(self) -> None:
        self.event("session.created", info={"id": SESSION, "directory": str(Path.cwd())})

    def prompt(self, words: str, message: str = "msg_1") -> None:
        parts = [{"type": "text", "text": words}, {"type": "text", "text": "-", "synthetic": True}]
        self.hook(
            "chat.message", {"sessionID": SESSION}, {"message": {"id": message}, "parts": parts}
        )

    def write(self, file: str, call: str = "call_1") -> dict[str, Any]:
        """Write a file as its tool does; return the answer of the hook before it."""
        about = {"tool": "write", "sessionID": SESSION, "callID": call}
        args = {"filePath": file, "content": "x" * 500_000}
        answer: dict[str, Any] = self.answer("tool.execute.before", about, {"args": args})
        self.hook("tool.execute.after", {**about, "args": args}, {"metadata": {}})
        return answer

    def compact(self) -> list[str]:
        """Compact the window; return what the prompt for the summary gets."""
        output = self.hook(COMPACTING, {"sessionID": SESSION}, {"context": []})
        self.event("message.updated", info=summary("msg_s")["info"])
        self.event("session.compacted", sessionID=SESSION)
        told: list[str] = output["context"]
        return told

    def request(self, messages: list[dict[str, Any]]) -> list[str]:
        """Return the texts of the last message that goes to the model."""
        sent = self.hook(TRANSFORM, {}, {"messages": messages})["messages"]
        return [part["text"] for part in sent[-1]["parts"] if part["type"] == "text"]

    def close(self) -> None:
        """End the process as OpenCode does, with all hooks settled."""
        self.hook("dispose")
        self.end()

    def end(self) -> None:
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
        assert self.process.wait(EXIT_S) == 0
        if self.process.stdout:
            self.process.stdout.close()


def user(message: str, kind: str = "text") -> dict[str, Any]:
    info = {"id": message, "role": "user", "sessionID": SESSION}
    return {"info": info, "parts": [{"type": kind, "text": "Go on"}]}


def summary(message: str) -> dict[str, Any]:
    info = {"id": message, "role": "assistant", "summary": True, "sessionID": SESSION}
    return {"info": info, "parts": [{"type": "text", "text": "What was done"}]}


def after_compaction(number: int) -> list[dict[str, Any]]:
    """Return the messages as OpenCode makes them after a compaction."""
    return [user(f"msg_c{number}", "compaction"), summary("msg_s"), user(f"msg_go{number}")]


@pytest.fixture
def start(home: Path) -> Iterator[Callable[[Path], OpenCodeHost]]:
    """Return a function that starts OpenCode; none outlives the test."""
    (home / "package.json").write_text('{"type": "module"}')
    shutil.copy(PLUGIN, home / "plugin.js")
    running: list[OpenCodeHost] = []

    def begin(plugin: Path = home / "plugin.js") -> OpenCodeHost:
        running.append(OpenCodeHost(plugin))
        return running[-1]

    yield begin
    for each in running:
        each.end()


@pytest.fixture
def opencode(start: Callable[[], OpenCodeHost]) -> OpenCodeHost:
    return start()


def spooled(home: Path) -> list[dict[str, Any]]:
    """Return the payloads in the spool, oldest first; every file is a whole delivery."""
    payloads = []
    for file in sorted((home / "state" / "fleet" / "spool").glob("*")):
        line = file.read_text("utf-8")
        frame = json.loads(line)
        assert line.endswith("\n")
        assert frame["method"] == "hook.deliver"
        assert file.name[13:] == f"-{frame['params']['delivery_id']}.json"
        assert file.stat().st_mode & 0o777 == 0o600
        payloads.append(json.loads(frame["params"]["payload"]))
    return payloads


def test_after_a_compaction_each_request_holds_the_briefing_once(
    daemon: Daemon, connect: Callable[[], Fleet], opencode: OpenCodeHost
) -> None:
    opencode.begin()
    opencode.prompt("Add login")
    steps = [{"content": "Write the form", "status": "in_progress", "priority": "high"}]
    opencode.event("todo.updated", sessionID=SESSION, todos=steps)
    opencode.write("form.py")
    assert opencode.request([user("msg_1")]) == ["Go on"]
    assert opencode.compact() == []
    for _ in range(2):  # OpenCode reads its messages anew before each request
        [said, briefing] = opencode.request(after_compaction(1))
        assert said == "Go on"
        assert "Add login" in briefing
        assert "Write the form" in briefing
        assert "\n- form.py\n" in briefing
    opencode.write("second.py", "call_2")
    opencode.compact()
    [_, again] = opencode.request(after_compaction(2))
    assert "second.py" in again
    opencode.event("session.idle", sessionID=SESSION)
    opencode.close()
    client = connect()
    [mission] = client.call(MissionList()).missions
    assert mission.title == "Add login"
    assert len(client.call(RecoveryList()).recoveries) == 2
    kinds = [each.type for each in client.call(EventList(limit=1_000)).events]
    assert kinds.count("window_compacted") == 2
    assert kinds.count("file_modified") == 2


def test_a_compaction_that_ends_the_turn_is_briefed_with_the_next_prompt(
    daemon: Daemon, connect: Callable[[], Fleet], opencode: OpenCodeHost
) -> None:
    opencode.begin()
    opencode.prompt("Add login")
    opencode.request([user("msg_1")])
    opencode.compact()
    opencode.event("session.idle", sessionID=SESSION)
    opencode.prompt("Go on", "msg_go1")
    [_, briefing] = opencode.request(after_compaction(1))
    assert "Add login" in briefing
    opencode.close()
    kinds = [each.type for each in connect().call(EventList(limit=1_000)).events]
    assert kinds.count("window_compacted") == 1


def test_a_compacted_session_that_is_resumed_is_briefed_anew(
    daemon: Daemon, start: Callable[[], OpenCodeHost]
) -> None:
    """What was put into the messages ended with the process that did it."""
    first = start()
    first.begin()
    first.prompt("Add login")
    first.request([user("msg_1")])
    first.compact()
    first.request(after_compaction(1))
    first.write("form.py")
    first.close()
    second = start()
    second.prompt("Go on", "msg_2")
    [_, briefing] = second.request([*after_compaction(1), user("msg_2")])
    assert "Add login" in briefing
    second.close()


def test_where_nothing_can_be_put_into_messages_the_summary_gets_the_briefing(
    daemon: Daemon, opencode: OpenCodeHost
) -> None:
    opencode.begin()
    opencode.prompt("Add login")
    [briefing] = opencode.compact()
    assert "Add login" in briefing
    opencode.close()


def test_what_is_told_within_one_millisecond_keeps_its_order(
    home: Path, opencode: OpenCodeHost
) -> None:
    opencode.begin()
    told = [f"Step {number}" for number in range(40)]
    for text in told:
        opencode.prompt(text)
    opencode.close()
    names = sorted(file.name for file in (home / "state" / "fleet" / "spool").glob("*"))
    assert len({name[:13] for name in names}) == len(names)
    heard = [each for each in spooled(home) if each["event"] == "chat.message"]
    assert len(heard) == len(told)
    assert all(f'"{text}"' in json.dumps(each) for each, text in zip(heard, told, strict=True))


def test_how_full_the_window_is_goes_with_what_is_told(home: Path, opencode: OpenCodeHost) -> None:
    def answered(message: str, model: str = "m", **info: Any) -> None:
        tokens = {"input": 1_000, "output": 20, "reasoning": 3, "cache": {"read": 400, "write": 5}}
        about = {"id": message, "role": "assistant", "sessionID": SESSION}
        model_of = {"providerID": "p", "modelID": model}
        opencode.event("message.updated", info={**about, **model_of, "tokens": tokens, **info})

    model = {"providerID": "p", "id": "m", "limit": {"context": 200_000, "output": 1}}
    opencode.begin()
    opencode.hook("chat.params", {"sessionID": SESSION, "model": model}, {})
    opencode.prompt("Add login")
    none = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    answered("msg_a", tokens=none)
    opencode.write("form.py", "call_0")
    answered("msg_a")
    answered("msg_b", tokens=none)  # the next answer begins; nothing of it is counted yet
    opencode.write("form.py", "call_1")
    answered("msg_s", summary=True, tokens={**none, "input": 9})
    opencode.compact()
    opencode.request(after_compaction(1))
    answered("msg_c", model="unheard-of")
    opencode.event("session.idle", sessionID=SESSION)
    opencode.close()
    full = {"tokens": 1_428, "size": 200_000}
    assert [(each["event"], each.get("window")) for each in spooled(home)] == [
        ("session.created", None),
        ("chat.message", None),
        ("tool.execute.before", None),
        ("tool.execute.after", None),
        ("tool.execute.before", full),
        ("tool.execute.after", full),
        ("session.compacting", full),
        ("session.compacted", None),
        ("session.idle", {"tokens": 1_428}),
        ("session.closed", {"tokens": 1_428}),
    ]


def test_the_transcript_of_a_subagent_is_not_its_parents(
    daemon: Daemon, connect: Callable[[], Fleet], opencode: OpenCodeHost
) -> None:
    opencode.begin()
    opencode.prompt("Add login")
    opencode.event("session.created", info={"id": "ses_below", "parentID": SESSION})
    given = {"tool": "bash", "sessionID": "ses_below", "callID": "c", "args": {"command": "ls"}}
    opencode.hook("tool.execute.after", given, {"metadata": {"exit": 0}})
    opencode.event("session.idle", sessionID="ses_below")
    opencode.close()
    events = connect().call(EventList(limit=1_000)).events
    [ran] = [each for each in events if each.type == "command_finished"]
    [asked] = [each for each in events if each.type == "prompt_submitted"]
    assert ran.mission_id == asked.mission_id
    assert ran.agent_id != asked.agent_id


def test_an_edit_of_a_file_that_another_agent_holds_is_refused_where_that_was_asked_for(
    daemon: Daemon,
    connect: Callable[[], Fleet],
    start: Callable[..., OpenCodeHost],
    home: Path,
) -> None:
    strict = home / "strict.js"
    text = PLUGIN.read_text("utf-8")
    assert text.count("const ARGS = []\n") == 1
    strict.write_text(text.replace("const ARGS = []\n", 'const ARGS = ["enforce-locks"]\n'))
    client = connect()
    client.call(AgentRegister(agent_id="other", role="specialist"))
    client.call(LockAcquire(file=str(Path.cwd() / "held.py"), agent_id="other"))
    lenient = start()
    lenient.begin()
    assert lenient.write("held.py")["threw"] is None
    lenient.close()
    enforcing = start(strict)
    enforcing.begin()
    assert "locked by other" in enforcing.write("held.py", "call_2")["threw"]
    assert enforcing.write("free.py", "call_3")["threw"] is None
    enforcing.close()


def test_without_a_daemon_everything_goes_to_the_spool(home: Path, opencode: OpenCodeHost) -> None:
    opencode.begin()
    opencode.prompt("Add login")
    opencode.write("form.py")
    opencode.compact()
    assert opencode.request(after_compaction(1)) == ["Go on"]
    opencode.close()
    told = spooled(home)
    assert sorted(each["event"] for each in told) == sorted(
        (
            *("session.created", "chat.message", "tool.execute.before", "tool.execute.after"),
            *("session.compacting", "session.compacted", "session.closed"),
        )
    )
    assert {each["session_id"] for each in told} == {SESSION}
    [prompt] = [each for each in told if each["event"] == "chat.message"]
    assert prompt["prompt"] == "Add login"


def test_a_daemon_that_starts_later_takes_what_the_plugin_left(
    home: Path, opencode: OpenCodeHost
) -> None:
    opencode.begin()
    opencode.prompt("Add login")
    opencode.write("form.py")
    opencode.close()
    left = len(spooled(home))
    late = Daemon(socket=home / "run" / "d.sock", log=home / "daemon.log")
    late.start()
    try:
        with Fleet(late.socket) as client:
            deadline = time.monotonic() + EXIT_S
            while spooled(home) and time.monotonic() < deadline:
                time.sleep(0.05)
            [status] = [each for each in client.call(HookStatusGet()).harnesses if each.deliveries]
            assert (status.deliveries, status.from_spool, status.unfit) == (left, left, 0)
            [mission] = client.call(MissionList()).missions
            assert mission.title == "Add login"
    finally:
        late.stop()


def test_a_daemon_that_hangs_delays_one_hook_only(home: Path, opencode: OpenCodeHost) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(home / "run" / "d.sock"))
        silent.listen(8)
        begun = time.monotonic()
        opencode.begin()
        opencode.prompt("Add login")
        for number in range(5):
            opencode.prompt("Go on", f"msg_{number}")
        taken = time.monotonic() - begun
    assert 0.5 < taken < 4  # one second of waiting, and not one for each
    assert len(spooled(home)) == 7


def test_what_is_on_its_way_when_opencode_ends_goes_to_the_spool(
    home: Path, opencode: OpenCodeHost
) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(home / "run" / "d.sock"))
        silent.listen(8)
        opencode.begin()
        opencode.write("form.py")
        assert opencode.process.stdin
        opencode.process.stdin.write('{"hook": "exit"}\n')
        opencode.end()
    events = [each["event"] for each in spooled(home)]
    assert sorted(events) == ["session.created", "tool.execute.after", "tool.execute.before"]


def test_the_spool_keeps_the_newest_thousand(home: Path, opencode: OpenCodeHost) -> None:
    directory = home / "state" / "fleet" / "spool"
    directory.mkdir(parents=True)
    for number in range(1_000):
        (directory / f"{number:013}-{number:032}.json").write_text("{}")
    opencode.begin()
    opencode.close()
    names = sorted(file.name for file in directory.iterdir())
    assert len(names) == 1_000
    assert names[0] == f"{2:013}-{2:032}.json"


ODD = (None, {}, [], 7, "x", {"sessionID": None}, {"event": {}}, {"event": {"type": "constructor"}})


def test_no_hook_throws_whatever_it_is_given(home: Path, opencode: OpenCodeHost) -> None:
    hooks = opencode.answer("dispose")["hooks"]
    events = ("session.created", "session.deleted", "message.updated", "message.part.updated")
    for name in hooks:
        for odd in ODD:
            for output in (None, {}, {"messages": [{}]}, {"parts": None}, {"context": 1}):
                opencode.hook(name, odd, output)
    for kind in (*events, "session.idle", "session.error", "session.compacted", "todo.updated"):
        for odd in ({}, {"info": None}, {"part": {"type": "tool"}}, {"sessionID": 1}):
            opencode.event(kind, **odd)


def test_the_plugin_has_one_export_and_needs_nothing_that_is_not_there() -> None:
    """OpenCode 1 and 2 read the default export only, and install nothing for it."""
    text = PLUGIN.read_text("utf-8")
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("export")] == [
        'export default { id: "fleetd", server, setup }'
    ]
    modules = [line.split('"')[1] for line in lines if line.startswith("import ")]
    assert all(module.startswith("node:") for module in modules)
    assert len(text.splitlines()) <= 510
