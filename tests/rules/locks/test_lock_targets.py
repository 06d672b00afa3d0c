"""Locks on directories and patterns, shared locks, and who waits for whom."""

import itertools
import random
from pathlib import Path

import pytest
import trio
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from fleetd.domain.locks.targets import Target, literal_of, overlap, parse_pattern
from fleetd.protocol.errors import InvalidParams, InvalidState, LockConflict
from fleetd.protocol.records import Lock
from fleetd.protocol.requests.agent import AgentDeregister
from fleetd.protocol.requests.checkpoint import CheckpointCreate
from fleetd.protocol.requests.lock import (
    LockAcquire,
    LockCheck,
    LockForceRelease,
    LockList,
    LockRelease,
    LockRenew,
)
from fleetd.protocol.requests.mission import MissionUpdate
from fleetd.protocol.requests.recovery import RecoveryRestore
from fleetd.protocol.timestamps import to_ms
from fleetd.protocol.types import LockMode
from tests.support import shared_store
from tests.support.fleet import MINUTE, SECOND, Fleet
from tests.support.git import git


@pytest.fixture
async def repository(fleet: Fleet) -> Fleet:
    """Return a fleet whose project is a repository."""
    (fleet.project / "src" / "parser").mkdir(parents=True)
    git(fleet.project, "init", "-q")
    return fleet


async def hold(fleet: Fleet, agent: str, what: str, *, below: str = "", **more: object) -> Lock:
    """Lock a pattern if it has a wildcard, else a file, seen from a directory of the project."""
    cwd = str(fleet.project / below)
    name = "pattern" if "*" in what or "?" in what or "[" in what else "file"
    request = LockAcquire(agent, cwd=cwd, **{name: what}, **more)  # type: ignore[arg-type]
    return await fleet.do(request)


async def is_refused(fleet: Fleet, agent: str, what: str, **more: object) -> LockConflict:
    with pytest.raises(LockConflict) as refused:
        await hold(fleet, agent, what, **more)  # type: ignore[arg-type]
    return refused.value


async def test_a_pattern_keeps_others_from_its_files_and_from_nothing_else(
    repository: Fleet,
) -> None:
    held = await hold(repository, "alice", "src/parser/**/*.py")

    assert (held.file, held.mode) == ("src/parser/**/*.py", "exclusive")
    assert held.directory.endswith(("/project/src/parser/", "project/.git:src/parser/"))
    assert held.normalized_path == f"{held.directory}**/*.py"
    for taken in ("src/parser/a.py", "src/parser/x/b.py", "src/", "src/parser/x/", "**/a.py"):
        error = await is_refused(repository, "bob", taken)
        assert error.values["existing_lock"] == held
        assert error.message.startswith(
            f"{taken} overlaps src/parser/**/*.py, which is locked by alice until"
        )
    for free in ("src/parser/a.txt", "src/a.py", "src/*.md", "lib/", "src/lexer/**"):
        assert (await hold(repository, "bob", free)).held_by == "bob"
    # As in .gitignore, a directory that matches is covered whole: there may be x.md/y.py.
    assert "overlaps" in (await is_refused(repository, "bob", "src/parser/*.md")).message
    # Its holder may have more of it at once.
    assert (await hold(repository, "alice", "src/parser/a.py")).id != held.id


async def test_a_class_of_characters_may_overlap_and_says_so(repository: Fleet) -> None:
    await hold(repository, "alice", "src/[a-m]*.py")
    assert (await hold(repository, "bob", "src/z.py")).held_by == "bob"  # a file is known exactly
    assert (await hold(repository, "bob", "src/*.md")).held_by == "bob"
    error = await is_refused(repository, "bob", "src/[n-z]*.py")
    assert "may overlap src/[a-m]*.py, which is locked by alice" in error.message


async def test_patterns_are_seen_from_the_directory_and_symlinks_are_followed(
    repository: Fleet,
) -> None:
    (repository.project / "link").symlink_to("src")
    up = await hold(repository, "alice", "../*.md", below="src")
    assert up.normalized_path == f"{up.directory}*.md"
    assert (await hold(repository, "alice", "./*.md")).id == up.id
    assert await is_refused(repository, "bob", "README.md")
    assert (await hold(repository, "bob", "src/README.md")).held_by == "bob"

    linked = await hold(repository, "alice", "link/*.rs")
    assert linked.directory == f"{up.directory}src/"
    assert await is_refused(repository, "bob", "src/a.rs")


