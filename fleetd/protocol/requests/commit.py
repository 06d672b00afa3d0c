"""Requests about commits of Git."""

from typing import Annotated, ClassVar

from msgspec import Meta

from ..records import Lock, Record
from ..request import Query
from ..types import AgentId, Path

StagedFiles = Annotated[list[Path], Meta(max_length=5_000)]


class OthersFile(Record, frozen=True, kw_only=True):
    """A staged file that is another agent's: it holds a lock on it, or changed it last.

    ``agent`` is the agent's name for a reader, with its machine if that is another one.
    """

    file: str
    agent_id: AgentId
    agent: str
    lock: Lock | None
    changed_at: str | None


class CommitVerdict(Record, frozen=True, kw_only=True):
    """Who commits, and which staged files are another living agent's.

    ``agent_id`` is None for a person. Programs refuse the commit of an agent with such files.
    """

    agent_id: AgentId | None
    session_id: str | None
    files: list[OthersFile]


class CommitCheck(Query[CommitVerdict], frozen=True):
    """Say which files that are about to be committed are another agent's.

    ``files`` are seen from the root of the working tree ``worktree``. The caller's agent is the one
    with the nearest process above the caller, unless ``agent_id`` names it. Changes of the last
    hour count, and locks of any age.
    """

    method: ClassVar[str] = "commit.check"
    worktree: Path
    files: StagedFiles
    agent_id: AgentId | None = None
