"""Locks: leases, fencing tokens, paths, and waiting in order of arrival."""

import os

import pytest
import trio

from fleetd.protocol.errors import InvalidParams, InvalidState, LockConflict, NotFound
from fleetd.protocol.requests.agent import AgentDeregister, AgentHeartbeat
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.lock import (
    LockAcquire,
    LockCheck,
    LockForceRelease,
    LockList,
    LockRelease,
    LockRenew,
)
from fleetd.protocol.requests.mission import MissionUpdate
from fleetd.protocol.timestamps import to_ms
from tests.support.fleet import MINUTE, SECOND, place_of

FILE = "/srv/project/a.py"


async def acquire(fleet, agent, file=FILE, **more):
    return await fleet.do(LockAcquire(agent, file, **more))


async def valid(fleet, lock):
    return (await fleet.do(LockCheck(place_of(lock.normalized_path), lock.fencing_token))).valid


async def test_a_lease_lasts_ten_minutes_by_default(fleet):
    lock = await acquire(fleet, "spec-1")

    assert lock.timeout_ms == 600_000
    assert to_ms(lock.expires_at) - to_ms(lock.acquired_at) == 600_000
    assert (lock.status, lock.purpose, lock.held_by) == ("active", "edit", "spec-1")


async def test_a_lock_that_is_held_is_refused_with_its_holder(fleet):
    lock = await acquire(fleet, "spec-1")

    with pytest.raises(LockConflict, match=f"{FILE} is locked by spec-1 until") as refused:
        await acquire(fleet, "spec-2")

    assert refused.value.values["existing_lock"] == lock


async def test_acquiring_ones_own_lock_renews_it(fleet):
    lock = await acquire(fleet, "spec-1")
    fleet.clock.pass_by(MINUTE)

    again = await acquire(fleet, "spec-1", timeout_ms=5 * MINUTE)

    assert (again.id, again.fencing_token) == (lock.id, lock.fencing_token)
    assert again.acquired_at == lock.acquired_at
    assert to_ms(again.expires_at) == fleet.clock() + 5 * MINUTE


async def test_fencing_tokens_rise_with_every_grant_of_a_path(fleet):
    tokens = []
    for turn in range(4):
        lock = await acquire(fleet, f"spec-{turn}", timeout_ms=SECOND)
        tokens.append(lock.fencing_token)
        if turn % 2:
            await fleet.do(LockRelease(lock.id, lock.held_by))
        else:
            fleet.clock.pass_by(SECOND)
    lock = await acquire(fleet, "spec-9")
    await fleet.do(LockForceRelease(lock.id, "operator", "stuck"))
    tokens += [lock.fencing_token, (await acquire(fleet, "spec-1")).fencing_token]

    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize(("after", "still"), [(999, True), (1_000, False)])
async def test_a_token_guards_until_its_lease_ends(fleet, after, still):
    lock = await acquire(fleet, "spec-1", timeout_ms=SECOND)
    fleet.clock.pass_by(after)

    assert await valid(fleet, lock) is still
    if not still:
        with pytest.raises(InvalidState, match="is expired; its token"):
            await fleet.do(LockRenew(lock.id, "spec-1"))
        other = await acquire(fleet, "spec-2")
        assert other.fencing_token > lock.fencing_token
        assert await valid(fleet, other)
        assert not await valid(fleet, lock)
        (event,) = await fleet.events(kind="lock_expired")
        assert event.data["lock_id"] == lock.id


async def test_only_the_holder_renews_and_releases(fleet):
    lock = await acquire(fleet, "spec-1")

    for request in (LockRenew(lock.id, "spec-2"), LockRelease(lock.id, "spec-2")):
        with pytest.raises(InvalidState, match="is held by spec-1, not by spec-2"):
            await fleet.do(request)
    assert (await fleet.do(LockRelease(lock.id, "spec-1"))).status == "released"
    with pytest.raises(InvalidState, match="is released"):
        await fleet.do(LockRelease(lock.id, "spec-1"))
    with pytest.raises(NotFound, match="Lock not found: lck-00000000"):
        await fleet.do(LockRelease("lck-00000000", "spec-1"))


async def test_renewing_prolongs_by_the_old_length_or_a_new_one(fleet):
    lock = await acquire(fleet, "spec-1", timeout_ms=MINUTE)
    fleet.clock.pass_by(30 * SECOND)

    assert to_ms((await fleet.do(LockRenew(lock.id, "spec-1"))).expires_at) == (
        fleet.clock() + MINUTE
    )
    longer = await fleet.do(LockRenew(lock.id, "spec-1", 3 * MINUTE))
    assert to_ms(longer.expires_at) == fleet.clock() + 3 * MINUTE


async def test_a_lock_taken_by_force_is_no_longer_its_holders(fleet):
    lock = await acquire(fleet, "spec-1")

    forced = await fleet.do(LockForceRelease(lock.id, "operator", "stuck"))

    assert forced.status == "forced"
    assert not await valid(fleet, lock)
    (event,) = await fleet.events(kind="lock_force_released")
    assert (event.agent_id, event.data["held_by"]) == ("operator", "spec-1")
    assert event.data["reason"] == "stuck"


