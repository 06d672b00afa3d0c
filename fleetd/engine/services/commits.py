"""Commit checks for the hooks of Git: by the caller's ancestor processes, in one working tree."""

from ...domain.attention.commits import check_commit
from ...domain.core.context import Caller, Facts
from ...domain.core.registry import method
from ...host import processes
from ...protocol.requests.commit import CommitCheck, CommitVerdict
from ..engine import Engine


@method(CommitCheck)
async def check(engine: Engine, request: CommitCheck, caller: Caller) -> CommitVerdict:
    """Return which staged files belong to another agent."""
    root = await engine.files.real_path(request.worktree, None) or request.worktree
    keys = [await engine.projects.directory_key(root, scope) for scope in ("machine", "project")]
    facts = Facts(
        worktree_keys=tuple(keys),
        ancestors=processes.ancestors(caller.pid) if caller.pid else (),
    )
    return await engine.run(check_commit, request, caller, facts)