async def test_a_pattern_without_a_slash_matches_at_any_depth(repository: Fleet) -> None:
    await hold(repository, "alice", "*.sql", below="src")
    for taken in ("src/a.sql", "src/parser/deep/b.sql"):
        assert await is_refused(repository, "bob", taken)
    assert (await hold(repository, "bob", "a.sql")).held_by == "bob"


@pytest.mark.skipif(bool(shared_store.SERVER), reason="there every machine has a name")
async def test_worktrees_share_patterns_only_where_the_mission_says_so(
    repository: Fleet, tmp_path: Path
) -> None:
    for name, value in (("user.name", "a"), ("user.email", "a@b")):
        git(repository.project, "config", name, value)
    git(repository.project, "commit", "-q", "--allow-empty", "-m", "first")
    git(repository.project, "worktree", "add", "-q", str(tmp_path / "tree"))
    mission = await repository.mission(1)
    await repository.agents(mission, "alice", "bob")
    await hold(repository, "alice", "src/**")
    tree = str(tmp_path / "tree")
    assert await repository.do(LockAcquire("bob", pattern="src/*.py", cwd=tree))

    await repository.do(MissionUpdate(mission.id, metadata={"lock_scope": "project"}))
    shared = await hold(repository, "alice", "lib/**")
    assert shared.normalized_path.startswith("project:")
    with pytest.raises(LockConflict, match=r"overlaps lib/\*\*, which is locked by alice"):
        await repository.do(LockAcquire("bob", pattern="lib/*.py", cwd=tree))
    with pytest.raises(LockConflict):
        await repository.do(LockAcquire("bob", "lib/new/", cwd=tree))
    found = await repository.do(LockCheck(f"{tree}/lib/a.py", cwd=tree))
    assert [lock.id for lock in found.locks] == [shared.id]
    assert found.paths == {shared.id: "lib/**"}


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("**", "covers everything"),
        ("*", "covers everything"),
        ("./**/*", "covers everything"),
        ("**/", "covers everything"),
        ("***", "covers everything"),
        ("?*", "covers everything"),
        ("**/?*/", "covers everything"),
        ("/src/**", "it is absolute"),
        ("~/src/**", "it is absolute"),
        ("../*.py", "leaves"),
        ("src/../../*.py", "leaves"),
        ("out/**", "leaves"),
        ("*/../a.py", r"goes up with \.\. from a wildcard"),
        ("!src/*.py", "it excludes files"),
        ("#*", "it is a comment"),
        ("*.py ", "begins or ends with a blank"),
        ("*.py /.", "its last name ends with a blank"),
        ("src/a*\\", "it has a backslash before a slash, or at its end"),
        ("src\\/a*", "it has a backslash before a slash, or at its end"),
        ("src/[z-a]*", "it matches no file"),
        ("a*b*c*d*.py", r"more than 3 times \*"),
        ("**/a/**/b/**/c/**/d", r"more than 3 times \*\*"),
        ("./.", "it names no file"),
    ],
)
async def test_a_pattern_that_cannot_be_meant_is_refused_with_the_reason(
    repository: Fleet, tmp_path: Path, pattern: str, why: str
) -> None:
    (repository.project / "out").symlink_to(tmp_path / "elsewhere")
    for wait_ms in (0, MINUTE):
        with pytest.raises(InvalidParams, match=why) as refused:
            await repository.do(
                LockAcquire("alice", pattern=pattern, cwd=str(repository.project), wait_ms=wait_ms)
            )
        assert refused.value.values["field"] == "pattern"
    assert await repository.locks() == []


async def test_a_whole_repository_is_locked_only_when_that_is_said(repository: Fleet) -> None:
    for what in ({"pattern": "**"}, {"file": "."}):
        with pytest.raises(InvalidParams, match=r"whole repository|everything"):
            await repository.do(LockAcquire("alice", cwd=str(repository.project), **what))
        held = await repository.do(
            LockAcquire("alice", cwd=str(repository.project), all=True, **what)
        )
        assert await is_refused(repository, "bob", "any/file.py")
        await repository.do(LockRelease(held.id, "alice"))


