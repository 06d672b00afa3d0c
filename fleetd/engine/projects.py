"""What files and directories are called by the project they lie in.

A project has one name on all machines of a shared store: the one that the configuration gives to
its directory, else what the remotes of its clones have in common.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Literal

from ..domain.locks.keys import machine_key, split_machine
from ..host import git
from ..host.file_system import FileSystem, PathUnanswered
from ..host.path_walk import within
from ..protocol.errors import Unavailable
from .repositories import Repositories, Repository, inside_of

Scope = Literal["machine", "project"]


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
    def scopes(self) -> tuple[Scope, Scope]:
        """Return what locks are shared by: the default first."""
        return ("project", "machine") if self._machine else ("machine", "project")

    async def key(self, path: str, scope: Scope) -> str:
        """Return the key of a lock on a real path.

        Raises Unavailable when Git, or the file system, does not say which project it belongs to:
        by another key two could hold one file.
        """
        if scope == "machine":
            return machine_key(self._machine, path)
        if (named := self._configured(path)) is not None:
            return f"project:{':'.join(named)}"
        key = self._by_repository(await self._asked(path), path)
        return key or machine_key(self._machine, path)

    async def prefix(self, root: str) -> str:
        """Return how the keys of all files in a real directory begin that are shared by project.

        Empty where it is in no project, and where Git does not say that in time.
        """
        if (named := self._configured(root)) is not None:
            key: str | None = f"project:{':'.join(named)}"
        else:
            key = self._by_repository(await self._repositories.in_passing(root), root)
        if key is None:
            return ""
        return key[:-1] if key.endswith(":.") else f"{key}/"

    def _by_repository(self, repository: Repository | None, path: str) -> str | None:
        """Return the key of a path by its repository, None for one that is no part of any."""
        inside = repository.inside(path) if repository else None
        if repository is None or inside is None:
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
        here = await self._real(near) if near else None
        repository = await self._repositories.in_passing(here) if here else None
        if repository is not None and self._configured(repository.top) is None:
            names = (repository.name, repository.key)
            roots += [(repository.top, name) for name in names if name is not None]
        begins = ((root, f"project:{name}:") for root, name in roots)
        return tuple(f"{root}/{rest[len(it) :]}" for root, it in begins if rest.startswith(it))

    async def places(self, directory: str | None) -> tuple[str, ...]:
        """Return what a directory is called on every machine, then those above in its project.

        Nothing where the store is not shared, where the project has no such name, and where Git or
        the file system does not say it in time: then its path is all that is known.
        """
        if not self._machine or not directory:
            return ()
        here = await self._real(directory)
        if here is None:
            return ()
        found = self._configured(here)
        if found is None:
            repository = await self._repositories.in_passing(here)
            inside = repository.inside(here) if repository else None
            if repository is not None and inside is not None:
                found = self._shared(repository, inside)
        return tuple(f"{found[0]}:{each}" for each in _and_above(found[1])) if found else ()

    async def _real(self, directory: str) -> str | None:
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

    async def _asked(self, path: str) -> Repository | None:
        named = "a project with a name in the configuration ([projects])"
        try:
            return await self._repositories.around(os.path.dirname(path))  # noqa: PTH120
        except git.GitSlow:
            without = named if self._machine else "a mission without lock_scope project"
            raise Unavailable(
                f"Git did not say in {git.SECONDS} s which repository {path} belongs to.",
                hint=f"Try again; {without} needs no Git for its locks.",
            ) from None
        except git.GitAbsent:
            if not self._machine:
                return None
            raise Unavailable(
                f"Git cannot be run, so nobody can say which file {path} is on other machines.",
                hint=f"Install Git where fleetd finds it; {named} needs none for its locks.",
            ) from None


def _and_above(inside: str) -> Iterator[str]:
    """Yield a path inside a project and the directories above it, up to its root."""
    while inside != ".":
        yield inside
        inside = os.path.dirname(inside) or "."  # noqa: PTH120
    yield inside
