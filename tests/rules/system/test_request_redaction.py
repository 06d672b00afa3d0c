"""What clients send as text is stored without its secrets, by every method and in every copy."""

import json
import re
import subprocess
import typing
from pathlib import Path

import msgspec
import pytest

from fleetd.domain.redaction.requests import without_secrets
from fleetd.engine import repositories
from fleetd.protocol.errors import InvalidParams
from fleetd.protocol.methods import METHODS
from fleetd.protocol.request import Mutation
from fleetd.protocol.requests.agent import AgentNote, AgentRegister
from fleetd.protocol.requests.checkpoint import CheckpointCreate, DeclaredContext, ErrorReport
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.hook import HookDeliver
from fleetd.protocol.requests.lock import LockAcquire
from fleetd.protocol.requests.message import MessageSend
from fleetd.protocol.requests.mission import MissionCreate, MissionGet, NewSortie
from fleetd.protocol.requests.sortie import (
    SortieComplete,
    SortieFail,
    SortieProgress,
    SortieStart,
)
from tests.support.fleet import Fleet, opened
from tests.unit.secret_samples import HUNTER, LONG, TOKENS

TOKEN = TOKENS[0][1]
TEXT = f"deploy with {TOKEN} and PASSWORD={HUNTER}"
CLEAN = "deploy with [redacted:github] and PASSWORD=[redacted:password]"


def files_with(root: Path, *secrets: str) -> list[str]:
    return [
        path.name
        for path in root.rglob("*")
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in secrets)
    ]


async def test_no_file_of_the_daemon_ever_holds_the_secret(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        await everything(fleet)
        assert files_with(tmp_path, TOKEN, HUNTER, LONG) == []
        assert files_with(tmp_path, "[redacted:github]") != []
    assert files_with(tmp_path, TOKEN, HUNTER, LONG) == []


async def everything(fleet: Fleet) -> None:
    """Send the secrets by every way that holds text."""
    new = [NewSortie(f"S{n} {TEXT}", description=TEXT) for n in range(4)]
    made = MissionCreate(
        TEXT, TEXT, project_dir=str(fleet.project), metadata={"env": {"KEY": TEXT}}, sorties=new
    )
    mission = await fleet.do(made)
    await fleet.agents(mission, "dispatch-1", "specialist-1")
    one, two, *_ = await fleet.sorties(mission)
    await fleet.do(SortieStart(one.id, "specialist-1"))
    await fleet.do(SortieProgress(one.id, 50, TEXT))
    await fleet.do(SortieComplete(one.id, TEXT))
    await fleet.do(SortieFail(two.id, TEXT))
    data = {"command": TEXT, "env": {"API_KEY": LONG}, "args": ["--password", HUNTER]}
    await fleet.do(EventAppend("command_finished", mission.id, "specialist-1", data))
    await fleet.do(EventAppend("prompt_submitted", mission.id, "specialist-1", {"prompt": TEXT}))
    await fleet.do(AgentNote("specialist-1", TEXT, [TEXT], [TEXT]))
    await fleet.do(MessageSend("dispatch-1", ["specialist-1"], TEXT, TEXT, mission.id))
    await fleet.do(LockAcquire("specialist-1", "a.py", mission_id=mission.id, purpose=TEXT))
    await fleet.do(ErrorReport("specialist-1", "exception", TEXT, TEXT, mission.id))
    known = DeclaredContext(TEXT, [TEXT], [TEXT], mission_summary=TEXT)
    await fleet.do(CheckpointCreate(mission.id, trigger_details=TEXT, recovery_context=known))
    await fleet.settle()
    await fleet.restore()
    await fleet.settle()


async def test_what_is_stored_says_what_was_there(fleet: Fleet) -> None:
    mission = await fleet.mission()
    data = {"command": TEXT, "env": {"API_KEY": LONG}, "exit_code": 1}
    event = await fleet.do(EventAppend("command_finished", mission.id, "specialist-1", data))
    assert event.data == {"command": CLEAN, "env": {"API_KEY": "[redacted:key]"}, "exit_code": 1}
    taken = await fleet.checkpoint(mission, TEXT)
    assert taken.trigger_details == CLEAN
    assert CLEAN in fleet.file_of(taken).read_text()


async def test_ids_agents_and_files_are_names_and_stay(fleet: Fleet) -> None:
    name = f"agent-{TOKEN}"
    registered = await fleet.do(AgentRegister(name, "specialist", session_id=LONG))
    assert (registered.agent.id, registered.agent.session_id) == (name, LONG)
    lock = await fleet.do(LockAcquire(name, f"{fleet.project}/{TOKEN}"))
    assert lock.file == f"{fleet.project}/{TOKEN}"


async def test_a_request_with_a_secret_can_be_repeated(fleet: Fleet) -> None:
    request = MissionCreate(TEXT, idempotency_key="k")
    first = await fleet.do(request)
    assert first.title == CLEAN
    assert await fleet.do(request) == first
    with pytest.raises(InvalidParams, match="used with other parameters"):
        await fleet.do(MissionCreate("another", idempotency_key="k"))


async def test_a_title_that_grew_by_its_redaction_can_be_read_again(fleet: Fleet) -> None:
    title = " ".join(["PWD=abc"] * 62)
    made = await fleet.do(MissionCreate(title, project_dir=str(fleet.project)))
    assert len(made.title) > 500
    assert (await fleet.do(MissionGet(made.id))).title == made.title
    taken = await fleet.checkpoint(made)
    fleet.sql("UPDATE checkpoints SET locks_json = '[{' WHERE id = :id", id=taken.id)
    assert (await fleet.restore(taken)).success


async def test_a_commit_s_subject_is_redacted_too(fleet: Fleet) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(fleet.project), *arguments], check=True)

    git("init", "--quiet")
    who = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    git(*who, "commit", "--quiet", "--allow-empty", "-m", f"Use {TOKEN}")
    assert "[redacted:github]" in str(await repositories.working_tree(str(fleet.project)))