async def test_one_of_file_and_pattern_is_given(fleet: Fleet) -> None:
    for both in ({}, {"file": "/a", "pattern": "b*"}):
        with pytest.raises(InvalidParams, match="needs a file or a pattern"):
            await fleet.do(LockAcquire("alice", cwd="/", **both))


async def test_shared_locks_exclude_exclusive_ones_and_not_each_other(repository: Fleet) -> None:
    first = await hold(repository, "alice", "src/", mode="shared")
    second = await hold(repository, "bob", "src/**/*.py", mode="shared")
    third = await hold(repository, "carol", "src/a.py", mode="shared")

    assert len({first.fencing_token, second.fencing_token, third.fencing_token}) == 3
    found = await repository.do(LockCheck(f"{repository.project}/src/a.py", second.fencing_token))
    assert (found.valid, [lock.id for lock in found.locks]) == (
        True,
        [first.id, second.id, third.id],
    )
    assert (await repository.do(LockCheck(f"{repository.project}/src/a.py", 99))).valid is False
    assert (await repository.do(LockCheck(f"{repository.project}/src/a.py"))).valid is None
    for agent in ("alice", "dave"):
        error = await is_refused(repository, agent, "src/a.py")
        assert error.values["existing_lock"].mode == "shared"

    for lock in (first, second):
        await repository.do(LockRelease(lock.id, lock.held_by))
    # The last one who reads may write.
    own = await hold(repository, "carol", "src/a.py")
    assert (own.id, own.mode, own.fencing_token) == (third.id, "exclusive", third.fencing_token)
    assert await is_refused(repository, "alice", "src/a.py", mode="shared")


class Line:
    """Agents that wait, and the order in which they were served."""

    def __init__(self, fleet: Fleet, nursery: trio.Nursery) -> None:
        self.fleet, self.nursery = fleet, nursery
        self.got: list[str] = []
        self.locks: dict[str, Lock] = {}

    async def wait(self, agent: str, what: str, **more: object) -> trio.CancelScope:
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                lock = await hold(self.fleet, agent, what, wait_ms=10 * MINUTE, **more)
                self.got.append(agent)
                self.locks[agent] = lock

        self.nursery.start_soon(run)
        await self.fleet.settle()
        return scope

    async def release(self, lock: Lock) -> None:
        await self.fleet.do(LockRelease(lock.id, lock.held_by))
        await self.fleet.settle()


async def test_one_who_waits_to_write_keeps_new_readers_out(repository: Fleet) -> None:
    reading = await hold(repository, "alice", "src/", mode="shared")
    async with trio.open_nursery() as nursery:
        line = Line(repository, nursery)
        await line.wait("bob", "src/*.py")
        error = await is_refused(repository, "carol", "src/a.py", mode="shared")
        assert "locked by alice" in error.message
        assert "and bob waits for src/*.py first" in error.message
        assert (await hold(repository, "carol", "src/a.md", mode="shared")).held_by == "carol"
        await line.wait("dave", "src/a.py", mode="shared")
        await line.wait("erin", "src/b.py", mode="shared")
        # Who reads already goes on.
        assert (await hold(repository, "alice", "src/", mode="shared")).id == reading.id
        assert line.got == []
        await line.release(reading)
        assert line.got == ["bob"]
        await line.release(line.locks["bob"])
        assert sorted(line.got[1:]) == ["dave", "erin"]


async def test_who_gives_up_waiting_to_write_lets_those_behind_read(repository: Fleet) -> None:
    await hold(repository, "alice", "src/", mode="shared")
    async with trio.open_nursery() as nursery:
        line = Line(repository, nursery)
        writing = await line.wait("bob", "src/a.py")
        await line.wait("carol", "src/**", mode="shared")
        assert line.got == []
        writing.cancel()
        await repository.settle()
        assert line.got == ["carol"]
    assert repository.sql("SELECT * FROM lock_waits") == []


