"""Where sessions are: what each hook keeps of its directory, and what ``session.list`` says."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from fleetd.domain.core.context import Caller
from fleetd.domain.liveness.shutdown import SHUTDOWN_MS
from fleetd.engine.checkouts import PACKED_BYTES, checkout_at
from fleetd.engine.engine import DAEMON
from fleetd.engine.hooks.deliver import record_delivery
from fleetd.host import processes
from fleetd.host.file_system import PathWalk
from fleetd.protocol.errors import NotFound
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.hook import HookDeliver
from fleetd.protocol.requests.session import Session, SessionList
from tests.support.fleet import DAY, HOUR, SECOND, Clock, Fleet, opened
from tests.support.git import git
from tests.support.hook_payloads import Cli


def head(directory: Path) -> str:
    return git(directory, "rev-parse", "HEAD").strip()


def seen(directory: Path) -> tuple[str | None, str | None, str | None]:
    walk = PathWalk()
    found = checkout_at(walk.root(str(directory)), walk)
    assert walk.at is None
    return found.worktree, found.branch, found.head


class Placed(Cli):
    """A session whose directory is told."""

    def __init__(self, fleet: Fleet, session: str, cwd: Path) -> None:
        super().__init__(fleet, session=session)
        self.cwd = cwd

    async def tell(self, event: str, **fields: Any) -> None:
        await super().tell(event, **{"cwd": str(self.cwd)} | fields)


async def listed(fleet: Fleet, **given: object) -> list[Session]:
    return (await fleet.do(SessionList(**given))).sessions  # type: ignore[arg-type]


def test_a_checkout_is_what_git_says_it_is(repository: Path, worktree: Path) -> None:
    assert seen(repository) == (str(repository), "main", head(repository))
    assert seen(repository / "src") == (str(repository), "main", head(repository))
    assert seen(worktree) == (str(worktree), "topic", head(worktree))
    git(worktree, "commit", "--quiet", "--allow-empty", "-m", "more")
    assert head(worktree) != head(repository)
    assert seen(worktree) == (str(worktree), "topic", head(worktree))


def test_branches_that_were_packed_are_found(repository: Path, worktree: Path) -> None:
    git(repository, "branch", "main-too")
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "more")
    git(repository, "pack-refs", "--all", "--prune")
    assert not (repository / ".git" / "refs" / "heads" / "main").exists()
    assert seen(repository) == (str(repository), "main", head(repository))
    assert seen(worktree) == (str(worktree), "topic", head(worktree))
    # A loose one is newer than what was packed.
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "most")
    assert seen(repository) == (str(repository), "main", head(repository))


def test_a_commit_without_a_branch_and_a_branch_without_a_commit(
    repository: Path, tmp_path: Path
) -> None:
    git(repository, "checkout", "--quiet", "--detach")
    assert seen(repository) == (str(repository), None, head(repository))
    git(repository, "checkout", "--quiet", "--orphan", "feature/new")
    assert seen(repository) == (str(repository), "feature/new", None)
    assert seen(tmp_path) == (None, None, None)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (".git", "gitdir: \x00\n"),
        (".git", "gitdir: /nowhere\n"),
        (".git/HEAD", ""),
        (".git/HEAD", "ref: refs/heads/.invalid\n"),
        (".git/HEAD", "not a commit\n"),
    ],
)
def test_what_is_no_repository_after_all_tells_nothing(
    tmp_path: Path, file: str, text: str
) -> None:
    root = tmp_path / "odd"
    (root / file).parent.mkdir(parents=True)
    (root / file).write_text(text)
    assert seen(root) == (str(root), None, None)


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "refs/heads/../../secret"])
def test_a_head_that_leads_out_of_the_repository_is_not_followed(tmp_path: Path, name: str) -> None:
    root = tmp_path / "odd"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text(f"ref: {name}\n")
    (root / "secret").write_text("a" * 40)
    (tmp_path / "secret").write_text("b" * 40)
    assert seen(root)[2] is None


def test_a_pipe_or_a_huge_file_holds_up_no_hook(repository: Path) -> None:
    git(repository, "pack-refs", "--all", "--prune")
    packed = repository / ".git" / "packed-refs"
    packed.write_text("x" * PACKED_BYTES + packed.read_text())
    assert seen(repository) == (str(repository), "main", None)
    packed.unlink()
    os.mkfifo(packed)
    assert seen(repository) == (str(repository), "main", None)


async def test_each_hook_keeps_where_the_session_is(
    fleet: Fleet, repository: Path, worktree: Path
) -> None:
    cli = Placed(fleet, "one", repository)
    await cli.tell("SessionStart", source="startup")
    await cli.tell("UserPromptSubmit", prompt="Go")
    [session] = await listed(fleet)
    begun = head(repository)
    assert session.directory == session.cwd == str(repository)
    assert (session.place.worktree, session.place.branch) == (str(repository), "main")
    assert session.place.head == begun
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "by a person")
    [session] = await listed(fleet)
    assert session.place.head == begun
    assert session.now is not None
    assert session.now.head == head(repository)
    cli.cwd = worktree
    await cli.tell("Stop")
    [session] = await listed(fleet)
    assert (session.directory, session.cwd) == (str(repository), str(worktree))
    assert (session.place.branch, session.now and session.now.branch) == ("topic", "topic")
    # Outside of any repository nothing of the former one stays.
    cli.cwd = repository.parent
    await cli.tell("UserPromptSubmit", prompt="Go on")
    [session] = await listed(fleet)
    assert session.cwd == str(repository.parent)
    assert session.place.worktree is session.place.branch is session.place.head is None


async def test_a_secret_in_the_name_of_a_branch_is_not_kept(fleet: Fleet, repository: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    git(repository, "checkout", "--quiet", "-b", f"try-{token}")
    cli = Placed(fleet, "one", repository)
    await cli.tell("SessionStart", source="startup")
    [session] = await listed(fleet)
    assert token not in (session.place.branch or "")
    assert token not in json.dumps(fleet.sql("SELECT * FROM sessions"))


async def test_which_sessions_were_cut_off(fleet: Fleet, repository: Path) -> None:
    for name in ("lost", "prompt", "closed", "works", "old"):
        cli = Placed(fleet, name, repository)
        await cli.tell("SessionStart", source="startup")
        await cli.tell("UserPromptSubmit", prompt="Go")
        if name != "works":
            await cli.tell("Stop")
        if name == "closed":
            await cli.tell("SessionEnd", reason="exit")
    fleet.sql("UPDATE agents SET status = 'lost' WHERE id IN ('claude-lost', 'claude-old')")
    fleet.sql("UPDATE sessions SET ended_at = started_at, vanished = 1 WHERE session_id = 'prompt'")
    fleet.sql("UPDATE agents SET status = 'gone' WHERE id = 'claude-prompt'")

    async def names(**given: object) -> list[str]:
        return [each.session_id for each in await listed(fleet, **given)]

    fleet.clock.pass_by(6 * DAY)
    fleet.sql(
        "UPDATE sessions SET last_event_at = '2000-01-01T00:00:00.000Z' WHERE session_id = 'old'"
    )
    assert await names(which="cut_off") == ["lost", "prompt"]
    assert await names(which="lost") == ["lost", "old"]
    assert await names() == ["closed", "lost", "old", "prompt", "works"]
    ends = {each.session_id: each.ended for each in await listed(fleet)}
    assert ends == {
        "closed": "closed",
        "lost": "lost",
        "old": "lost",
        "prompt": "vanished",
        "works": None,
    }
    # Whose work somebody goes on with is not opened again by itself.
    fleet.sql("UPDATE agents SET succeeded_by = 'claude-works' WHERE id = 'claude-lost'")
    assert await names(which="cut_off") == ["prompt"]
    [session] = await listed(fleet, agent_id="claude-lost")
    assert session.succeeded_by == "claude-works"
    fleet.clock.pass_by(2 * DAY)
    assert await names(which="cut_off") == []


async def test_what_a_shutdown_closed_was_cut_off(tmp_path: Path, repository: Path) -> None:
    """Programs that a shutdown ends say goodbye, some of them only to the spool."""
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        for name in ("by-user", "by-shutdown", "spooled"):
            cli = Placed(fleet, name, repository)
            await cli.tell("SessionStart", source="startup")
            await cli.tell("UserPromptSubmit", prompt="Go")
            if name == "by-user":
                await cli.tell("SessionEnd", reason="prompt_input_exit")
                clock.pass_by(SHUTDOWN_MS + SECOND)
        await Placed(fleet, "by-shutdown", repository).tell("SessionEnd", reason="other")
        payload = {"hook_event_name": "SessionEnd", "session_id": "spooled", "reason": "other"}
    said = HookDeliver("delivery-spooled", "claude", json.dumps(payload))
    happened = clock()
    clock.reboot(HOUR)
    async with opened(tmp_path, clock=clock) as fleet:
        await record_delivery(fleet.engine, said, DAEMON, happened)
        found = await listed(fleet, which="cut_off")
        assert {each.session_id: each.ended for each in found} == {
            "by-shutdown": "vanished",
            "spooled": "vanished",
        }
        # Who closes a session after that has closed it.
        cli = Placed(fleet, "by-shutdown", repository)
        await cli.tell("SessionStart", source="resume")
        await cli.tell("SessionEnd", reason="prompt_input_exit")
        assert [each.session_id for each in await listed(fleet, which="cut_off")] == ["spooled"]
    async with opened(tmp_path, clock=clock) as fleet:
        # The daemon alone was started again.
        assert [each.session_id for each in await listed(fleet, which="cut_off")] == ["spooled"]


async def test_pages_follow_each_other(fleet: Fleet, repository: Path) -> None:
    for number in range(5):
        cli = Placed(fleet, f"s{number}", repository)
        await cli.tell("SessionStart", source="startup")
    fleet.sql("UPDATE agents SET status = 'lost'")
    for which in ("all", "lost", "cut_off"):
        found, after = [], None
        while True:
            page = await fleet.do(SessionList(which=which, limit=2, after=after))  # type: ignore[arg-type]
            found += [each.session_id for each in page.sessions]
            after = page.after
            if after is None:
                break
        assert found == [f"s{number}" for number in range(5)]


async def test_a_session_of_before_knows_no_more_than_its_agent(
    fleet: Fleet, repository: Path
) -> None:
    cli = Placed(fleet, "one", repository)
    await cli.tell("SessionStart", source="startup")
    fleet.sql(
        "UPDATE sessions SET directory = NULL, cwd = NULL, worktree = NULL, branch = NULL,"
        " head = NULL"
    )
    [session] = await listed(fleet)
    assert session.directory == session.cwd == str(repository)
    assert session.place.worktree is None
    assert session.now is not None
    assert session.now.branch == "main"


async def test_a_directory_that_is_gone_is_known_to_be(fleet: Fleet, repository: Path) -> None:
    cli = Placed(fleet, "one", repository)
    await cli.tell("SessionStart", source="startup")
    shutil.rmtree(repository)
    [session] = await listed(fleet)
    assert session.now is not None
    assert not session.now.directory_exists
    assert not session.now.cwd_exists


async def test_agents_without_sessions_and_unknown_ones(fleet: Fleet) -> None:
    await fleet.do(AgentRegister("alice", "specialist"))
    assert await listed(fleet, agent_id="alice") == []
    assert await listed(fleet) == []
    with pytest.raises(NotFound):
        await listed(fleet, agent_id="nobody")
    with pytest.raises(NotFound):
        await listed(fleet, mission_id="msn-00000000")


async def test_opencode_is_the_process_that_tells_of_itself(fleet: Fleet, repository: Path) -> None:
    payload = {"event": "session.created", "session_id": "ses_1", "cwd": str(repository)}
    own = Caller("client", os.getuid(), os.getpid())
    told = HookDeliver("delivery-1", "opencode", json.dumps(payload))
    await fleet.engine.handle(told, own)
    [row] = fleet.sql("SELECT pid, pid_started FROM agents")
    assert (row["pid"], row["pid_started"]) == (os.getpid(), processes.started(os.getpid()))
    assert processes.itself(2**22 + 1) is None
