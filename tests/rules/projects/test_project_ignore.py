"""Nothing is recorded of a directory that project_ignore names."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fleetd.harness.report import ToolStarted
from fleetd.protocol.errors import InvalidState
from fleetd.protocol.request import Request
from fleetd.protocol.requests.agent import AgentHeartbeat, AgentNote, AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointCreate, ErrorReport
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.lock import LockAcquire, LockList
from fleetd.protocol.requests.message import MessageSend
from fleetd.protocol.requests.mission import MissionCreate, MissionCurrent, MissionList
from fleetd.protocol.requests.note import NoteAdd
from fleetd.protocol.requests.snapshot import (
    DeclaredDigest,
    DeclaredStep,
    SnapshotGet,
    SnapshotRecord,
)
from fleetd.protocol.requests.system import SystemForget
from tests.support.fleet import Fleet, opened
from tests.support.hook_sessions import Window

PRIVATE = "private"


def real(path: Path) -> Path:
    return path.resolve()


@pytest.fixture
async def careful(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Open an engine that ignores a directory in which an agent has registered before."""
    private = real(tmp_path) / PRIVATE
    (private / "deep").mkdir(parents=True)
    async with opened(tmp_path) as before:
        await before.do(AgentRegister("insider", "specialist", cwd=str(private)))
        await before.do(MissionCreate("Before", project_dir=str(private)))
    async with opened(tmp_path, project_ignore=[str(private)]) as fleet:
        yield fleet


@pytest.mark.parametrize(
    "request_",
    [
        MissionCreate("Mine", project_dir="{}", idempotency_key="k"),
        MissionCreate("Mine", project_dir="{}/deep/../deep"),
        AgentRegister("new", "specialist", cwd="{}/deep", session_id="s"),
        CheckpointCreate(cwd="{}"),
        LockAcquire("outsider", "{}/notes.txt"),
        LockAcquire("outsider", "notes.txt", cwd="{}"),
        AgentHeartbeat("insider"),
        AgentNote("insider", "what it did"),
        ErrorReport("insider", "exception", "Error", "text"),
        MessageSend("insider", ["outsider"], "subject"),
        LockAcquire("insider", "/elsewhere"),
        NoteAdd("finding", "It is slow", path="{}/notes.txt"),
        NoteAdd("finding", "It is slow", agent_id="insider"),
    ],
    ids=lambda request: f"{type(request).__name__}-{getattr(request, 'cwd', None)}",
)
async def test_a_request_about_an_ignored_directory_is_refused_and_leaves_no_trace(
    careful: Fleet, tmp_path: Path, request_: Request[Any]
) -> None:
    private = str(real(tmp_path) / PRIVATE)
    changes = {
        name: value.format(private)
        for name in ("cwd", "project_dir", "file", "path")
        if (value := getattr(request_, name, None))
    }
    before = careful.dump()
    with pytest.raises(InvalidState) as caught:
        await careful.do(msgspec.structs.replace(request_, **changes))
    assert f"project_ignore names {private}." in caught.value.message
    assert "remove the directory from project_ignore" in caught.value.hint
    assert careful.dump() == before


async def test_a_symlink_into_an_ignored_directory_is_the_directory(
    careful: Fleet, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / PRIVATE / "deep")
    with pytest.raises(InvalidState, match="project_ignore"):
        await careful.do(MissionCreate("Mine", project_dir=str(link)))


async def test_everything_else_goes_on(careful: Fleet, tmp_path: Path) -> None:
    beside = f"{real(tmp_path) / PRIVATE}-2"
    await careful.do(MissionCreate("Beside", project_dir=beside))
    await careful.do(AgentRegister("outsider", "specialist", cwd=beside))
    await careful.do(LockAcquire("outsider", f"{beside}/a"))
    await careful.do(LockAcquire("never-registered", f"{beside}/b"))
    assert len((await careful.do(LockList())).locks) == 2
    await careful.do(MissionCurrent(cwd=str(tmp_path / PRIVATE)))


async def test_an_agent_that_moves_out_is_recorded_again(careful: Fleet, tmp_path: Path) -> None:
    await careful.do(AgentRegister("insider", "specialist", cwd=str(tmp_path)))
    assert (await careful.do(AgentHeartbeat("insider"))).status == "active"


