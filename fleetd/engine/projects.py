"""Projects: the names of files and directories in their project, and ignored directories.

A project has one name on all machines of a shared store: the one that the configuration gives to
its directory, else what the remotes of its clones have in common.
"""

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from ..domain.agents import agents
from ..domain.core.context import EditedFile, Here, LockScope
from ..domain.locks.keys import machine_key, split_machine
from ..domain.snapshots.snapshots import agent_of_run
from ..host import git
from ..host.file_system import (
    HOOK_SECONDS,
    FileSystem,
    PathUnanswered,
    PathWalk,
    absolute,
    within,
)
from ..protocol.errors import InvalidState, NotFound, Unavailable
from ..protocol.request import Request
from ..protocol.requests.agent import AgentGet
from ..protocol.requests.event import EventAppend
from ..protocol.requests.note import NoteAdd
from ..protocol.requests.snapshot import SnapshotRecord
from ..protocol.requests.system import SystemForget
from .repositories import Repositories, Repository, inside_of

# Fields of requests that name the asking agent.
_WHO = ("agent_id", "sender", "created_by", "requested_by")
# Fields of an event's data that name a place.
_WHERE = ("cwd", "file", "path")
# The protocol's limit for paths: nothing longer is looked up, whatever a client sends.
_PATH_MAX = 4_096
# How many of the files that one tool call changed are compared with those of other agents.
MOST_EDITED = 200