async def test_without_keeping_prompts_only_that_there_was_one_is_known(tmp_path: Path) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        said = {"prompt": "call me Ishmael", "session_id": "s1"}
        kept = await fleet.do(EventAppend("prompt_submitted", mission.id, "specialist-1", said))
        assert kept.data == said
    forgetful = tmp_path / "forgetful"
    forgetful.mkdir()
    async with opened(forgetful, keep_prompts=False) as fleet:
        mission = await fleet.mission()
        before = await fleet.again(mission)
        fleet.clock.pass_by(1_000)
        event = await fleet.do(EventAppend("prompt_submitted", mission.id, "specialist-1", said))
        assert event.data == {"session_id": "s1"}
        assert (await fleet.again(mission)).last_activity_at != before.last_activity_at
        other = await fleet.do(EventAppend("command_finished", mission.id, data={"prompt": "x"}))
        assert other.data == {"prompt": "x"}
        assert files_with(forgetful, "Ishmael") == []


async def test_what_is_imported_is_redacted_too(tmp_path: Path) -> None:
    old = {"type": "note", "timestamp": "2026-01-05T11:00:00.000Z", "data": {"text": TEXT}}
    document = {"mailboxes": {"specialist-1": {"id": "specialist-1"}}}
    document |= {"events": {"specialist-1": [old]}}
    beside = tmp_path / "data" / "squawk.json"
    beside.parent.mkdir()
    beside.write_text(json.dumps(document))
    async with opened(tmp_path) as fleet:
        assert [e.data["text"] for e in await fleet.events(kind="note")] == [CLEAN]


# Strings that are no free text and follow no pattern: each is there for a reason.
NAMES = {"idempotency_key", "progress_token", "session_id", "thread_id"}


# A payload as a CLI wrote it is cleaned as the report that is made of it, text by text.
CLEANED_LATER = {HookDeliver}
CLEANED = [k for k in METHODS.values() if issubclass(k, Mutation) and k not in CLEANED_LATER]


@pytest.mark.parametrize("kind", CLEANED)
def test_every_string_of_a_request_is_cleaned_or_a_name(kind: type[Mutation[object]]) -> None:
    for field in msgspec.inspect.type_info(kind).fields:  # type: ignore[union-attr]
        if field.name in NAMES or not re.search(r"\bStrType\(.*pattern=None", str(field.type)):
            continue
        value = sample(field.type)
        request = msgspec.structs.replace(blank(kind), **{field.name: value})
        assert TOKEN not in str(getattr(without_secrets(request), field.name)), field.name


def sample(kind: msgspec.inspect.Type) -> object:
    """Return a value of the type with a secret in its text."""
    if isinstance(kind, msgspec.inspect.UnionType):
        return sample(next(t for t in kind.types if not isinstance(t, msgspec.inspect.NoneType)))
    if isinstance(kind, msgspec.inspect.ListType):
        return [sample(kind.item_type)]
    if isinstance(kind, msgspec.inspect.DictType):
        return {"text": TEXT}
    if isinstance(kind, msgspec.inspect.StructType):
        given = {f.name: sample(f.type) for f in kind.fields if f.required or _is_text(f.type)}
        return kind.cls(**given)
    if isinstance(kind, msgspec.inspect.LiteralType):
        return kind.values[0]
    return TEXT


def _is_text(kind: msgspec.inspect.Type) -> bool:
    return isinstance(kind, msgspec.inspect.StrType) and kind.pattern is None


def blank(kind: type[Mutation[object]]) -> Mutation[object]:
    names = [f.name for f in msgspec.structs.fields(kind) if f.required]
    return kind(**typing.cast("dict[str, typing.Any]", dict.fromkeys(names, "")))