async def test_what_a_holder_does_renews_its_leases_each_by_its_own_length(fleet):
    mission = await fleet.mission(1)
    short = await fleet.lock(mission, "src/a.py", "spec-1", timeout_ms=2 * MINUTE)
    long = await fleet.lock(mission, "src/b.py", "spec-1", timeout_ms=20 * MINUTE)
    other = await fleet.lock(mission, "src/c.py", "spec-2", timeout_ms=2 * MINUTE)
    fleet.clock.pass_by(MINUTE)

    await fleet.do(EventAppend("file_modified", mission.id, "spec-1", {"file": "x"}))

    expires = {lock.id: to_ms(lock.expires_at) - fleet.clock() for lock in await fleet.locks()}
    assert expires == {short.id: 2 * MINUTE, long.id: 20 * MINUTE, other.id: MINUTE}


async def test_a_heartbeat_and_the_daemons_own_events_renew_nothing(fleet):
    mission = await fleet.mission(1)
    await fleet.agents(mission, "spec-1")
    lock = await fleet.lock(mission, "src/a.py", "spec-1")
    fleet.clock.pass_by(MINUTE)

    await fleet.do(AgentHeartbeat("spec-1"))
    await fleet.checkpoint(mission, trigger="compaction")

    assert await fleet.locks() == [lock]


async def test_a_lease_that_ran_out_stays_out(fleet):
    mission = await fleet.mission(1)
    lock = await fleet.lock(mission, "src/a.py", "spec-1", timeout_ms=SECOND)
    fleet.clock.pass_by(SECOND)

    await fleet.do(EventAppend("file_modified", mission.id, "spec-1", {"file": "x"}))

    assert await fleet.locks() == []
    assert not await valid(fleet, lock)


async def test_a_file_is_one_lock_by_whatever_name(fleet):
    mission = await fleet.mission(1)
    (fleet.project / "src").mkdir()
    (fleet.project / "link").symlink_to("src")
    lock = await fleet.lock(mission, "src/a.py", "spec-1")

    assert lock.file == "src/a.py"
    assert lock.normalized_path.endswith(str(fleet.project / "src" / "a.py"))
    for name in (
        str(fleet.project / "src" / "a.py"),
        f"{fleet.project}//src///a.py",
        f"{fleet.project}/x/../src/./a.py",
        f"{fleet.project}/link/a.py",
    ):
        with pytest.raises(LockConflict, match="spec-1"):
            await acquire(fleet, "spec-2", name)
        assert (await fleet.do(LockCheck(name, lock.fencing_token))).valid
    with pytest.raises(LockConflict):
        await acquire(fleet, "spec-2", "a.py", cwd=str(fleet.project / "link"))


async def test_a_relative_file_needs_something_to_be_relative_to(fleet):
    with pytest.raises(InvalidParams, match="relative path") as refused:
        await acquire(fleet, "spec-1", "src/a.py")
    assert refused.value.values["field"] == "file"
    lock = await acquire(fleet, "spec-1", "a.py", cwd="/srv")
    assert lock.normalized_path.endswith("/srv/a.py")


async def test_with_project_scope_worktrees_share_their_locks(fleet):
    async def git(*arguments, cwd):
        await trio.run_process(
            ["git", *arguments],
            cwd=cwd,
            capture_stdout=True,
            capture_stderr=True,
            env=os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull},
        )

    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    await git("init", "-q", cwd=fleet.project)
    await git(*identity, "commit", "-q", "--allow-empty", "-m", "first", cwd=fleet.project)
    tree = fleet.project.parent / "tree"
    await git("worktree", "add", "-q", str(tree), cwd=fleet.project)
    mission = await fleet.mission(1)
    await fleet.do(MissionUpdate(mission.id, metadata={"lock_scope": "machine"}))
    alone = await fleet.lock(mission, "a.py", "spec-1")
    assert (await fleet.lock(mission, str(tree / "a.py"), "spec-2")).id != alone.id

    await fleet.do(MissionUpdate(mission.id, metadata={"lock_scope": "project"}))
    shared = await fleet.lock(mission, "b.py", "spec-1")
    with pytest.raises(LockConflict, match="spec-1"):
        await fleet.lock(mission, str(tree / "b.py"), "spec-2")
    assert (await fleet.do(LockCheck(str(tree / "b.py"), shared.fencing_token))).valid


async def test_an_agent_that_leaves_gives_its_locks_back(fleet):
    mission = await fleet.mission(1)
    await fleet.agents(mission, "spec-1")
    await acquire(fleet, "spec-1")
    await fleet.do(AgentDeregister("spec-1"))

    assert await fleet.locks() == []
    assert (await acquire(fleet, "spec-2")).held_by == "spec-2"


