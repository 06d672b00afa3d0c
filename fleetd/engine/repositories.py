"""Repositories: where they are, what all clones share, and what state they are in, asked of Git.

The first two are cached until a repository's settings change: every edit asks for locks, and three
processes for each would take longer than all else. Two machines use different URLs for one project.
Its name is the host and the path, on which they agree: ``github.com/Acme/Widget``.
"""

import contextlib
import os
import posixpath
import re
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import trio

from ..domain.core.context import WorkingTree
from ..domain.redaction.redact import redact
from ..host import git
from ..host.file_system import FileSystem, PathUnanswered, PathWalk, within
from ..protocol.display import path, quote

_CREDENTIALS = re.compile(r"://[^/@]*@")
_SETTINGS = r"^(remote\..*\.url|url\..*\.insteadof)$"
# The user's own settings, which can rewrite URLs.
_USERS = ("~/.gitconfig", "~/.config/git/config")
MOST_KNOWN = 1_000
# If Git was too slow, try_around does not ask it again for this time.
RETRY_S = 60
CHANGED_MAX, WORDS_CHARS = 20, 120
# These reach the same place, so the scheme is no part of a project's name.
_SCHEMES = {"http", "https", "ssh", "git", "git+ssh", "ssh+git", "git+https", "git+http"}
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)")
# The syntax of scp: no slash before the colon, and no scheme.
_SCP = re.compile(r"(?:[^/@:\[\]]*@)?(\[[^]/]+\]|[^/:@\[\]]+):(?!//)(.+)")
_HELPER = re.compile(r"[A-Za-z0-9]+::")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::([0-9]*))?")
# Each is the default of some scheme, and many hosts serve SSH on the port of another one.
_USUAL_PORTS = {"", "22", "80", "443", "9418"}
# Names of the same hosts, for a firewall that lets only port 443 through.
_OTHER_NAMES = {
    "ssh.github.com": "github.com",
    "altssh.gitlab.com": "gitlab.com",
    "altssh.bitbucket.org": "bitbucket.org",
}
_HERE = re.compile(r"localhost(\..*)?|127\..*|0\.0\.0\.0|\[::1?\]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_Stamps = tuple[tuple[int, ...], ...]


class Repository(msgspec.Struct, frozen=True):
    """What Git reports about a repository: its working tree, its own directory, its remotes."""

    top: str
    common: str
    origin: str | None
    """The URL of ``origin``, unchanged."""
    name: str | None
    """The name that all clones share."""

    def inside(self, path: str) -> str | None:
        """Return a path inside the working tree, None for one that is not part of it."""
        return inside_of(self.top, path) if within(self.top, path) else None

    @property
    def key(self) -> str:
        """Return the name that its worktrees on this machine share."""
        return _CREDENTIALS.sub("://", self.origin) if self.origin else self.common

    @property
    def first(self) -> str | None:
        """Return its first working tree, if it has one: others are made from that."""
        return os.path.dirname(self.common) if self.common.endswith("/.git") else None  # noqa: PTH120

    @property
    def linked(self) -> bool:
        """Whether this working tree was made from the first one; a submodule's was not."""
        return self.first is not None and self.first != self.top


class _Known(msgspec.Struct, frozen=True):
    """What is known about a directory, and the stamps of the files that this depends on."""

    repository: Repository | None
    files: tuple[str, ...]
    stamps: _Stamps


class Repositories:
    """Cache of Git's answers about repositories, by their roots."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._known: dict[str, _Known] = {}
        self._turns: dict[str, trio.Lock] = {}
        self._slow_until: dict[str, float] = {}

    async def around(self, folder: str) -> Repository | None:
        """Return the repository around a real directory, which need not be there yet.

        Raises git.GitSlow, git.GitAbsent and PathUnanswered.
        """
        root, known = await self._files.run_short(partial(self._look, folder=folder), folder)
        return await self._current(root, known) if root is not None else None

    def known_around(self, walk: PathWalk, folder: str) -> tuple[str | None, Repository | None]:
        """Return the root around a real directory, and its repository if that is cached."""
        root, known = self._look(walk, folder)
        return root, known.repository if known else None

    async def try_around(self, folder: str) -> Repository | None:
        """Return the same, or None if Git does not answer everything in the time of one answer.

        Hooks use this: a file system that hangs must not hold up each of them.
        """
        try:
            root, known = await self._files.run_short(partial(self._look, folder=folder), folder)
        except PathUnanswered:
            return None
        if root is None or trio.current_time() < self._slow_until.get(root, 0):
            return None
        with (
            trio.move_on_after(git.SECONDS),
            contextlib.suppress(git.GitSlow, git.GitAbsent, PathUnanswered),
        ):
            return await self._current(root, known)
        self._slow_until[root] = trio.current_time() + RETRY_S
        return None

    def _look(self, walk: PathWalk, folder: str) -> tuple[str | None, _Known | None]:
        """Return the root around a directory, and what is known of it if that is up to date."""
        root = walk.root(folder)
        return root, self._up_to_date(walk, root) if root is not None else None

    async def _current(self, root: str, known: _Known | None) -> Repository | None:
        if known is None:
            # Many agents begin at the same time: only one of them asks.
            async with self._turns.setdefault(root, trio.Lock()):
                known = await self._files.run_short(lambda walk: self._up_to_date(walk, root), root)
                known = known or await self._ask(root)
        return known.repository

    def _up_to_date(self, walk: PathWalk, root: str) -> _Known | None:
        known = self._known.get(root)
        return known if known is not None and _stamps(walk, known.files) == known.stamps else None

    async def _ask(self, root: str) -> _Known:
        known = await _ask(self._files, root)
        if len(self._known) >= MOST_KNOWN:
            for kept in (self._known, self._turns, self._slow_until):
                kept.clear()
        self._known[root] = known
        return known


async def _ask(file_system: FileSystem, root: str) -> _Known:
    """Ask Git about a repository; raises git.GitSlow, git.GitAbsent and PathUnanswered."""
    files = (f"{root}/.git", *map(os.path.expanduser, _USERS))
    stamps = await file_system.run_short(partial(_stamps, files=files), root)
    here = Path(root)
    top = await git.ask(here, "rev-parse", "--show-toplevel")
    common = await git.ask(here, "rev-parse", "--path-format=absolute", "--git-common-dir")
    if top is None or common is None:
        return _Known(None, files, stamps)
    files = (*files, f"{common}/config")
    # Taken before the settings are read, so that changes meanwhile are noticed.
    stamps = await file_system.run_short(partial(_stamps, files=files), root)
    real_top = (await file_system.look(top))[0].real
    output = await git.ask(here, "config", "--null", "--get-regexp", _SETTINGS)
    return _Known(_parsed(real_top, common, output or ""), files, stamps)


def _parsed(top: str, common: str, settings: str) -> Repository:
    """Return the repository that Git's answers describe; each setting ends with a NUL."""
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
    return Repository(top, common, origin, shared)


def _names(remotes: dict[str, list[str]], instead: dict[str, str]) -> Iterator[str]:
    """Yield the names of a repository by its remotes: ``origin`` first, then alphabetically.

    The branch has no influence: a checkout must not change which file a lock means.
    """
    for remote in sorted(remotes, key=lambda each: (each != "origin", each)):
        url = remotes[remote][0]  # the one it is fetched from
        short = max(filter(url.startswith, instead), key=len, default=None)
        name = shared_name(url if short is None else instead[short] + url[len(short) :])
        if name is not None:
            yield name


def _stamps(walk: PathWalk, files: tuple[str, ...]) -> _Stamps:
    """Return stamps that show changes of files; for directories, only that they were replaced."""
    return tuple(_stamp(walk, file) for file in files)


def _stamp(walk: PathWalk, file: str) -> tuple[int, ...]:
    walk.visit(file)
    try:
        info = os.stat(file)  # noqa: PTH116 - asked with every lock
    except OSError:
        return ()
    if stat.S_ISDIR(info.st_mode):
        return (info.st_dev, info.st_ino)
    return (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)


def inside_of(directory: str, path: str) -> str | None:
    """Return a path relative to a directory; None within ``.git``, which no clones share."""
    inside = os.path.relpath(path, directory)
    return None if ".git" in inside.split("/") else inside


def shared_name(url: str) -> str | None:
    """Return the name that all clones of a project share, None for a URL that means one machine.

    The latter are paths, ``file://``, this host, and URLs that only a program of the user can read
    (``ext::…``). The name includes a scheme that is not Git's own. Users, passwords and queries are
    left out: they belong to the caller, not to the project.
    """
    url = url.strip()
    if _CONTROL.search(url) or _HELPER.match(url):
        return None
    if (found := _URL.fullmatch(url.split("?")[0].split("#")[0])) is not None:
        scheme, where, path = found[1].lower(), found[2].rpartition("@")[2], found[3]
    elif (short := _SCP.fullmatch(url)) is not None:
        scheme, where, path = "ssh", short[1], short[2]
        if where.startswith("[") and where.count(":") < 2:  # [user@host:port], no IPv6
            where = where[1:-1].rpartition("@")[2]
    else:
        return None
    host, inside = _host(where), _path(path)
    if scheme == "file" or host is None or inside is None:
        return None
    return f"{host}/{inside}" if scheme in _SCHEMES else f"{scheme}://{host}/{inside}"


def _host(where: str) -> str | None:
    """Return a host in lower case, with its port unless that is a usual one; None for this host."""
    found = _HOST.fullmatch(where.lower())
    if found is None:
        return None
    host = found[1].rstrip(".")
    if not host or _HERE.fullmatch(host):
        return None
    port = "" if found[2] in {None, *_USUAL_PORTS} else f":{found[2]}"
    return (host if port else _OTHER_NAMES.get(host, host)) + port


def _path(path: str) -> str | None:
    """Return a path without the differences between its spellings; None for the root."""
    before = None
    while path != before:  # removing ".git" from "..git" leaves a dot
        before = path
        path = posixpath.normpath(f"/{path.lstrip('/')}").removesuffix(".git")
    return path.lstrip("/") or None


async def working_tree(directory: str | None) -> WorkingTree | None:
    """Return branch, commit and changed files of the repository that a directory is in.

    None outside of a repository, or if Git does not report everything in half a second: a request
    for a briefing waits no longer than that.
    """
    if directory is None:
        return None
    with trio.move_on_after(git.SECONDS), contextlib.suppress(git.GitSlow, git.GitAbsent):
        return await _working_tree(Path(directory))
    return None


async def _working_tree(place: Path) -> WorkingTree | None:
    look = ("status", "--porcelain=v1", "--branch", "--ignore-submodules=all")
    settings = {**await _without_filters(place), "core.quotePath": "false"}
    status = await git.ask(place, *look, settings=settings)
    if not status:
        return None
    branch, *changed = status.rstrip("\n").split("\n")
    commit = await git.ask(place, "log", "-1", "--no-show-signature", f"--format={_COMMIT}")
    return WorkingTree(
        branch=_branch(branch),
        commit=_commit(commit) if commit else "",
        changed=tuple(path(redact(line)) for line in changed[:CHANGED_MAX]),
        more=max(0, len(changed) - CHANGED_MAX),
    )


_COMMIT = "%h%x00%an%x00%s"
_UNBORN = "No commits yet on "


def _branch(line: str) -> str:
    """Return a branch and its upstream, in quotes, from the first line of Git's status."""
    header = line.removeprefix("## ")
    # No name of a branch contains a blank; Git's own words follow it.
    if header.startswith(_UNBORN):
        return f"{_quoted(header.removeprefix(_UNBORN))}, no commits yet"
    names, _, rest = header.partition(" ")
    return f"{_quoted(names)} {rest}".rstrip()


def _commit(entry: str) -> str:
    """Return a commit's hash, author and subject; the latter two are free text, and quoted."""
    name, author, subject = entry.split("\0", 2)
    return f"{name} by {_quoted(author)}: {_quoted(subject)}"


def _quoted(text: str) -> str:
    return quote(redact(text), WORDS_CHARS)


async def _without_filters(directory: Path) -> dict[str, str]:
    """Return the settings that keep Git from running the content filters a repository names."""
    named = await git.ask(
        directory, "config", "--null", "--name-only", "--get-regexp", r"^filter\."
    )
    keys = dict.fromkeys(key for key in (named or "").split("\0") if key)
    return {key: "false" if key.endswith(".required") else "" for key in keys}
