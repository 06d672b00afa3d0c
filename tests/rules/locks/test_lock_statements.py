"""What a lock costs: few statements, one transaction, and a second one only for an unusual key."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fleetd.engine.engine import random_id
from fleetd.host import git
from fleetd.protocol.errors import InvalidParams, LockConflict, NotFound, Unavailable
from fleetd.protocol.records import Lock, Mission
from fleetd.protocol.requests.lock import (
    LockAcquire,
    LockForceRelease,
    LockList,
    LockRelease,
    LockRenew,
)
from fleetd.protocol.requests.mission import MissionCreate, MissionStart, MissionUpdate
from tests.support.fleet import MINUTE, Fleet, opened, place_of
from tests.support.statements import noted

HERE = "a" * 16


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of every statement that a rule runs from now on."""
    return noted(monkeypatch)


@pytest.fixture
def transactions(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of every transaction from now on, as what it was."""
    seen: list[str] = []

    def spy(kind: str) -> None:
        run = getattr(fleet.engine.store, kind)

        async def begun(rule: Any, *rest: Any) -> Any:
            seen.append(kind)
            return await run(rule, *rest)

        monkeypatch.setattr(fleet.engine.store, kind, begun)

    spy("read")
    spy("write")
    return seen


async def scoped(fleet: Fleet, scope: str, directory: Path | None = None) -> Mission:
    """Begin a mission that says how its locks are shared."""
    made = await fleet.do(
        MissionCreate(
            "m", project_dir=str(directory or fleet.project), metadata={"lock_scope": scope}
        )
    )
    return await fleet.do(MissionStart(made.id))


@pytest.mark.parametrize("named", [True, False])
async def test_a_free_lock_that_nobody_waits_for_costs_few_statements(
    fleet: Fleet, statements: list[str], named: bool
) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "spec-1")
    statements.clear()

    lock = await fleet.do(
        LockAcquire("spec-1", "/srv/a.py", mission_id=mission.id if named else None)
    )

    assert len(statements) <= 10, statements
    statements.clear()
    assert await fleet.do(LockAcquire("spec-1", "/srv/a.py")) == lock
    assert len(statements) <= 11, statements  # its history begins
    statements.clear()
    assert (await fleet.do(LockRelease(lock.id, "spec-1"))).status == "released"
    assert len(statements) <= 8, statements


async def test_a_lock_on_a_path_or_by_a_key_is_one_transaction(
    fleet: Fleet, transactions: list[str]
) -> None:
    mission = await fleet.mission()
    transactions.clear()

    lock = await fleet.do(LockAcquire("spec-1", "/srv/a.py", mission_id=mission.id))
    await fleet.do(LockAcquire("spec-1", "a.py", cwd="/srv"))
    await fleet.do(LockAcquire("spec-1", "project:/srv/widget/.git:b.py", mission_id=mission.id))
    with pytest.raises(LockConflict):
        await fleet.do(LockAcquire("spec-2", "/srv/a.py"))
    await fleet.do(LockRelease(lock.id, "spec-1"))

    assert set(transactions) == {"write"}
    assert len(transactions) == 5


async def test_only_an_unusual_key_is_asked_for_again(
    fleet: Fleet, transactions: list[str], repository: Path
) -> None:
    unusual = "machine" if fleet.engine.machine else "project"
    mission = await scoped(fleet, unusual, repository)
    transactions.clear()

    by_path = await fleet.do(
        LockAcquire(
            "spec-1", str(repository / "src/a.py"), mission_id=mission.id, idempotency_key="once"
        )
    )
    relative = await fleet.do(LockAcquire("spec-1", "src/a.py", mission_id=mission.id))

    assert transactions == ["write"] * 4
    assert by_path.normalized_path.startswith(f"{unusual}:")
    assert (relative.id, relative.normalized_path) == (by_path.id, by_path.normalized_path)
    again = LockAcquire(
        "spec-1", str(repository / "src/a.py"), mission_id=mission.id, idempotency_key="once"
    )
    assert await fleet.do(again) == by_path


async def test_a_mission_that_changes_its_mind_while_somebody_waits_is_asked_again(
    fleet: Fleet, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = await scoped(fleet, "machine", repository)
    file = str(repository / "src/a.py")
    held = await fleet.do(LockAcquire("spec-1", file, mission_id=mission.id))
    on_behalf_of = fleet.engine.on_behalf_of
    changed: list[str] = []

    def change_first(caller: Any, facts: Any = None) -> Any:
        runner = on_behalf_of(caller, facts)
        write = runner.write

        async def change(rule: Any, *args: Any, **named: Any) -> Any:
            if rule.__name__ == "enqueue" and not changed:
                changed.append(rule.__name__)
                await fleet.do(MissionUpdate(mission.id, metadata={"lock_scope": "project"}))
            return await write(rule, *args, **named)

        runner.write = change
        return runner

    monkeypatch.setattr(fleet.engine, "on_behalf_of", change_first)

    lock = await fleet.do(LockAcquire("spec-2", file, mission_id=mission.id, wait_ms=1_000))

    assert changed == ["enqueue"]
    assert place_of(held.normalized_path) == file
    assert place_of(lock.normalized_path).startswith(f"project:{repository}")


async def test_what_is_not_there_is_refused_before_what_cannot_be_locked(fleet: Fleet) -> None:
    for file in (str(fleet.project), "a.py"):
        with pytest.raises(NotFound, match="Mission not found: msn-none"):
            await fleet.do(LockAcquire("spec-1", file, mission_id="msn-none"))
    with pytest.raises(InvalidParams, match="/ is a whole repository, or more"):
        await fleet.do(LockAcquire("spec-1", "/"))
    with pytest.raises(InvalidParams, match="a relative path, and no directory"):
        await fleet.do(LockAcquire("spec-1", "a.py"))


async def test_what_is_answered_is_what_is_stored(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "spec-1")
    first = await fleet.do(LockAcquire("spec-1", "/srv/a.py", timeout_ms=MINUTE))
    assert [first] == await fleet.locks()
    fleet.clock.pass_by(MINUTE // 2)
    for request in (
        LockAcquire("spec-1", "/srv/a.py", purpose="read", timeout_ms=2 * MINUTE),
        LockAcquire("spec-1", "/srv/a.py", timeout_ms=1_000),
        LockRenew(first.id, "spec-1"),
        LockRenew(first.id[:-1], "spec-1", timeout_ms=3 * MINUTE),
        LockRelease(first.id, "spec-1"),
    ):
        assert [await fleet.do(request)] == (await fleet.do(LockList(active=False))).locks
        fleet.clock.pass_by(1)
    second = await fleet.do(LockAcquire("spec-1", "/srv/a.py"))
    ended = await fleet.do(LockForceRelease(second.id, "spec-1", "stuck"))
    assert (await fleet.do(LockList(active=False))).locks[-1] == ended
    assert (ended.status, ended.released_at) == ("forced", fleet.clock.now)


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Open the fleet of one machine of several."""
    async with opened(tmp_path / "one", machine=HERE) as fleet:
        yield fleet


async def test_a_slow_git_refuses_only_locks_that_need_to_know_the_project(
    shared: Fleet, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(*_: object) -> None:
        raise git.GitSlow

    monkeypatch.setattr(git, "ask", slow)
    mine = await scoped(shared, "machine", repository)
    ours = await scoped(shared, "project", repository)
    file = str(repository / "src/a.py")

    lock = await shared.do(LockAcquire("spec-1", file, mission_id=mine.id))

    assert lock.normalized_path == f"machine:{shared.engine.machine}:{file}"
    with pytest.raises(Unavailable, match="Git did not report"):
        await shared.do(LockAcquire("spec-1", file, mission_id=ours.id))
    with pytest.raises(Unavailable, match="Git did not report"):
        await shared.do(LockAcquire("spec-1", file))
    with pytest.raises(NotFound, match="Mission not found"):
        await shared.do(LockAcquire("spec-1", file, mission_id="msn-none"))


async def test_an_id_that_another_lock_has_is_drawn_again(tmp_path: Path) -> None:
    drawn = iter(["lck-00000001", "lck-00000001", "lck-00000002"])

    def new_id(prefix: str) -> str:
        return next(drawn) if prefix == "lck" else random_id(prefix)

    async with opened(tmp_path, new_id=new_id) as fleet:
        locks: list[Lock] = [await fleet.do(LockAcquire("one", file)) for file in ("/a", "/b")]

    assert [(lock.id, lock.fencing_token) for lock in locks] == [
        ("lck-00000001", 1),
        ("lck-00000002", 2),
    ]
