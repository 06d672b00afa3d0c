"""``fleetctl guard``: Git hooks that keep agents from committing each other's files."""

from pathlib import Path

from fleetd.protocol.display import shell_word
from fleetd.protocol.errors import FleetError
from fleetd.protocol.timestamps import to_ms

from ..args import Namespace, Subparsers, command, group
from ..client import Fleet
from ..client.models import CommitCheck, CommitVerdict, OthersFile
from ..context import cwd, this_agent
from ..integrations import guard
from ..integrations.guard import BY_AGENT, REFUSED, Guard
from ..output import console, tables

# A daemon that hangs must not delay a commit: each hook waits at most this long.
CONNECT_S, REPLY_S = 1.0, 2.0
AT_ONCE = 5_000
SHOWN = 20


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(
        subparsers, "guard", "Keep agents from committing each other's files, by hooks of Git."
    )
    summary = (
        "Add the hooks pre-commit, prepare-commit-msg and reference-transaction to a repository."
        " Hooks that are there stay and run first."
    )
    install = command(
        actions,
        "install",
        _run_install,
        summary,
        "  fleetctl guard install\n  fleetctl guard install --repo ~/work/app --trailer",
    )
    install.flag("--trailer", help="add a line Fleet-Session: ID to the commits of agents")
    summary = "Remove the hooks, and restore those from before byte for byte."
    uninstall = command(actions, "uninstall", _run_uninstall, summary, "  fleetctl guard uninstall")
    summary = "Show the hooks of a repository. Exit status 1 when they are not installed."
    status = command(actions, "status", _run_status, summary, "  fleetctl guard status")
    check = command(
        actions,
        "check",
        _run_check,
        "Show the staged files that another agent has locked or changed last. Exit status 1 when"
        " your commit would be refused; a person always gets 0.",
        "  fleetctl guard check",
    )
    check.flag("--hook", help="answer a hook of Git: exit status 20 refuses, 21 allows an agent")
    check.add_argument("--message", metavar="FILE", help="the file with the message of the commit")
    check.flag("--trailer", help="add a line Fleet-Session: ID to the message")
    check.add_argument(
        "--commit",
        nargs=2,
        metavar="COMMIT",
        help="check what changed between two commits instead of the staged files",
    )
    for each in (install, uninstall, status, check):
        each.add_argument(
            "--repo", metavar="DIR", help="a directory of the repository (default: this one)"
        )


def _guard(args: Namespace) -> Guard:
    return Guard(Path(args.repo or cwd()))


def _run_install(args: Namespace) -> int:
    found = _guard(args)
    # An earlier choice stays.
    changed = found.install(trailer=args.trailer or found.trailer)
    value = {"repository": str(found.root), "hooks": str(found.hooks), "changed": _names(changed)}
    if args.json:
        console.print_json(value)
        return 0
    if not changed:
        console.line(f"The guard is already installed in {console.path(str(found.hooks))}.")
    for each in changed:
        console.line(f"Hook installed: {console.path(str(each.path))}{_kept(each)}")
    if found.remark:
        console.warn(found.remark)
    return 0


def _kept(each: guard.HookFile) -> str:
    """Return what happened to the existing hook; ``each`` is its state before."""
    if each.state != "other" and not each.before:
        return ""
    name = f"{each.path.name}{guard.BEFORE}"
    if each.runs_other:
        return f"; the hook from before runs first, as {name}"
    return f"; the one from before is not executable and does not run, as before: {name}"


def _names(files: list[guard.HookFile]) -> list[str]:
    return [each.name for each in files]


def _run_uninstall(args: Namespace) -> int:
    found = _guard(args)
    ours = found.uninstall()
    left = [each for each in found.files() if each.state == "other" and each.before]
    if args.json:
        console.print_json({"repository": str(found.root), "removed": _names(ours)})
        return 0
    for each in ours:
        console.line(f"Hook removed: {console.path(str(each.path))}")
    if not ours:
        console.line("The guard is not installed here.")
    for each in left:
        console.warn(
            f"Another program replaced {each.path}; the hook from before is"
            f" {each.path.name}{guard.BEFORE} still."
        )
    return 0


def _run_status(args: Namespace) -> int:
    found = _guard(args)
    files = found.files()
    installed = all(each.state == "installed" for each in files)
    if args.json:
        hooks = [{"name": e.name, "state": e.state, "before": e.before} for e in files]
        document = {"repository": str(found.root), "hooks": hooks, "trailer": found.trailer}
        console.print_json({**document, "installed": installed})
        return 0 if installed else 1
    rows = [
        (each.name, each.state, "yes" if each.runs_other else "no", console.path(str(each.path)))
        for each in files
    ]
    tables.table(("HOOK", "STATE", "RUNS ANOTHER", "FILE"), rows)
    if found.trailer:
        console.line("Commits of agents with a session get a line Fleet-Session: ID.")
    if found.remark:
        console.warn(found.remark)
    if not installed:
        console.line("To install the guard: fleetctl guard install")
    return 0 if installed else 1


