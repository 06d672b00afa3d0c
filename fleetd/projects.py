"""What files and directories are called by the project they lie in; must not know the store.

A project has one name on all machines of a shared store: the one that the configuration gives to
its directory, else what the remotes of its clones have in common. Git is asked once per repository,
and again when its settings have changed: locks are asked for often.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from . import git
from .domain.current import within
from .domain.lock_keys import of_machine
from .places import real_path, repository_root
from .remotes import shared_name
from .wire.errors import Unavailable

Scope = Literal["machine", "project"]
_CREDENTIALS = re.compile(r"://[^/@]*@")
_SETTINGS = r"^(remote\..*\.url|url\..*\.insteadof)$"
# Where a user's own settings lie, which can rewrite URLs.
_USERS = ("~/.gitconfig", "~/.config/git/config")
MOST_KNOWN = 1_000
_Marks = tuple[tuple[int, ...], ...]


class _Repository(msgspec.Struct, frozen=True):
    """What Git says of a repository: its working tree, its own directory, its remotes."""

    top: str
    common: str
    origin: str | None
    """The URL of ``origin``, as it stands."""
    name: str | None
    """What all clones share."""

    def inside(self, path: str) -> str | None:
        """Return a path inside the working tree, None for one that is no part of it."""
        return _inside(self.top, path) if within(self.top, path) else None

    @property
    def key(self) -> str:
        """Return what its worktrees on this machine share."""
        return _CREDENTIALS.sub("://", self.origin) if self.origin else self.common

    @property
    def first(self) -> str | None:
        """Return its first working tree, if it has one: others are made from that."""
        return os.path.dirname(self.common) if self.common.endswith("/.git") else None  # noqa: PTH120


class _Known(msgspec.Struct, frozen=True):
    """What was found out about a directory, and what the files it stands in looked like."""

    repository: _Repository | None
    files: tuple[str, ...]
    marks: _Marks


class Projects:
    """Names files and directories; ``named`` are the directories of the configuration's names.

    ``machine`` is empty wherever one machine has the store to itself.
    """

    def __init__(self, named: Mapping[str, list[str]], machine: str) -> None:
        pairs = [(directory, name) for name, all_of in named.items() for directory in all_of]
        # The nearest directory counts.
        self._named = sorted(pairs, key=lambda pair: len(pair[0]), reverse=True)
        self._machine = machine
        self._known: dict[str, _Known] = {}

    @property
    def scopes(self) -> tuple[Scope, Scope]:
        """Return what locks are shared by: the default first."""
        return ("project", "machine") if self._machine else ("machine", "project")

    async def key(self, path: str, scope: Scope) -> str:
        """Return the key of a lock on a real path.

        Raises Unavailable when Git does not say which project it belongs to: by another key two
        could hold one file.
        """
        if scope == "machine":
            return of_machine(self._machine, path)
        if (named := self._configured(path)) is not None:
            return f"project:{':'.join(named)}"
        repository = await self._asked(path)
        inside = repository.inside(path) if repository else None
        if repository is None or inside is None:
            return of_machine(self._machine, path)
        if (shared := self._shared(repository, inside)) is not None:
            return f"project:{':'.join(shared)}"
        return of_machine(self._machine, f"project:{repository.key}:{inside}")

    async def places(self, directory: str | None) -> tuple[str, ...]:
        """Return what a directory is called on every machine, then those above in its project.

        Nothing where the store is not shared, where the project has no such name, and where Git
        does not say it in time: then its path is all that is known.
        """
        here = real_path(directory, None) if self._machine and directory else None
        if here is None:
            return ()
        found = self._configured(here)
        if found is None:
            try:
                repository = await self._repository(here)
            except (git.Slow, git.Absent):
                return ()
            inside = repository.inside(here) if repository else None
            if repository is not None and inside is not None:
                found = self._shared(repository, inside)
        return tuple(f"{found[0]}:{each}" for each in _and_above(found[1])) if found else ()

    def _configured(self, path: str) -> tuple[str, str] | None:
        """Return the name that the configuration has for a path, and the path inside."""
        for directory, name in self._named:
            if within(directory, path):
                inside = _inside(directory, path)
                return None if inside is None else (name, inside)
        return None

    def _shared(self, repository: _Repository, inside: str) -> tuple[str, str] | None:
        """Return the name that a repository has on every machine, and the path inside.

        Where the configuration names its first working tree, the others have that name too.
        """
        first = repository.first and self._configured(
            os.path.normpath(f"{repository.first}/{inside}")
        )
        if first:
            return first
        return (repository.name, inside) if self._machine and repository.name else None

    async def _asked(self, path: str) -> _Repository | None:
        named = "a project with a name in the configuration ([projects])"
        try:
            return await self._repository(os.path.dirname(path))  # noqa: PTH120
        except git.Slow:
            without = named if self._machine else "a mission without lock_scope project"
            raise Unavailable(
                f"Git did not say in {git.SECONDS} s which repository {path} belongs to.",
                hint=f"Try again; {without} needs no Git for its locks.",
            ) from None
        except git.Absent:
            if not self._machine:
                return None
            raise Unavailable(
                f"Git cannot be run, so nobody can say which file {path} is on other machines.",
                hint=f"Install Git where fleetd finds it; {named} needs none for its locks.",
            ) from None

    async def _repository(self, folder: str) -> _Repository | None:
        """Return the repository around a real directory, which need not be there yet.

        Raises git.Slow and git.Absent.
        """
        root = repository_root(folder)
        if root is None:
            return None
        known = self._known.get(root)
        if known is None or _marks(known.files) != known.marks:
            known = await _ask(root)
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[root] = known
        return known.repository


async def _ask(root: str) -> _Known:
    """Ask Git about a repository; raises git.Slow and git.Absent, which are not to be kept."""
    files = (f"{root}/.git", *map(os.path.expanduser, _USERS))
    marks = _marks(files)
    here = Path(root)
    top = await git.ask(here, "rev-parse", "--show-toplevel")
    common = await git.ask(here, "rev-parse", "--path-format=absolute", "--git-common-dir")
    if top is None or common is None:
        return _Known(None, files, marks)
    files = (*files, f"{common}/config")
    marks = _marks(files)  # before the settings are read: what changes meanwhile is noticed
    told = await git.ask(here, "config", "--null", "--get-regexp", _SETTINGS)
    return _Known(_told(top, common, told or ""), files, marks)


def _told(top: str, common: str, settings: str) -> _Repository:
    """Return what Git's answers say of a repository; of settings each ends with a NUL."""
    pairs = [each.partition("\n")[::2] for each in settings.split("\0") if each]
    remotes: dict[str, list[str]] = {}
    instead: dict[str, str] = {}
    for key, value in pairs:
        section, _, rest = key.partition(".")
        name = rest.rpartition(".")[0]
        if section == "remote":
            remotes.setdefault(name, []).append(value)
        else:
            instead[value] = name
    origin = remotes["origin"][-1] if "origin" in remotes else None
    shared = next(_names(remotes, instead), None)
    return _Repository(os.path.realpath(top), common, origin, shared)