async def test_what_was_recorded_before_can_be_forgotten(careful: Fleet, tmp_path: Path) -> None:
    done = await careful.do(SystemForget(project_dir=str(tmp_path / PRIVATE)))
    assert (done.missions, done.agents) == (1, 1)
    assert (await careful.do(MissionList())).total == 0


@pytest.mark.parametrize("agent_id", [None, "outsider"])
@pytest.mark.parametrize(
    "data",
    [
        {"file": "{}/notes.txt"},
        {"path": "{}"},
        {"cwd": "{}/deep"},
        {"cwd": "{}/..", "file": "private/notes.txt"},
        {"cwd": "/elsewhere", "path": "{}/deep/../notes.txt"},
        {"file": "{}/no\0path"},
        {"file": "{}/" + 3_000 * "long/"},
    ],
    ids=["file", "path", "cwd", "relative", "dots", "nul", "long"],
)
async def test_a_reported_event_that_names_a_place_in_there_is_refused(
    careful: Fleet, tmp_path: Path, agent_id: str | None, data: dict[str, str]
) -> None:
    private = str(real(tmp_path) / PRIVATE)
    told = {name: text.format(private) for name, text in data.items()}
    before = careful.dump()
    with pytest.raises(InvalidState, match="project_ignore names"):
        await careful.do(EventAppend("file_modified", agent_id=agent_id, data=told))
    assert careful.dump() == before


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"file": "/elsewhere/a", "cwd": "/elsewhere"},
        {"file": "{}-2/a"},
        {"file": "private/notes.txt"},
        {"file": 7, "path": None, "cwd": ["{}"]},
        {"file": "", "path": "/no\0path"},
        {"command": "cat {}/notes.txt"},
    ],
    ids=["empty", "elsewhere", "beside", "relative", "no-text", "no-path", "in-a-text"],
)
async def test_a_reported_event_that_names_no_place_in_there_is_recorded(
    careful: Fleet, tmp_path: Path, data: dict[str, Any]
) -> None:
    private = str(real(tmp_path) / PRIVATE)
    told = {n: text.format(private) if isinstance(text, str) else text for n, text in data.items()}
    recorded = await careful.do(EventAppend("file_modified", agent_id="outsider", data=told))
    assert recorded.data == told


@pytest.mark.parametrize(
    "asked",
    [
        {"cwd": "{}/deep"},
        {"agent_id": "insider"},
        {"run_id": "run-x", "agent_id": "insider"},
        {"run_id": "before"},
        {"run_id": "session-1"},
        {"run_id": "run-x", "cwd": "{}"},
        {"run_id": "session-1", "cwd": "/elsewhere"},
        {"run_id": "run-x", "step_state": DeclaredStep(plan_path="{}/plan.md")},
        {"run_id": "run-x", "context_digest": DeclaredDigest(protected_artifacts=["x", "{}/a"])},
    ],
    ids=[
        "cwd",
        "agent",
        "both",
        "run",
        "session",
        "run within",
        "session from elsewhere",
        "plan",
        "artifact",
    ],
)
async def test_no_snapshot_tells_of_a_run_in_there_or_of_a_file(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    private = str(real(tmp_path) / PRIVATE)
    async with opened(tmp_path) as before:
        window = Window(before, "session-1", cwd=private)
        await window.tell(ToolStarted("Bash"))
        await before.do(AgentRegister("insider", "specialist", cwd=private))
        await before.do(SnapshotRecord("before", agent_id="insider"))
    request = msgspec.convert(
        json.loads(msgspec.json.encode(SnapshotRecord(**asked)).decode().replace("{}", private)),
        SnapshotRecord,
    )
    async with opened(tmp_path, project_ignore=[private]) as careful:
        rows = careful.dump()
        with pytest.raises(InvalidState, match="project_ignore names"):
            await careful.do(request)
        assert careful.dump() == rows
        taken = await careful.do(SnapshotRecord("elsewhere", cwd=str(tmp_path)))
        assert (await careful.do(SnapshotGet(taken.snapshot_id))).run_id == "elsewhere"