def _run_check(args: Namespace) -> int:
    if not args.hook:
        found = _guard(args)
        verdict = _verdict(found.root)
        console.show(args, verdict, _show)
        return 1 if verdict.agent_id and verdict.files else 0
    try:
        return _answer_git(args)
    except (FleetError, OSError) as error:
        if _is_reporting_hook(args):
            console.print_stderr(f"fleetd guard: the commit was not checked: {error}")
    return 0


def _is_reporting_hook(args: Namespace) -> bool:
    """Return whether this is the hook that always runs, which reports what stops no commit."""
    return args.message is not None


def _answer_git(args: Namespace) -> int:
    """Report to Git, and to the committer, whether the commit may be made."""
    root = _guard(args).root
    verdict = _verdict(root, args.commit)
    if verdict.agent_id is None:
        if verdict.files and _is_reporting_hook(args):
            _warn_person(verdict)
        return 0
    if verdict.files:
        _refuse(root, verdict)
        return REFUSED
    if args.trailer and args.message and verdict.session_id:
        guard.add_trailer(root, args.message, verdict.session_id)
    return BY_AGENT


def _warn_person(verdict: CommitVerdict) -> None:
    if named := this_agent():
        console.print_stderr(
            f"fleetd guard: no agent {named} is active, so this counts as the commit of a person."
        )
    console.print_stderr(
        "fleetd guard: this commit has files that agents work on:", *_listed(verdict.files)
    )


def _verdict(root: Path, commit: list[str] | None = None) -> CommitVerdict:
    """Ask fleetd about the files of a commit, by default about the staged files.

    Files that were committed after the other agent's change are left out.
    """
    files = guard.committed_files(root, *commit) if commit else guard.staged_files(root)
    found: list[OthersFile] = []
    verdict = None
    with Fleet(connect_s=CONNECT_S, restart_s=0) as client:
        for first in range(0, max(len(files), 1), AT_ONCE):
            some = files[first : first + AT_ONCE]
            asked = CommitCheck(worktree=str(root), files=some, agent_id=this_agent())
            verdict = client.call(asked, reply_s=REPLY_S)
            found += verdict.files
    assert verdict is not None  # noqa: S101 - one is always asked for
    left = _uncommitted(root, found, commit[1] if commit else None)
    return CommitVerdict(agent_id=verdict.agent_id, session_id=verdict.session_id, files=left)


def _uncommitted(root: Path, files: list[OthersFile], commit: str | None) -> list[OthersFile]:
    """Return the files without those that were committed after the other agent's change.

    A file that differs from the disk stays: committing it would undo the other agent's commit.
    """
    changed = {
        each.file: to_ms(each.changed_at) for each in files if not each.lock and each.changed_at
    }
    if not changed:
        return files
    committed = guard.committed_at(root, min(changed.values()))
    since = [name for name, at_ms in changed.items() if committed.get(name, 0) > at_ms]
    newer = {*since} - guard.files_behind(root, since, commit) if since else set()
    return [each for each in files if each.file not in newer]


def _refuse(root: Path, verdict: CommitVerdict) -> None:
    names = " ".join(shell_word(f":(top,literal){each.file}") for each in verdict.files[:SHOWN])
    unstage = "git restore --staged" if guard.has_commit(root) else "git rm -q --cached"
    other = verdict.files[0].agent_id
    console.print_stderr(
        "fleetd guard: this commit is refused, since it has files of other agents:",
        *_listed(verdict.files),
        f"Leave them out, then commit again without -a: {unstage} -- {names}",
        "Or name the files that you commit: git commit -- FILE…",
        f"To ask for them: fleetctl mail send SUBJECT --from {verdict.agent_id} --to {other}",
    )


def _listed(files: list[OthersFile]) -> list[str]:
    lines = [f"  {console.path(each.file)}  {_why(each)}" for each in files[:SHOWN]]
    more = len(files) - SHOWN
    return [*lines, f"  and {console.plural(more, 'more file')}"] if more > 0 else lines


def _why(each: OthersFile) -> str:
    if each.lock is None:
        return f"changed by {each.agent} {console.ago(each.changed_at)}"
    name = each.lock.file
    part = f", with {console.path(name)}" if each.lock.directory else ""
    return f"locked by {each.agent} {console.lease(each.lock.expires_at)}{part}"


def _show(verdict: CommitVerdict) -> None:
    if not verdict.files:
        console.line("No staged file is another agent's.")
    console.lines(_listed(verdict.files))