async def test_overlapping_waits_are_served_in_order_of_arrival(repository: Fleet) -> None:
    held = await hold(repository, "alice", "src/")
    async with trio.open_nursery() as nursery:
        line = Line(repository, nursery)
        for agent, what in (
            ("bob", "src/a.py"),
            ("carol", "src/*.py"),
            ("dave", "src/a.py"),
            ("erin", "src/b.md"),
        ):
            await line.wait(agent, what)
        await line.release(held)
        assert sorted(line.got) == ["bob", "erin"]
        # Carol's pattern comes before whoever asks now, also for a file that is free.
        error = await is_refused(repository, "frank", "src/c.py")
        assert "carol waits for src/*.py first" in error.message
        await line.release(line.locks["bob"])
        assert line.got[2:] == ["carol"]
        await line.release(line.locks["carol"])
        assert line.got[2:] == ["carol", "dave"]


async def test_nobody_waits_for_those_who_wait_for_a_lock_of_theirs(repository: Fleet) -> None:
    held = await hold(repository, "alice", "src/a.py")
    async with trio.open_nursery() as nursery:
        line = Line(repository, nursery)
        await line.wait("bob", "src/")
        await line.wait("carol", "src/b.py")
        mine = await hold(repository, "alice", "src/b.py")
        assert mine.held_by == "alice"
        await line.release(held)
        assert line.got == []
        await line.release(mine)
        assert line.got == ["bob"]
        await line.release(line.locks["bob"])
        assert line.got == ["bob", "carol"]


async def test_a_pattern_that_runs_out_is_given_to_the_next(repository: Fleet) -> None:
    await hold(repository, "alice", "src/**", timeout_ms=SECOND)
    async with trio.open_nursery() as nursery:
        line = Line(repository, nursery)
        await line.wait("bob", "src/a.py")
        await line.wait("carol", "src/b.py")
        repository.clock.pass_by(SECOND)
        error = await is_refused(repository, "dave", "src/a.py")
        assert error.values["existing_lock"].held_by == "bob"
        await repository.settle()
        # Carol's own look comes with the end of the lease.
        await is_refused(repository, "dave", "src/b.py")
        await repository.settle()
        assert sorted(line.got) == ["bob", "carol"]
    [event] = await repository.events(kind="lock_expired")
    assert event.data["file"] == "src/**"


async def test_force_and_leaving_serve_those_who_wait_for_a_part(repository: Fleet) -> None:
    await repository.agents(await repository.mission(1), "alice", "bob", "carol")
    held = await hold(repository, "alice", "src/**")
    async with trio.open_nursery() as nursery:
        line = Line(repository, nursery)
        await line.wait("bob", "src/a.py")
        await repository.do(LockForceRelease(held.id, "operator", "stuck"))
        await repository.settle()
        assert line.got == ["bob"]
        await line.wait("carol", "src/")
        await repository.do(AgentDeregister("bob", "done"))
        await repository.settle()
        assert line.got == ["bob", "carol"]


async def test_leases_on_patterns_are_renewed_released_and_listed(repository: Fleet) -> None:
    held = await hold(repository, "alice", "src/*.py", timeout_ms=MINUTE)
    directory = await hold(repository, "alice", "lib/")
    here = str(repository.project)
    repository.clock.pass_by(SECOND)

    again = await repository.do(LockRenew(held.id, "alice"))
    assert to_ms(again.expires_at) == repository.clock() + MINUTE
    page = await repository.do(LockList(cwd=here, here=True))
    assert page.paths == {held.id: "src/*.py", directory.id: "lib/"}
    for request, wanted in (
        (LockList(pattern="src/*.py", cwd=here), held),
        (LockList(pattern="../src/*.py", cwd=f"{here}/lib"), held),
        (LockList(file=f"{here}/lib/"), directory),
    ):
        assert [lock.id for lock in (await repository.do(request)).locks] == [wanted.id]
    assert (await repository.do(LockRelease(held.id, "alice"))).status == "released"
    with pytest.raises(InvalidState, match="is released"):
        await repository.do(LockRelease(held.id, "alice"))


