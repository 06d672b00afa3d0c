"""What the user takes back is gone: rows, files and bytes, whatever happens meanwhile."""

from pathlib import Path

import apsw
import msgspec
import pytest
import trio
from trio.testing import MockClock

from fleetd.domain.artifacts.ingest import repair_row
from fleetd.domain.artifacts.outbox import purge
from fleetd.domain.attention import running
from fleetd.domain.core.context import BatchSizes, Context
from fleetd.domain.core.tx import Tx
from fleetd.domain.erasure import steps
from fleetd.domain.erasure.scope import ErasureTarget
from fleetd.domain.liveness import needs
from fleetd.domain.sessions.session_lifecycle import assign_mission
from fleetd.engine.lifecycle import ERASURE_RETRY_S
from fleetd.harness.report import RunningItem
from fleetd.protocol.errors import InvalidParams, InvalidState, NotFound, Storage
from fleetd.protocol.requests.agent import AgentGet, AgentHeartbeat, AgentNote, AgentRegister
from fleetd.protocol.requests.checkpoint import (
    CheckpointCreate,
    CheckpointLatest,
    CheckpointVerify,
    ErrorReport,
)
from fleetd.protocol.requests.event import CursorAdvance, EventAppend, EventList
from fleetd.protocol.requests.lock import LockAcquire, LockList
from fleetd.protocol.requests.message import MessageInbox, MessageSend
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionCreate,
    MissionDelete,
    MissionGet,
    MissionList,
    MissionStart,
    MissionUpdate,
)
from fleetd.protocol.requests.sortie import SortieProgress
from fleetd.protocol.requests.system import SystemForget
from fleetd.store.files.record_files import RecordFiles
from tests.support.erasure import SECRET, places_of, rows_with
from tests.support.fleet import Fleet, opened


async def whisper(fleet: Fleet, mission_id: str, agent: str, text: str = SECRET) -> None:
    """Say something secret in every way there is."""
    in_mission = {"mission_id": mission_id}
    await fleet.do(MissionUpdate(mission_id, description=text, metadata={"key": text}))
    await fleet.do(AgentNote(agent, text, [text], [text], idempotency_key=f"note-{agent}-{text}"))
    await fleet.do(MessageSend(agent, ["reader"], text, text, **in_mission))
    await fleet.do(MessageInbox("reader"))
    await fleet.do(LockAcquire(agent, f"/tmp/{text}", **in_mission))
    await fleet.do(EventAppend("prompt_submitted", agent_id=agent, data={"text": text}))
    await fleet.do(ErrorReport(agent, "exception", text, text, **in_mission))
    await fleet.do(CheckpointCreate(mission_id, trigger_details=text))
    position = (await fleet.do(EventList())).position
    await fleet.do(CursorAdvance("reader", f"mission:{mission_id}", position))
    await fleet.settle()


async def test_a_forgotten_mission_leaves_not_a_byte(fleet: Fleet, tmp_path: Path) -> None:
    other = await fleet.mission(title="Another")
    mission = await fleet.mission()
    await fleet.do(AgentRegister("alice", "specialist", mission_id=mission.id))
    await fleet.work(mission, 0, "alice", notes=SECRET)
    await fleet.work(mission, 0, "alice", 60, notes="changed since")
    await whisper(fleet, mission.id, "alice")
    fleet.file_of(await fleet.do(CheckpointLatest(mission.id))).write_text("damaged")
    await fleet.do(CheckpointVerify(idempotency_key="names it in a sentence"))
    assert places_of(tmp_path, SECRET)

    foreseen = await fleet.do(SystemForget(mission.id, dry_run=True))
    before = fleet.dump()
    assert await fleet.do(SystemForget(mission.id, dry_run=True)) == foreseen
    assert fleet.dump() == before
    done = await fleet.do(SystemForget(mission.id))

    assert places_of(tmp_path, SECRET, mission.id, "alice") == []
    assert foreseen.living_agents == ["alice"]
    assert [(each.mission_id, each.status) for each in foreseen.details] == [
        (mission.id, "in_progress")
    ]
    assert (done.missions, done.sorties, done.agents, done.locks, done.messages) == (1, 4, 1, 1, 1)
    assert (done.checkpoints, done.cursors, done.files) == (2, 1, 3)
    assert done.bytes == sum(each.bytes for each in foreseen.details) > 1_000
    same = msgspec.structs.replace(foreseen, dry_run=False, details=[], living_agents=[])
    assert done == same
    assert [m.id for m in (await fleet.do(MissionList())).missions] == [other.id]
    with pytest.raises(NotFound):
        await fleet.do(AgentGet("alice"))