class Projects:
    """Names files and directories; ``named`` maps the configured names to their directories.

    ``machine`` is empty if one machine has the store to itself.
    """

    def __init__(self, named: Mapping[str, list[str]], machine: str, files: FileSystem) -> None:
        pairs = [(directory, name) for name, all_of in named.items() for directory in all_of]
        # The nearest directory counts.
        self._named = sorted(pairs, key=lambda pair: len(pair[0]), reverse=True)
        self._machine = machine
        self._files = files
        self._repositories = Repositories(files)

    @property
    def scopes(self) -> tuple[LockScope, LockScope]:
        """Return the scopes in which locks are shared, the default first."""
        return ("project", "machine") if self._machine else ("machine", "project")

    async def key(self, path: str, scope: LockScope) -> str:
        """Return the key of a lock on a real path.

        Raises Unavailable when Git or the file system does not report the project of the path:
        under another key, two agents could hold a lock on one file.
        """
        if scope == "machine":
            return machine_key(self._machine, path)
        if (named := self._configured(path)) is not None:
            return f"project:{':'.join(named)}"
        key = self._key_in_repository(await self._repository_of(path), path)
        return key or machine_key(self._machine, path)

    async def directory_key(self, path: str, scope: LockScope) -> str:
        """Return the key of a real directory, with which the keys of all files in it begin."""
        return (await self.key(f"{path.rstrip('/')}/-", scope))[:-1]

    async def prefix(self, root: str) -> str:
        """Return the prefix of the keys, shared by project, of all files in a real directory.

        The prefix is empty outside of a project, and if Git does not answer in time.
        """
        if (named := self._configured(root)) is not None:
            key: str | None = f"project:{':'.join(named)}"
        else:
            key = self._key_in_repository(await self._repositories.try_around(root), root)
        if key is None:
            return ""
        return key[:-1] if key.endswith(":.") else f"{key}/"

    def _key_in_repository(self, repository: Repository | None, path: str) -> str | None:
        """Return the key of a path by its repository, None for one that is not part of it."""
        if repository is None or (inside := repository.inside(path)) is None:
            return None
        if (shared := self._shared(repository, inside)) is not None:
            return f"project:{':'.join(shared)}"
        return machine_key(self._machine, f"project:{repository.key}:{inside}")

    async def paths(self, key: str, near: str | None) -> tuple[str, ...]:
        """Return the known paths on this machine where the file of a key may be.

        Known are the projects of the configuration, and the repository around ``near``.
        """
        rest = split_machine(key)[1]
        if rest.startswith("/"):
            return (rest,)
        roots = [*self._named]
        here = await self._real_path(near) if near else None
        repository = await self._repositories.try_around(here) if here else None
        if repository is not None and self._configured(repository.top) is None:
            names = (repository.name, repository.key)
            roots += [(repository.top, name) for name in names if name is not None]
        begins = ((root, f"project:{name}:") for root, name in roots)
        return tuple(f"{root}/{rest[len(it) :]}" for root, it in begins if rest.startswith(it))

    async def shared_names(self, directory: str | None) -> tuple[str, ...]:
        """Return the name of a directory on every machine, then those above it in its project.

        Returns nothing if the store is not shared, if the project has no such name, and if Git or
        the file system does not answer in time. Then only the path is known.
        """
        if not self._machine or not directory:
            return ()
        here = await self._real_path(directory)
        if here is None:
            return ()
        found = self._configured(here)
        if found is None and (repository := await self._repositories.try_around(here)):
            inside = repository.inside(here)
            found = None if inside is None else self._shared(repository, inside)
        return tuple(f"{found[0]}:{each}" for each in _with_parents(found[1])) if found else ()

    async def edited(
        self, files: Iterable[str], ignored: list[str]
    ) -> dict[str, EditedFile | None]:
        """Return the names of changed files; None for those in ``ignored`` directories.

        All files are looked up in one call. If the file system or Git does not answer within the
        time of a hook, a file is named by its path.
        """
        named = list(files)[:MOST_EDITED]

        def look(walk: PathWalk) -> list[tuple[str, str | None, Repository | None]]:
            reals = [walk.facts(file).real for file in named]
            return [
                (real, *self._repositories.known_around(walk, os.path.dirname(real)))  # noqa: PTH120
                for real in reals
            ]

        try:
            found = await self._files.run_short(
                look, named[0], paths=len(named), seconds=HOOK_SECONDS
            )
        except PathUnanswered:
            found = [(file, None, None) for file in named]
        # A hook has time to ask about one repository; the next hook asks about the next one.
        unknown = next((root for _, root, known in found if root and known is None), None)
        asked = await self._repositories.try_around(unknown) if unknown else None
        return {
            file: None
            if any(within(directory, real) for directory in ignored)
            else self._edited_file(real, root, known or (asked if root == unknown else None))
            for file, (real, root, known) in zip(named, found, strict=True)
        }

    def _edited_file(
        self, real: str, root: str | None, repository: Repository | None
    ) -> EditedFile:
        key = machine_key(self._machine, real)
        linked = repository is not None and repository.linked
        if (configured := self._configured(real)) is not None:
            return EditedFile(key, f"project:{':'.join(configured)}", configured[1], root, linked)
        place = self._key_in_repository(repository, real)
        inside = repository.inside(real) if repository else None
        return EditedFile(key, place or key, inside or real, root, linked)

    async def here(self, directory: str | None, *, any_place: bool = False) -> Here:
        """Return how files are named in a directory; without one, as outside of a repository.

        Without Git, the directory is its own root, except with ``any_place``. If Git does not
        answer in time, the name of the project is missing. If the file system does not answer in
        time, everything is missing.
        """

        def look(walk: PathWalk) -> tuple[str, str, str]:
            home = walk.facts(os.path.expanduser("~")).real  # noqa: PTH111
            if directory is None or not directory.startswith("/"):
                return "", "", home
            real = walk.facts(directory).real
            root = walk.root(real) or ""
            return root, root or real, home

        try:
            root, place, home = await self._files.run_short(
                look, directory or "~", seconds=HOOK_SECONDS
            )
        except PathUnanswered:
            return Here()
        project = await self.prefix(place) if place else ""
        return Here(root=root if any_place else place, place=place, project=project, home=home)

    async def _real_path(self, directory: str) -> str | None:
        """Return the real path of a directory, None if the file system does not answer in time."""
        with contextlib.suppress(PathUnanswered):
            return await self._files.real_path(directory, None)
        return None

    def _configured(self, path: str) -> tuple[str, str] | None:
        """Return the name that the configuration has for a path, and the path inside."""
        for directory, name in self._named:
            if within(directory, path):
                inside = inside_of(directory, path)
                return None if inside is None else (name, inside)
        return None

    def _shared(self, repository: Repository, inside: str) -> tuple[str, str] | None:
        """Return the name that a repository has on every machine, and the path inside.

        Where the configuration names its first working tree, the others have that name too.
        """
        first = repository.first and self._configured(
            os.path.normpath(f"{repository.first}/{inside}")
        )
        if first:
            return first
        return (repository.name, inside) if self._machine and repository.name else None

    async def _repository_of(self, path: str) -> Repository | None:
        named = "a project with a name in the configuration ([projects])"
        try:
            return await self._repositories.around(os.path.dirname(path))  # noqa: PTH120
        except git.GitSlow:
            without = named if self._machine else "a mission without lock_scope project"
            raise Unavailable(
                f"Git did not report within {git.SECONDS} s which repository {path} belongs to.",
                hint=f"Try again; {without} needs no Git for its locks.",
            ) from None
        except git.GitAbsent:
            if not self._machine:
                return None
            raise Unavailable(
                f"Git cannot be run, so fleetd cannot tell which file {path} is on other machines.",
                hint=f"Install Git in the PATH of fleetd; {named} needs none for its locks.",
            ) from None