async def test_a_recovery_gives_directories_patterns_and_shared_locks_back(
    repository: Fleet,
) -> None:
    mission = await repository.mission(1)
    await repository.agents(mission, "alice", "bob", "carol")
    before = [
        await hold(repository, "alice", "src/"),
        await hold(repository, "alice", "*.md", mode="shared"),
        await hold(repository, "bob", "README.md", mode="shared"),
        await hold(repository, "alice", "lib/*.py"),
    ]
    taken = await repository.do(CheckpointCreate(mission.id))
    assert {lock.id: lock for lock in taken.active_locks} == {lock.id: lock for lock in before}
    for lock in before:
        await repository.do(LockRelease(lock.id, lock.held_by))
    # Carol has a part of one by now: that one stays hers, unless force is said.
    part = await hold(repository, "carol", "lib/a.py")

    done = await repository.do(RecoveryRestore(checkpoint_id=taken.id))
    held = {(lock.file, lock.held_by, lock.mode) for lock in await repository.locks()}
    assert held == {
        ("src/", "alice", "exclusive"),
        ("*.md", "alice", "shared"),
        ("README.md", "bob", "shared"),
        ("lib/a.py", "carol", "exclusive"),
    }
    assert any("lib/*.py held by carol" in error for error in done.errors)

    repository.clock.pass_by(MINUTE)
    await repository.do(RecoveryRestore(checkpoint_id=taken.id, force_locks=True))
    held = {(lock.file, lock.held_by, lock.mode) for lock in await repository.locks()}
    assert held == {(lock.file, lock.held_by, lock.mode) for lock in before}
    assert not (
        await repository.do(LockCheck(f"{repository.project}/lib/a.py", part.fencing_token))
    ).valid


async def test_activity_prolongs_all_forms(repository: Fleet) -> None:
    mission = await repository.mission(1)
    await repository.agents(mission, "alice")
    held = [await hold(repository, "alice", what, timeout_ms=MINUTE) for what in ("src/", "*.md")]
    repository.clock.pass_by(30 * SECOND)
    await repository.work(mission, 0, "alice")
    assert {to_ms(lock.expires_at) for lock in await repository.locks()} == {
        repository.clock() + MINUTE
    }
    assert len(held) == 2


# Whether two patterns have a file in common, compared with all short paths.

_NAMES = ("a", "b", "ab", "ba", "bb")
_PATHS = ["/".join(path) for deep in range(1, 6) for path in itertools.product(_NAMES, repeat=deep)]
_ODD_PATHS = [*_PATHS, "*a", "a/*a", "b?", "b?/a/b", "[b", "[b/ab"]
_PARTS = ("a", "b", "ab", "*", "**", "?", "a*", "*b", "?b", "a?")
_CLASSES = ("[ab]", "[!a]b", "a[a-b]*", "[^b]")


def _patterns(parts: tuple[str, ...]) -> st.SearchStrategy[str]:
    names = st.lists(st.sampled_from(parts), min_size=1, max_size=3).map("/".join)
    return st.tuples(names, st.sampled_from(("", "", "/"))).map("".join)


def _target(pattern: str) -> Target:
    parsed = parse_pattern(pattern)
    directory = "".join(("/r/", *(f"{name}/" for name in parsed.names)))
    return Target(path=directory + parsed.rest, directory=directory)


def _matched(pattern: str) -> set[str]:
    return {*GitIgnoreSpec.from_lines([pattern]).match_files(_PATHS)}


@given(_patterns(_PARTS), _patterns(_PARTS))
@settings(max_examples=75, deadline=None)
def test_two_patterns_conflict_exactly_where_some_path_matches_both(one: str, other: str) -> None:
    # Both have a path in common that is no longer than the two of them.
    assume(sum(name != "**" for name in f"{one}/{other}".strip("/").split("/")) <= 5)
    both = overlap(_target(one), _target(other))
    assert both == overlap(_target(other), _target(one))
    assert both == bool(_matched(one) & _matched(other))


@given(_patterns(_PARTS + _CLASSES), st.sampled_from(_PATHS))
@settings(max_examples=200, deadline=None)
def test_a_pattern_covers_the_files_that_git_would_ignore(pattern: str, path: str) -> None:
    matches = GitIgnoreSpec.from_lines([pattern]).match_file(path)
    assert overlap(_target(pattern), Target(path=f"/r/{path}")) == matches
    directory = Target(path=f"/r/{path}/", directory=f"/r/{path}/")
    assert overlap(_target(pattern), directory) or not matches