async def test_waiters_are_served_in_order_of_arrival(fleet, autojump_clock):
    fleet.clock.follow_trio()
    first = await acquire(fleet, "spec-0")
    served = []

    async def wait(agent):
        lock = await acquire(fleet, agent, wait_ms=MINUTE)
        served.append((agent, lock.fencing_token))
        await trio.sleep(1)
        await fleet.do(LockRelease(lock.id, agent))

    async with trio.open_nursery() as nursery:
        for agent in ("spec-1", "spec-2", "spec-3"):
            nursery.start_soon(wait, agent)
            await fleet.settle()
        await fleet.do(LockRelease(first.id, "spec-0"))

    assert [agent for agent, _ in served] == ["spec-1", "spec-2", "spec-3"]
    tokens = [first.fencing_token, *(token for _, token in served)]
    assert tokens == sorted(set(tokens))
    assert fleet.sql("SELECT * FROM lock_waits") == []


async def test_a_waiter_gets_the_lock_the_moment_the_lease_ends(fleet, autojump_clock):
    fleet.clock.follow_trio()
    await acquire(fleet, "spec-1", timeout_ms=10 * SECOND)
    begun = trio.current_time()

    lock = await acquire(fleet, "spec-2", wait_ms=MINUTE)

    assert lock.held_by == "spec-2"
    assert 10 <= trio.current_time() - begun < 10.1


async def test_a_newcomer_does_not_overtake_those_who_wait(fleet, autojump_clock):
    fleet.clock.follow_trio()
    held = await acquire(fleet, "spec-1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: acquire(fleet, "spec-2", wait_ms=MINUTE))
        await fleet.settle()
        await fleet.do(LockRelease(held.id, "spec-1"))
        with pytest.raises(LockConflict, match="spec-2"):
            await acquire(fleet, "spec-3")


async def test_a_waiter_whose_client_has_gone_is_passed_over(fleet, autojump_clock):
    fleet.clock.follow_trio()
    held = await acquire(fleet, "spec-1")
    got = []

    async def wait(agent, scope):
        with scope:
            got.append((await acquire(fleet, agent, wait_ms=MINUTE)).held_by)

    gone = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "spec-2", gone)
        await fleet.settle()
        nursery.start_soon(wait, "spec-3", trio.CancelScope())
        await fleet.settle()
        gone.cancel()
        await fleet.settle()
        await fleet.do(LockRelease(held.id, "spec-1"))

    assert got == ["spec-3"]
    assert [lock.held_by for lock in await fleet.locks()] == ["spec-3"]
    assert fleet.sql("SELECT * FROM lock_waits") == []


@pytest.mark.parametrize(
    "name", ["src", "src/", ".", "./", "..", "src/.", "src/deep/..", "link", "new/", "new/."]
)
async def test_a_lock_on_a_directory_covers_all_in_it_however_it_is_named(fleet, name):
    mission = await fleet.mission(1)
    (fleet.project / "src" / "deep").mkdir(parents=True)
    (fleet.project / "link").symlink_to("src")
    held = await fleet.lock(mission, name, "spec-1")

    place = str((fleet.project / name).resolve())
    assert place_of(held.normalized_path) == place_of(held.directory) == f"{place}/"
    for file in (f"{place}/deep/b.py", place):
        with pytest.raises(LockConflict) as refused:
            await acquire(fleet, "spec-2", file)
        assert refused.value.values["existing_lock"] == held
        assert (await fleet.do(LockCheck(file))).locks == [held]
    assert (await acquire(fleet, "spec-1", f"{fleet.project}/{name}")).id == held.id
    beside = await acquire(fleet, "spec-2", f"{place}-beside")
    assert {lock.id for lock in await fleet.locks()} == {held.id, beside.id}


async def test_what_is_no_directory_yet_can_be_locked(fleet):
    mission = await fleet.mission(1)
    (fleet.project / "dangling").symlink_to("nowhere")
    for name in ("new.py", "new/deeper/a.py", "dangling", ".gitignore", "..."):
        assert (await fleet.lock(mission, name, "spec-1")).held_by == "spec-1"


async def test_a_repeated_request_is_answered_though_its_file_is_a_directory_by_now(fleet):
    mission = await fleet.mission(1)
    first = await fleet.lock(mission, "src", "spec-1", idempotency_key="once")
    (fleet.project / "src").mkdir()

    assert await fleet.lock(mission, "src", "spec-1", idempotency_key="once") == first
    # Whoever holds the file has the directory in its place.
    assert (await fleet.lock(mission, "src", "spec-1")).directory
    with pytest.raises(LockConflict):
        await fleet.lock(mission, "src", "spec-2")


async def test_a_lock_whose_file_became_a_directory_is_found_and_given_back(fleet):
    mission = await fleet.mission(1)
    lock = await fleet.lock(mission, "src", "spec-1")
    (fleet.project / "src").mkdir()

    place = str(fleet.project / "src")
    assert await valid(fleet, lock)
    assert (await fleet.do(LockList(file=place))).locks == [lock]
    assert (await fleet.do(LockRenew(lock.id, "spec-1"))).id == lock.id
    assert (await fleet.do(LockRelease(lock.id, "spec-1"))).status == "released"