def _with_parents(inside: str) -> Iterator[str]:
    """Yield a path inside a project and the directories above it, up to its root."""
    while inside != ".":
        yield inside
        inside = os.path.dirname(inside) or "."  # noqa: PTH120
    yield inside


async def refuse_ignored(
    request: Request[Any],
    ignored: list[str],
    machine: str,
    read: Callable[..., Awaitable[Any]],
    files: FileSystem,
) -> None:
    """Raise InvalidState for a request about an ignored directory, which is not to be recorded.

    A request that names no directory is about the one that its agent registered with on this
    ``machine``. A snapshot is also about the directory of its run's agent. A request that names no
    place, from an agent without a directory, cannot be recognised. Records from before the setting
    stay until they are forgotten, and a request to forget is let through.
    """
    if isinstance(request, SystemForget):
        return
    cwd = getattr(request, "cwd", None)
    file = request.path if isinstance(request, NoteAdd) else getattr(request, "file", None)
    named = [absolute(file, cwd)] if file else []
    if isinstance(request, EventAppend):
        named += _paths_in_event(request.data)
    if isinstance(request, SnapshotRecord):
        named += _paths_in_snapshot(request)
    real = [facts.real for facts in await files.look(*filter(None, named))]
    check_not_ignored([cwd, getattr(request, "project_dir", None), *real], ignored)
    recorded = isinstance(request, SnapshotRecord)
    agent_ids = [getattr(request, name, None) for name in _WHO] if recorded or not cwd else []
    if isinstance(request, SnapshotRecord) and request.run_id and not any(agent_ids):
        agent_ids.append(await read(agent_of_run, request.run_id))
    for agent_id in filter(None, agent_ids):
        with contextlib.suppress(NotFound):
            agent = await read(agents.get, AgentGet(agent_id))
            if (agent.machine or "") == machine:
                check_not_ignored([agent.cwd], ignored)


def _paths_in_event(data: dict[str, Any]) -> Iterator[str | None]:
    """Yield the paths in an event's data; a relative one starts at its ``cwd``."""
    given = {name: text for name in _WHERE if isinstance(text := data.get(name), str) and text}
    for text in given.values():
        yield absolute(text[:_PATH_MAX], given.get("cwd", "")[:_PATH_MAX])


def _paths_in_snapshot(request: SnapshotRecord) -> Iterator[str | None]:
    """Yield the paths that a snapshot would name."""
    step, digest = request.step_state, request.context_digest
    named = [step.plan_path] if step else []
    named += (digest.protected_artifacts or []) if digest else []
    return (absolute(path, request.cwd) for path in named if path)


def check_not_ignored(paths: list[str | None], ignored: list[str]) -> None:
    """Raise InvalidState when one of these real paths is in an ignored directory."""
    for path in filter(None, paths):
        for directory in ignored:
            if within(directory, path):
                raise InvalidState(
                    f"fleetd does not record {path}: project_ignore names {directory}.",
                    hint="To record it, remove the directory from project_ignore in the "
                    "configuration (fleetctl config shows where it is) and restart fleetd.",
                    project_ignore=directory,
                )