@pytest.mark.sqlite_only("the bytes of a file are looked at")
async def test_bytes_that_were_overwritten_or_pruned_before_are_gone_too(
    fleet: Fleet, tmp_path: Path
) -> None:
    mission = await fleet.mission(1)
    for _ in range(50):
        await fleet.do(MissionUpdate(mission.id, description=SECRET * 500))
    await fleet.do(MissionUpdate(mission.id, description="harmless"))
    assert places_of(tmp_path, SECRET)

    await fleet.do(SystemForget(mission.id))

    assert places_of(tmp_path, SECRET) == []


async def test_the_end_of_the_log_never_goes_back_and_the_event_names_nothing(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    end = (await fleet.do(EventList())).position

    await fleet.do(SystemForget(mission.id))

    (event,) = await fleet.events()
    assert (event.type, event.seq, event.mission_id) == ("records_forgotten", end + 1, None)
    assert event.data == {"missions": 1, "agents": 0}


async def test_an_agent_that_works_elsewhere_stays_without_its_note(fleet: Fleet) -> None:
    first, second = await fleet.mission(1), await fleet.mission(1, title="Second")
    await fleet.do(AgentRegister("alice", "specialist", mission_id=first.id))
    await fleet.do(AgentNote("alice", last_action=SECRET))
    await fleet.work(second, 0, "alice")

    await fleet.do(SystemForget(first.id))

    alice = await fleet.do(AgentGet("alice"))
    assert (alice.note, alice.mission_id) == (None, None)
    assert (await fleet.sorties(second))[0].assigned_to == "alice"
    assert SECRET not in str(fleet.dump())


async def test_an_agent_that_stays_asks_and_runs_nothing_of_a_forgotten_mission(
    fleet: Fleet,
) -> None:
    first, second = await fleet.mission(1), await fleet.mission(2, title="Second")
    await fleet.work(second, 0, "alice")
    await fleet.work(second, 1, "bob")

    async def tell(agent: str, work: str, asked: str) -> None:
        item = RunningItem(work, "shell", f"make {SECRET}", f"/tmp/{SECRET}")
        await fleet.engine.write(running.see, agent, [item], fleet.clock.now)
        await fleet.engine.write(needs.ask, agent, asked, fleet.clock.now, 10**6)
        asks = needs.Need("permission", asked)
        await fleet.engine.write(needs.set_need, agent, asks, fleet.clock.now)

    for agent in ("alice", "bob"):
        await fleet.do(AgentRegister(agent, "specialist", mission_id=first.id))
        await fleet.do(EventAppend("prompt_submitted", agent_id=agent))
        await tell(agent, "earlier", SECRET)
    await fleet.engine.write(running.end_all, "bob")
    await fleet.do(AgentRegister("carol", "specialist", mission_id=first.id))
    asks = needs.Need("question", f"carol: {SECRET}")

    def move(tx: Tx, _: Context, agent: str, mission_id: str) -> None:
        assign_mission(tx, [agent], mission_id)

    await fleet.engine.write(needs.set_need, "carol", asks, fleet.clock.now)
    await fleet.do(AgentRegister("bob", "specialist", mission_id=second.id))
    await fleet.engine.write(move, "carol", second.id)
    await tell("bob", "now", f"{SECRET} now")

    await fleet.do(SystemForget(first.id))

    alice, bob, carol = [await fleet.do(AgentGet(each)) for each in ("alice", "bob", "carol")]
    assert (carol.needs, carol.needs_text) == ("question", None)
    assert "carol: " not in str(fleet.dump())
    assert (alice.needs, alice.needs_text) == ("permission", None)
    assert (bob.needs, bob.needs_text) == ("permission", f"{SECRET} now")
    told = {
        (row["agent_id"], row["id"], row["told"] is None, row["output"] is None)
        for row in fleet.sql("SELECT * FROM running_work")
    }
    assert told == {
        ("alice", "earlier", True, True),
        ("bob", "earlier", True, True),
        ("bob", "now", False, False),
    }
    asked = fleet.sql("SELECT agent_id, text FROM unconfirmed_asks")
    assert {row["agent_id"]: row["text"] for row in asked} == {
        "alice": None,
        "bob": f"{SECRET} now",
    }


async def test_a_session_goes_with_its_own_missions_and_leaves_the_shared_ones(
    fleet: Fleet, tmp_path: Path
) -> None:
    own, shared = await fleet.mission(1, title="Own"), await fleet.mission(2, title="Shared")
    await fleet.do(AgentRegister("alice", "specialist", session_id="s-1", mission_id=own.id))
    await fleet.do(AgentRegister("bob", "specialist", session_id="s-2", mission_id=shared.id))
    await whisper(fleet, own.id, "alice")
    await fleet.do(MessageSend("bob", ["alice"], SECRET, SECRET, shared.id))
    both = await fleet.do(MessageSend("bob", ["alice", "carol"], "For both", None, shared.id))
    await fleet.do(MessageSend("alice", ["carol"], SECRET, SECRET, shared.id))
    await fleet.work(shared, 1, "alice")
    await fleet.checkpoint(shared)

    done = await fleet.do(SystemForget(session_id="s-1"))

    assert (done.missions, done.agents, done.shared_missions) == (1, 1, 1)
    assert done.shared == [shared.id]
    with pytest.raises(NotFound):
        await fleet.do(MissionGet(own.id))
    assert len(await fleet.sorties(shared)) == 2
    assert await fleet.checkpoint_ids(shared)
    letters = (await fleet.do(MessageInbox("carol"))).messages
    assert [letter.id for letter in letters] == [both.id]
    assert (await fleet.do(AgentGet("bob"))).session_id == "s-2"
    assert rows_with(fleet, SECRET).keys() <= {"checkpoints", "events"}
    assert [e for e in await fleet.events() if e.agent_id == "alice"] == []
    assert not places_of(tmp_path, own.id)


async def test_a_project_goes_with_everything_below_it_and_nothing_beside_it(
    fleet: Fleet, tmp_path: Path
) -> None:
    root = str(fleet.project)
    here = await fleet.mission(1)
    below = await fleet.do(MissionCreate("Below", project_dir=f"{root}/deep/er"))
    beside = await fleet.do(MissionCreate("Beside", project_dir=f"{root}-2"))
    await fleet.do(AgentRegister("inside", "specialist", cwd=f"{root}/deep"))
    await fleet.do(AgentRegister("beside", "specialist", cwd=f"{root}-2", mission_id=beside.id))
    await fleet.do(LockAcquire("beside", f"{root}/{SECRET}", idempotency_key="k"))
    await fleet.do(LockAcquire("beside", f"{root}-2/kept", idempotency_key="kept"))
    fleet.sql(
        "INSERT INTO idempotency_keys SELECT method, 'told', params_digest, :result, created_at"
        " FROM idempotency_keys WHERE key = 'k'",
        result=f'{{"detail":"{below.id} of {root} is damaged"}}',
    )
    await fleet.do(EventAppend("file_modified", beside.id, "beside", {"file": f"{root}/{SECRET}"}))

    done = await fleet.do(SystemForget(project_dir=root))

    assert (done.missions, done.agents, done.locks) == (2, 1, 1)
    assert [m.id for m in (await fleet.do(MissionList())).missions] == [beside.id]
    assert [lock.file for lock in (await fleet.do(LockList())).locks] == [f"{root}-2/kept"]
    assert not places_of(fleet.database.parent, SECRET, here.id, below.id, f"{root}/")
    keys = [row["key"] for row in fleet.sql("SELECT key FROM idempotency_keys")]
    assert keys == ["kept"]
    with pytest.raises(InvalidState, match="has no records"):
        await fleet.do(SystemForget(project_dir=root))


@pytest.mark.parametrize(
    ("request_", "error", "told"),
    [
        (SystemForget(), InvalidParams, "not none of them"),
        (SystemForget("msn-1a2b", "s"), InvalidParams, "not mission_id and session_id"),
        (SystemForget(project_dir="x"), InvalidParams, "'x', which is not an absolute path"),
        (SystemForget("msn-1a2b3c4d"), NotFound, "Mission not found"),
        (SystemForget(session_id="s"), NotFound, "Session not found: s"),
    ],
)
async def test_what_cannot_be_meant_is_refused_and_changes_nothing(
    fleet: Fleet, request_: SystemForget, error: type[Exception], told: str
) -> None:
    await fleet.mission(1)
    before = fleet.dump()
    for dry_run in (True, False):
        with pytest.raises(error, match=told):
            await fleet.do(msgspec.structs.replace(request_, dry_run=dry_run))
    assert fleet.dump() == before


async def test_a_repeated_request_answers_the_same_and_the_answer_keeps_no_title(
    fleet: Fleet, tmp_path: Path
) -> None:
    mission = await fleet.mission(1, title=SECRET)
    request = SystemForget(mission.id[:8], idempotency_key="once")

    first = await fleet.do(request)

    assert await fleet.do(request) == first
    assert places_of(tmp_path, SECRET) == []


async def test_a_file_that_cannot_be_removed_is_named_and_a_later_attempt_goes_on(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = await fleet.mission(1)
    taken = await fleet.checkpoint(mission)
    real = fleet.engine.backups["checkpoint"].clear

    def refuse(mission_id: str) -> None:
        raise PermissionError(1, "Operation not permitted", str(fleet.file_of(taken)))

    monkeypatch.setattr(fleet.engine.backups["checkpoint"], "clear", refuse)
    with pytest.raises(Storage, match=f"{taken.id}.json could not be removed .Operation not"):
        await fleet.do(SystemForget(mission.id))
    assert (await fleet.again(mission)).status == "in_progress"
    assert fleet.sql("SELECT * FROM forgetting") == []

    monkeypatch.setattr(fleet.engine.backups["checkpoint"], "clear", real)
    assert (await fleet.do(SystemForget(mission.id))).missions == 1
    assert fleet.files() == {}


async def test_what_a_person_put_beside_the_files_stays_and_is_named(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    taken = await fleet.checkpoint(mission)
    orphan = fleet.file_of(taken).with_name("chk-0badf00d.json")
    orphan.write_bytes(fleet.file_of(taken).read_bytes())
    notes = orphan.with_name("notes.txt")
    notes.write_text("mine")

    done = await fleet.do(SystemForget(mission.id))

    assert done.warnings == [f"{notes} is not from fleetd and stays; remove it yourself."]
    assert list(notes.parent.iterdir()) == [notes]


async def test_what_a_restore_or_an_import_put_aside_is_named(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    aside = [
        fleet.database.parent / "replaced-20260105T120000Z",
        fleet.checkpoints.parent / "replaced-20260105T120000Z",
    ]
    for directory in aside:
        directory.mkdir(parents=True)
    old = fleet.database.with_name("squawk.json.backup")
    old.write_text("{}")
    told = [f"{path} may still hold it; remove it if you can." for path in [*aside, old]]

    assert (await fleet.do(SystemForget(mission.id, dry_run=True))).warnings == told
    assert (await fleet.do(SystemForget(mission.id))).warnings == told
    assert old.exists()


async def test_a_forgotten_mission_does_not_come_back_out_of_a_file(fleet: Fleet) -> None:
    mission = await fleet.mission(1)
    taken = await fleet.checkpoint(mission)

    await fleet.do(SystemForget(mission.id))

    with pytest.raises(InvalidState, match="was forgotten"):
        await fleet.engine.write(repair_row, taken)
    assert fleet.sql("SELECT id FROM missions") == []


async def test_the_files_that_are_being_written_meanwhile_do_not_reappear(fleet: Fleet) -> None:
    mission = await fleet.mission(4)
    for position in range(4):
        await fleet.complete(mission, position)
    # The outbox has not had its turn yet: its files come after whatever is forgotten now.
    await fleet.do(SystemForget(mission.id))
    await fleet.settle()
    assert fleet.files() == {}
    assert fleet.sql("SELECT id FROM checkpoints") == []


async def test_an_agent_that_goes_on_writing_brings_nothing_back(fleet: Fleet) -> None:
    mission = await fleet.mission(2)
    await fleet.do(AgentRegister("alice", "specialist", mission_id=mission.id))
    sortie = await fleet.work(mission, 0, "alice")
    refused: list[str] = []
    forgotten = trio.Event()

    async def work() -> None:
        while len(refused) < 6 or not forgotten.is_set():
            for request in (
                SortieProgress(sortie.id, 60, SECRET),
                CheckpointCreate(mission.id, trigger_details=SECRET),
                AgentHeartbeat("alice"),
            ):
                try:
                    await fleet.do(request)
                except NotFound as error:
                    refused.append(error.kind)
                await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        await fleet.do(SystemForget(mission.id))
        forgotten.set()
    await fleet.settle()

    assert len(refused) >= 6
    assert SECRET not in str(fleet.dump())
    assert fleet.files() == {}


async def test_who_waits_for_a_lock_gets_it_and_a_waiter_that_is_forgotten_is_told(
    fleet: Fleet, autojump_clock: trio.testing.MockClock
) -> None:
    fleet.clock.follow_trio()
    mission, other = await fleet.mission(1), await fleet.mission(1, title="Other")
    await fleet.lock(mission, "/tmp/a", "alice")
    await fleet.lock(other, "/tmp/b", "bob")
    ended: list[str] = []

    async def wait(file: str, agent: str, mission_id: str) -> None:
        request = LockAcquire(agent, file, mission_id=mission_id, wait_ms=60_000)
        try:
            ended.append((await fleet.do(request)).file)
        except NotFound as error:
            ended.append(error.message)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "/tmp/a", "bob", other.id)
        nursery.start_soon(wait, "/tmp/b", "alice", mission.id)
        await trio.sleep(1)
        await fleet.do(SystemForget(mission.id))
        nursery.cancel_scope.deadline = trio.current_time() + 5

    assert sorted(ended)[0] == "/tmp/a"
    assert "The wait for the lock has ended" in sorted(ended)[1]


async def marked(fleet: Fleet, mission_id: str) -> None:
    await fleet.engine.write(steps.step, ErasureTarget(kind="mission", name=mission_id), [])


async def test_what_cannot_be_finished_at_one_start_is_finished_at_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission(1, title=SECRET)
        gone = await fleet.mission(1)
        await marked(fleet, mission.id)
        await marked(fleet, gone.id)
        fleet.sql("DELETE FROM missions WHERE id = :id", id=gone.id)

    def refuse(self: RecordFiles, mission_id: str) -> None:
        raise PermissionError(1, "Operation not permitted", mission_id)

    with monkeypatch.context() as patched:
        patched.setattr(RecordFiles, "clear", refuse)
        async with opened(tmp_path) as fleet:
            owed = fleet.sql("SELECT name FROM forgetting WHERE kind = 'mission'")
            assert owed == [{"name": mission.id}]
            assert "could not be forgotten, fleetd tries again later" in caplog.text
    async with opened(tmp_path) as fleet:
        assert fleet.sql("SELECT * FROM forgetting") == []
        assert places_of(tmp_path, SECRET, mission.id) == []


async def test_what_cannot_be_finished_keeps_nobody_out_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission(1, title=SECRET)
        await marked(fleet, mission.id)
    tries: list[str] = []

    def refuse(self: RecordFiles, mission_id: str) -> None:
        tries.append(mission_id)
        raise PermissionError(1, "Operation not permitted", mission_id)

    monkeypatch.setattr(RecordFiles, "clear", refuse)
    async with opened(tmp_path) as fleet:
        assert (await fleet.do(MissionList())).total == 1
        assert len(tries) == 1
        monkeypatch.undo()

        await trio.sleep(ERASURE_RETRY_S + 1)

        assert fleet.sql("SELECT * FROM forgetting WHERE kind = 'mission'") == []
        assert places_of(tmp_path, SECRET, mission.id) == []


@pytest.mark.parametrize("batches", [BatchSizes(kept_answers=2)])
async def test_answers_are_searched_batch_by_batch(fleet: Fleet) -> None:
    goes, stays = await fleet.mission(1), await fleet.mission(1)
    for number in range(7):
        about = stays if number % 3 == 2 else goes
        await fleet.do(MissionUpdate(about.id, title="Other", idempotency_key=f"k{number}"))

    await fleet.do(SystemForget(goes.id))

    kept = {row["key"] for row in fleet.sql("SELECT key FROM idempotency_keys")}
    assert {key for key in kept if key.startswith("k")} == {"k2", "k5"}


@pytest.mark.sqlite_only("the file is scrubbed")
async def test_bytes_that_cannot_be_scrubbed_now_are_scrubbed_later(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await fleet.mission(1, title=SECRET), await fleet.mission(1)
    reader = apsw.Connection(str(fleet.database))
    reader.execute("BEGIN").execute("SELECT count(*) FROM missions").fetchall()
    monkeypatch.setattr("fleetd.store.sqlite.connect.BUSY_MS", 1)
    fleet.engine.store._writer_connection.set_busy_timeout(1)

    done = await fleet.do(SystemForget(first.id))

    assert "its bytes are still in free pages" in done.warnings[0]
    assert (await fleet.do(MissionList())).total == 1
    reader.close()
    assert (await fleet.do(SystemForget(second.id))).warnings == []
    assert places_of(tmp_path, SECRET) == []
    assert fleet.sql("SELECT * FROM forgetting") == []


async def test_a_deleted_mission_takes_its_cursors_and_files_without_rows_along(
    fleet: Fleet,
) -> None:
    mission = await fleet.mission(1)
    taken = await fleet.checkpoint(mission)
    fleet.file_of(taken).with_name("chk-0badf00d.json").write_text("left by a crash")
    await fleet.do(CursorAdvance("reader", f"mission:{mission.id}", 1))
    await fleet.do(CursorAdvance("reader", "fleet", 1))
    fleet.sql(
        "INSERT INTO episodes (mission_id, last_seq, detected_at) VALUES (:id, 1, '')",
        id=mission.id,
    )
    await fleet.do(MissionCancel(mission.id, "over"))

    await fleet.do(MissionDelete(mission.id))

    assert fleet.files() == {}
    assert [row["stream"] for row in fleet.sql("SELECT stream FROM cursors")] == ["fleet"]
    assert fleet.sql("SELECT * FROM episodes") == []


async def test_a_pending_mission_can_be_forgotten_too(fleet: Fleet) -> None:
    mission = await fleet.do(MissionCreate("Never begun"))
    assert (await fleet.do(SystemForget(mission.id))).missions == 1
    with pytest.raises(NotFound):
        await fleet.do(MissionStart(mission.id))
    assert await fleet.engine.write(purge, "checkpoint", ["chk-1a2b3c4d"]) == 0