def _names(remotes: dict[str, list[str]], instead: dict[str, str]) -> Iterator[str]:
    """Yield the names that a repository has by its remotes: by ``origin`` first, else by the ABC.

    Not by the branch: what is checked out must not change which file a lock means.
    """
    for remote in sorted(remotes, key=lambda each: (each != "origin", each)):
        url = remotes[remote][0]  # the one it is fetched from
        short = max(filter(url.startswith, instead), key=len, default=None)
        name = shared_name(url if short is None else instead[short] + url[len(short) :])
        if name is not None:
            yield name


def _marks(files: tuple[str, ...]) -> _Marks:
    """Return what shows that one of some files was changed; of a directory that it is another."""
    return tuple(map(_mark, files))


def _mark(file: str) -> tuple[int, ...]:
    try:
        info = os.stat(file)  # noqa: PTH116 - asked with every lock
    except OSError:
        return ()
    if stat.S_ISDIR(info.st_mode):
        return (info.st_dev, info.st_ino)
    return (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)


def _inside(directory: str, path: str) -> str | None:
    """Return a path from a directory on; None within Git's own, which each clone has for itself."""
    inside = os.path.relpath(path, directory)
    return None if ".git" in inside.split("/") else inside


def _and_above(inside: str) -> Iterator[str]:
    """Yield a path inside a project and the directories above it, up to its root."""
    while inside != ".":
        yield inside
        inside = os.path.dirname(inside) or "."  # noqa: PTH120
    yield inside