@given(_patterns((*_PARTS, *_CLASSES, "\\*a", "b\\?", "\\[b")), st.sampled_from(_ODD_PATHS))
@settings(max_examples=200, deadline=None)
def test_a_file_that_a_pattern_covers_has_its_literal(pattern: str, path: str) -> None:
    assume(GitIgnoreSpec.from_lines([pattern]).match_file(path))
    target = _target(pattern)
    assert literal_of(target.pattern) in f"/r/{path}".removeprefix(str(target.directory))


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [("**/mod7_*.py", "mod7_"), ("*", ""), ("a[0-9]bc", "bc"), ("x\\*yz?", "x*yz"), ("", "")],
)
def test_the_literal_is_the_longest_text_without_a_wildcard(pattern: str, literal: str) -> None:
    assert literal_of(pattern) == literal


@given(_patterns(_PARTS + _CLASSES), _patterns(_PARTS + _CLASSES))
@settings(max_examples=75, deadline=None)
def test_a_conflict_of_classes_is_never_missed(one: str, other: str) -> None:
    if _matched(one) & _matched(other):
        assert overlap(_target(one), _target(other))


@given(_patterns(_PARTS), st.sampled_from(_PATHS))
@settings(max_examples=200, deadline=None)
def test_a_long_path_is_matched_by_steps_as_a_short_one(pattern: str, path: str) -> None:
    from fleetd.domain.locks import targets

    below = "/".join(["ab"] * 120)  # longer than what the regular expression is asked about
    long = f"{path}/{below}"
    assert len(long) > targets.REGEX_CHARS
    matches = GitIgnoreSpec.from_lines([pattern]).match_file(long)
    assert overlap(_target(pattern), Target(path=f"/r/{long}")) == matches


def test_a_wildcard_in_the_name_of_a_file_is_none() -> None:
    long = "/".join(["ab"] * 100)
    for path in ("x*", f"{long}/x*"):
        file = Target(path=f"/r/{path}")
        assert not overlap(_target("xyz"), file)
        assert overlap(_target("x\\*"), file)
        assert overlap(_target("x?"), file)


async def test_leases_of_two_agents_conflict_exactly_where_their_files_do(
    repository: Fleet,
) -> None:
    """What the indexes find of the other leases is what the patterns say."""
    draw = random.Random(26)
    names = [*_PARTS, "a/b", "ab/*", "**/b", "a/**", "a*/?b"]
    conflicts = 0
    for _ in range(150):
        wanted = [draw.choice((*names, "a/", "ab/ba/")) for _ in range(2)]
        wanted = [each if each != "**" else "**/a" for each in wanted]
        modes = [draw.choice(("exclusive", "shared")) for _ in range(2)]
        held = [
            await repository.do(_lock(repository, "alice", wanted[0], modes[0])),
            await _tried(repository, _lock(repository, "bob", wanted[1], modes[1])),
        ]
        both = _covered(wanted[0]) & _covered(wanted[1])
        assert (held[1] is None) == (bool(both) and modes != ["shared", "shared"]), wanted
        conflicts += held[1] is None
        file = draw.choice(_PATHS)
        found = await repository.do(LockCheck(f"{repository.project}/{file}"))
        assert {lock.id for lock in found.locks} == {
            lock.id
            for lock, what in zip(held, wanted, strict=True)
            if lock is not None and file in _covered(what)
        }, (wanted, file)
        for lock in filter(None, held):
            await repository.do(LockRelease(lock.id, lock.held_by))
    assert 20 < conflicts < 130


def _lock(fleet: Fleet, agent: str, what: str, mode: LockMode) -> LockAcquire:
    is_pattern = "*" in what or "?" in what
    return LockAcquire(
        agent,
        None if is_pattern else what,
        pattern=what if is_pattern else None,
        cwd=str(fleet.project),
        mode=mode,
        all=True,
    )


async def _tried(fleet: Fleet, request: LockAcquire) -> Lock | None:
    try:
        return await fleet.do(request)
    except LockConflict:
        return None


def _covered(what: str) -> set[str]:
    """Return the short paths that a lock covers; a name without wildcards is a path."""
    if "*" in what or "?" in what:
        return _matched(what)
    return {path for path in _PATHS if path == what or (what[-1] == "/" and path.startswith(what))}
