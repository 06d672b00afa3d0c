"""Projects: the names that files and directories have by their project, and ignored directories.

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

# How requests name the one who asks.
_WHO = ("agent_id", "sender", "created_by", "requested_by")
# How the data of an event names a place.
_WHERE = ("cwd", "file", "path")
# As the protocol bounds paths: nothing longer is looked up, whatever a client puts there.
_PATH_MAX = 4_096
# Of the files that one tool call changed, so many are compared with those of other agents.
MOST_EDITED = 200


class Projects:
    """Names files and directories; ``named`` are the directories of the configuration's names.

    ``machine`` is empty wherever one machine has the store to itself.
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
        """Return what locks are shared by: the default first."""
        return ("project", "machine") if self._machine else ("machine", "project")

    async def key(self, path: str, scope: LockScope) -> str:
        """Return the key of a lock on a real path.

        Raises Unavailable when Git, or the file system, does not say which project it belongs to:
        by another key two could hold one file.
        """
        if scope == "machine":
            return machine_key(self._machine, path)
        if (named := self._configured(path)) is not None:
            return f"project:{':'.join(named)}"
        key = self._key_in_repository(await self._repository_of(path), path)
        return key or machine_key(self._machine, path)

    async def directory_key(self, path: str, scope: LockScope) -> str:
        """Return the key of a real directory: how the keys of all files in it begin."""
        return (await self.key(f"{path.rstrip('/')}/-", scope))[:-1]

    async def prefix(self, root: str) -> str:
        """Return how the keys of all files in a real directory begin that are shared by project.

        Empty where it is in no project, and where Git does not say that in time.
        """
        if (named := self._configured(root)) is not None:
            key: str | None = f"project:{':'.join(named)}"
        else:
            key = self._key_in_repository(await self._repositories.try_around(root), root)
        if key is None:
            return ""
        return key[:-1] if key.endswith(":.") else f"{key}/"

    def _key_in_repository(self, repository: Repository | None, path: str) -> str | None:
        """Return the key of a path by its repository, None for one that is no part of any."""
        if repository is None or (inside := repository.inside(path)) is None:
            return None
        if (shared := self._shared(repository, inside)) is not None:
            return f"project:{':'.join(shared)}"
        return machine_key(self._machine, f"project:{repository.key}:{inside}")

    async def paths(self, key: str, near: str | None) -> tuple[str, ...]:
        """Return where on this machine the file of a key may be, as far as that is known.

        Known are the projects that the configuration names, and the repository around a directory.
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
        """Return what a directory is called on every machine, then those above in its project.

        Nothing where the store is not shared, where the project has no such name, and where Git or
        the file system does not say it in time: then its path is all that is known.
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
        """Return what files that were changed are called; None for those in ``ignored`` places.

        All are looked up at once. Where the file system or Git does not answer in the time that a
        hook has, a file goes by its path.
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
        # One hook has the time for one repository; the next one is asked about then.
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
        """Return what files are called in a directory; without one, as from no repository.

        A project's directory is its root without Git, too; of ``any_place`` that is only a
        repository. Git that does not answer in time leaves the name of the project out; so does a
        file system, with all the rest.
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
        """Return the real path of a directory, None where nobody says it in time."""
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
    """Raise InvalidState for a request about a directory of which nothing is to be recorded.

    A request that names no directory is about the one its agent registered with on this
    ``machine``; a snapshot is also about that of its run's agent. One that neither names a place
    nor comes from an agent with a directory cannot be recognised. What was recorded before the
    setting stays until it is forgotten; forgetting is let through.
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
    who = [getattr(request, name, None) for name in _WHO] if recorded or not cwd else []
    if isinstance(request, SnapshotRecord) and request.run_id and not any(who):
        who.append(await read(agent_of_run, request.run_id))
    for agent_id in filter(None, who):
        with contextlib.suppress(NotFound):
            agent = await read(agents.get, AgentGet(agent_id))
            if (agent.machine or "") == machine:
                check_not_ignored([agent.cwd], ignored)


def _paths_in_event(data: dict[str, Any]) -> Iterator[str | None]:
    """Yield the places that an event's data names; what is relative starts at its ``cwd``."""
    given = {name: text for name in _WHERE if isinstance(text := data.get(name), str) and text}
    for text in given.values():
        yield absolute(text[:_PATH_MAX], given.get("cwd", "")[:_PATH_MAX])


def _paths_in_snapshot(request: SnapshotRecord) -> Iterator[str | None]:
    """Yield the places that a snapshot would name."""
    step, digest = request.step_state, request.context_digest
    named = [step.plan_path] if step else []
    named += (digest.protected_artifacts or []) if digest else []
    return (absolute(path, request.cwd) for path in named if path)


def check_not_ignored(paths: list[str | None], ignored: list[str]) -> None:
    """Raise InvalidState when one of these real paths lies in an ignored directory."""
    for path in filter(None, paths):
        for directory in ignored:
            if within(directory, path):
                raise InvalidState(
                    f"fleetd does not record {path}: project_ignore names {directory}.",
                    hint="To record it, remove the directory from project_ignore in the "
                    "configuration (fleetctl config shows where it is) and restart fleetd.",
                    project_ignore=directory,
                )
