"""Lookups in file systems that may hang: on threads, with a deadline.

A call into a mount whose server is gone returns when the server does, and cannot be ended. So its
thread is left waiting, and counted for the mount. Once a few wait at one mount, no other thread is
sent there until one comes back. Paths on other mounts are still looked up.

Paths on the file system that holds fleetd's own files are looked up on the event loop, which waits
for that file system anyway: a thread takes ten times as long as the lookup.
"""

import contextlib
import os
import re
import select
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar, cast

import msgspec
import outcome
import trio

from ..protocol.errors import Unavailable
from ..protocol.requests.lock import LockAcquire, LockCheck, LockList
from .cpu_worker import in_short_turns


class PathFacts(msgspec.Struct, frozen=True):
    """What a file system reports about a path: its real path, and whether a directory is there."""

    real: str
    is_directory: bool


def within(place: str, path: str) -> bool:
    """Return whether a path is a place or below it, by their names alone."""
    return path == place or path.startswith(place.rstrip("/") + "/")


def absolute(file: str, base: str | None) -> str | None:
    """Return a file's path from the root, as it is written.

    None when the path is relative and there is no base to start from.
    """
    path = os.path.expanduser(file) if file.startswith("~/") else file  # noqa: PTH111
    if path.startswith("/"):
        return path
    return f"{base}/{path}" if base is not None and base.startswith("/") else None


class _Seen:
    """Answers of the file system so far; a request asks for a path once."""

    def __init__(self) -> None:
        self.facts: dict[str, PathFacts | PathUnanswered] = {}
        self.modes: dict[str, int] = {}
        """The modes of paths, 0 for one that cannot be looked at."""
        self.targets: dict[str, str | None] = {}
        """Where links lead, None for one that cannot be read."""


class PathWalk:
    """One walk through the file system; calls ``admit`` with each path before it asks for it.

    ``admit`` may raise: then the path is not asked for. A path in ``seen`` is not asked for either.
    """

    def __init__(
        self, admit: Callable[[str], None] = lambda _: None, seen: _Seen | None = None
    ) -> None:
        self._admit = admit
        self._seen = _Seen() if seen is None else seen
        self.at: str | None = None
        """The path that a file system is asked for now; None in between."""
        self.asked: str | None = None
        self._progress: tuple[str, list[str]] = ("", [])

    @property
    def reached(self) -> str | None:
        """Return the last path asked for, resolved as far as the file system answered."""
        place, rest = self._progress
        return os.path.normpath("/".join([place, *reversed(rest)])) if place else self.asked

    def visit(self, path: str) -> None:
        """Note that a path is asked for next."""
        self.at = path
        self._admit(path)

    def facts(self, path: str) -> PathFacts:
        """Return what the file system reports about an absolute path, which need not exist.

        A path that cannot be examined counts as no link; links in a circle stay unresolved.
        """
        known = self._seen.facts.get(path)
        if isinstance(known, PathFacts):
            self.asked, self._progress, self.at = path, (known.real, []), None
            return known
        self.asked, self._progress = path, ("", [])
        here: str = ""
        mode: int | None = None
        rest = [name for name in reversed(path.split("/")) if name not in ("", ".")]
        opened: list[tuple[str, int]] = []
        while rest:
            name = rest.pop()
            while opened and len(rest) < opened[-1][1]:
                opened.pop()
            if name == "..":
                here, mode = here.rpartition("/")[0], None
                continue
            place = f"{here}/{name}"
            self._progress = (place, rest.copy())
            mode = self._mode(place)
            if not stat.S_ISLNK(mode) or (target := self._target(place)) is None:
                here = place
            elif any(place == each for each, _ in opened):  # a circle
                here = os.path.normpath("/".join([place, *reversed(rest)]))
                mode = None
                break
            else:
                opened.append((place, len(rest)))
                here, mode = "" if target.startswith("/") else here, None
                rest += [name for name in reversed(target.split("/")) if name not in ("", ".")]
        if mode is None:  # the result was not examined yet
            mode = self._mode(here or "/")
        self.at = None
        found = PathFacts(here or "/", stat.S_ISDIR(mode))
        self._seen.facts[path] = self._seen.facts[found.real] = found
        return found

    def _mode(self, place: str) -> int:
        known = self._seen.modes.get(place)
        if known is not None:
            return known
        self.visit(place)
        try:
            mode = os.lstat(place).st_mode
        except (OSError, ValueError):  # not a valid path, such as one with a NUL byte
            mode = 0
        self._seen.modes[place] = mode
        return mode

    def _target(self, place: str) -> str | None:
        if place in self._seen.targets:
            return self._seen.targets[place]
        self.visit(place)
        target: str | None = None
        with contextlib.suppress(OSError):
            target = os.readlink(place)  # noqa: PTH115 - as above
        self._seen.targets[place] = target
        return target

    def root(self, place: str) -> str | None:
        """Return the root of the repository around a real path, None where there is none."""
        # Plain strings, because every hook asks for this.
        while True:
            found = self._mode(f"{place}/.git")
            self.at = None
            if found:
                return place or "/"
            place, _, name = place.rpartition("/")
            if not name:
                return None


R = TypeVar("R")
T = TypeVar("T")
SECONDS = 0.5
# The hook client waits 0.9 s for everything.
HOOK_SECONDS = 0.3
# A mount that has not answered by then is asked by only a few threads at a time.
SLOW_S = 0.005
# Slow lookups may hold up the event loop a twentieth of the time, and for ``BURST_S`` in one go.
# After that, all go to threads until the time is made up for. On a busy computer, some were slow
# only because they waited for a processor or the interpreter; threads would take more of both.
PAUSE, LONGEST_PAUSE_S = 20, 600.0
BURST_S = 0.05
FEW_PATHS = 8
MOST_AT_ONCE = 4
MOST_PER_MOUNT = 4
MOST_THREADS = 64
_LOCKS = (LockAcquire, LockCheck, LockList)
_MOUNTS = Path("/proc/self/mountinfo")
# File systems that do not wait for another computer.
_LOCAL = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}


class PathUnanswered(Unavailable):
    """A file system did not answer in time; ``reached`` is the path as far as it is resolved."""

    def __init__(self, path: str, at: str | None, reached: str) -> None:
        where = at or path
        super().__init__(
            f"The file system does not answer: {path} cannot be examined.",
            hint=f"It hangs at {where}. Check that the mount is reachable, then try again;"
            " requests about other paths are answered.",
            path=path,
        )
        self.path = path
        self.reached = reached


_seen: ContextVar[_Seen | None] = ContextVar("seen", default=None)


class _MountClosed(Exception):
    """Enough threads wait for this mount already."""

    def __init__(self, mount: str) -> None:
        super().__init__(mount)
        self.mount = mount


class _Elsewhere(Exception):
    """The path is on another file system than fleetd's own files."""


class _Mounts(NamedTuple):
    """Where file systems are mounted, each with its device, and which mounts are closed now."""

    devices: Mapping[str, str] = {}
    closed: frozenset[str] = frozenset()

    def of(self, path: str) -> str:
        """Return the mount of a real path; the path itself where the kernel reports none."""
        place = path
        while place not in self.devices:
            if place in ("", "/"):
                return path
            place = place.rpartition("/")[0] or "/"
        return place


class _Lookup:
    """A piece of work on a thread, where it is, and its result."""

    def __init__(self, work: Callable[[PathWalk], Any], admit: Callable[[str], None]) -> None:
        self.walk = PathWalk(admit, _seen.get())
        self.work = partial(work, self.walk)
        self.done = trio.Event()
        self.result: outcome.Outcome[Any] | None = None
        self.overdue = False


class _NearLookups:
    """Lookups on the event loop, of paths on the file system that holds fleetd's own files.

    They pause for a while after slow ones. With ``local_only`` they exclude file systems that may
    wait for another computer, such as NFS.
    """

    def __init__(self, own: str, mount_info: IO[bytes], *, local_only: bool) -> None:
        self._own = own
        self._local_only = local_only
        # The kernel reports a changed mount table to every process that holds it open.
        self._changes = select.poll()
        self._changes.register(mount_info, select.POLLPRI)
        self._not_before = 0.0
        self._held_s = self._noted_at = 0.0
        """Seconds for which slow ones held up the loop, less the time made up for, and when."""
        self._read()

    def _read(self) -> None:
        self._mounts = _Mounts(_mounts())
        mount = self._mounts.of(self._own)
        is_local = not self._local_only or _kinds().get(mount) in _LOCAL
        self._device: str | None = self._mounts.devices.get(mount) if is_local else None

    def run(self, work: Callable[[PathWalk], T]) -> T:
        """Do a piece of work now; raises _Elsewhere for one that needs a thread."""
        begun = time.monotonic()
        if begun < self._not_before:
            raise _Elsewhere
        if self._changes.poll(0):
            self._read()
        try:
            return work(PathWalk(self._admit, _seen.get()))
        finally:
            self._time(begun, time.monotonic())

    def _time(self, begun: float, ended: float) -> None:
        """Note how long a lookup took; pause once slow ones together took too long."""
        if ended - begun <= SLOW_S:
            return
        made_up = (begun - self._noted_at) / PAUSE
        self._held_s = max(0.0, self._held_s - made_up) + ended - begun
        self._noted_at = ended
        if self._held_s > BURST_S:
            self._not_before = ended + min(PAUSE * self._held_s, LONGEST_PAUSE_S)
            self._held_s = 0.0

    def _admit(self, path: str) -> None:
        mounts = self._mounts
        if self._device is None or mounts.devices.get(mounts.of(path)) != self._device:
            raise _Elsewhere


class FileSystem:
    """Runs lookups; with ``inline`` they run in the calling task, for virtual time."""

    def __init__(self, *, inline: bool) -> None:
        self._inline = inline
        self._near: _NearLookups | None = None
        self._entry = trio.Semaphore(MOST_AT_ONCE)
        self._threads = 0
        self._slow: set[_Lookup] = set()
        """Lookups that take long, wherever each is by now."""
        self._mounts = _Mounts()
        self._returned = trio.Event()

    @contextlib.contextmanager
    def near(self, own: Path, *, local_only: bool = False) -> Iterator[None]:
        """Look up paths on the file system of ``own`` on the event loop until the block ends.

        With ``local_only``, only if that file system does not wait for another computer. All
        lookups use threads where the kernel does not report mounts.
        """
        with contextlib.ExitStack() as open_files:
            if not self._inline:
                with contextlib.suppress(OSError):
                    mount_info = open_files.enter_context(_MOUNTS.open("rb"))
                    place = os.path.realpath(own)
                    self._near = _NearLookups(place, mount_info, local_only=local_only)
            try:
                yield
            finally:
                self._near = None

    async def run(self, work: Callable[[PathWalk], T], path: str, *, seconds: float = SECONDS) -> T:
        """Do a piece of work that asks for ``path``; raises PathUnanswered after ``seconds``.

        The work notes in its walk what it asks for. Work that is cancelled or late is left behind.
        """
        if self._inline:
            await trio.lowlevel.checkpoint()
            return work(PathWalk(seen=_seen.get()))
        lookup: _Lookup | None = None
        with trio.move_on_after(seconds):
            while True:
                lookup = _Lookup(work, self._admit)
                try:
                    return cast("T", await self._once(lookup))
                except _MountClosed as closed:
                    self._count()  # lookups that waited there may be elsewhere by now
                    if self._hangs(closed.mount):
                        break
                    if closed.mount in self._mounts.closed:
                        with trio.move_on_after(SLOW_S):
                            await self._returned.wait()
        if lookup is not None and isinstance(lookup.result, outcome.Value):
            return cast("T", lookup.result.unwrap())  # it ended at the last moment
        raise self._unanswered(path, lookup)

    async def run_short(
        self,
        work: Callable[[PathWalk], T],
        path: str,
        *,
        paths: int = 1,
        seconds: float = SECONDS,
    ) -> T:
        """Do the same with a piece of work that looks only at some ``paths`` and reads little.

        With few paths it may start on the event loop, and start again on a thread.
        """
        if self._near is not None and paths <= FEW_PATHS:
            await trio.lowlevel.checkpoint_if_cancelled()
            with contextlib.suppress(_Elsewhere):
                return self._near.run(work)
        return await self.run(work, path, seconds=seconds)

    def _unanswered(self, path: str, lookup: _Lookup | None) -> PathUnanswered:
        walk = lookup.walk if lookup is not None else PathWalk()
        if lookup is not None and not lookup.done.is_set():
            lookup.overdue = True
            self._note_slow(lookup)
        asked = walk.asked or path
        return PathUnanswered(asked, walk.at, walk.reached or asked)

    async def _once(self, lookup: _Lookup) -> Any:
        """Start a lookup and wait for it; raises _MountClosed where enough wait already."""
        if self._threads >= MOST_THREADS:
            raise _MountClosed("")
        async with self._entry:
            self._start(lookup)
            try:
                with trio.move_on_after(SLOW_S):
                    await lookup.done.wait()
            finally:
                if not lookup.done.is_set():
                    self._note_slow(lookup)
        await lookup.done.wait()
        if lookup.result is None:
            raise AssertionError("a lookup ended without a result")
        return lookup.result.unwrap()

    def _start(self, lookup: _Lookup) -> None:
        token = trio.lowlevel.current_trio_token()

        def deliver(result: outcome.Outcome[Any]) -> None:
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(self._finish, lookup, result)

        self._threads += 1
        # Some lookups read long files and compute.
        work = partial(in_short_turns, lookup.work)
        trio.lowlevel.start_thread_soon(work, deliver, "file system")

    def _finish(self, lookup: _Lookup, result: outcome.Outcome[Any]) -> None:
        self._threads -= 1
        lookup.result = result
        lookup.done.set()
        if lookup in self._slow:
            self._slow.remove(lookup)
            self._count()
            self._returned.set()
            self._returned = trio.Event()

    def _note_slow(self, lookup: _Lookup) -> None:
        """Count a lookup for the mount that it waits for, from now on."""
        self._mounts = self._mounts._replace(devices=_mounts())
        self._slow.add(lookup)
        self._count()

    def _where(self) -> Iterator[tuple[_Lookup, str]]:
        """Yield each lookup that waits for a mount, with the mount; computing waits for none."""
        for each in self._slow:
            if (at := each.walk.at) is not None:
                yield each, self._mounts.of(at)

    def _count(self) -> None:
        waiting = Counter(mount for _, mount in self._where())
        closed = frozenset(mount for mount, most in waiting.items() if most >= MOST_PER_MOUNT)
        self._mounts = self._mounts._replace(closed=closed)

    def _hangs(self, mount: str) -> bool:
        """Return whether all lookups that may wait for a mount are overdue: then no other waits."""
        overdue = sum(each.overdue for each, where in self._where() if where == mount)
        return not mount or overdue >= MOST_PER_MOUNT

    def _admit(self, path: str) -> None:
        """Raise _MountClosed for a path on a closed mount; called on any thread."""
        mounts = self._mounts
        if mounts.closed and (mount := mounts.of(path)) in mounts.closed:
            raise _MountClosed(mount)

    # Lookups for requests

    @contextlib.contextmanager
    def remembering(self, *, anew: bool = False) -> Iterator[_Seen]:
        """Remember lookups until the block ends: a request asks for a path once.

        With ``anew``, work within a request ignores what the request has already looked up.
        """
        seen = None if anew else _seen.get()
        if seen is not None:
            yield seen
            return
        token = _seen.set(seen := _Seen())
        try:
            yield seen
        finally:
            _seen.reset(token)

    async def look(self, *paths: str, seconds: float = SECONDS) -> list[PathFacts]:
        """Return the facts of absolute paths, on one thread; raises PathUnanswered."""
        with self.remembering() as seen:
            new = [path for path in dict.fromkeys(paths) if path not in seen.facts]
            if new:
                await self._look(new, seen, seconds)
            found = []
            for path in paths:
                facts = seen.facts[path]
                if isinstance(facts, PathUnanswered):
                    raise facts
                found.append(facts)
            return found

    async def _look(self, paths: list[str], seen: _Seen, seconds: float) -> None:
        def work(walk: PathWalk) -> None:
            for path in paths:
                walk.facts(path)

        try:
            await self.run_short(work, paths[0], paths=len(paths), seconds=seconds)
        except PathUnanswered as unanswered:
            seen.facts[unanswered.path] = unanswered
            raise

    async def real_path(self, file: str, base: str | None) -> str | None:
        """Return a file's absolute path with ``..``, doubled slashes and symlinks resolved.

        None when the path is relative and there is no base to start from. Raises PathUnanswered.
        """
        path = absolute(file, base)
        return None if path is None else (await self.look(path))[0].real


async def with_real_paths(files: FileSystem, request: R) -> R:
    """Return a request whose directories have their symlinks resolved; raises PathUnanswered.

    The same directory can have several names, and rules compare names. A file that the request
    names is looked up in the same step, because the request will need it.
    """
    given = {
        name: path
        for name in ("cwd", "project_dir")
        if (path := getattr(request, name, None)) and path.startswith("/")
    }
    named = request.file if isinstance(request, _LOCKS) else None
    file = absolute(named, given.get("cwd")) if named else None
    if not given and file is None:
        return request
    found = await files.look(*given.values(), *filter(None, [file]))
    real = dict(zip(given, (facts.real for facts in found), strict=False))
    return msgspec.structs.replace(request, **real)  # type: ignore[type-var]


def _mounts() -> dict[str, str]:
    """Return each mount point with its device; empty where the kernel reports none."""
    return {place: device for place, device, _ in _mount_table()}


def _kinds() -> dict[str, str]:
    """Return each mount point with its type of file system, such as ``ext4``."""
    return {place: kind for place, _, kind in _mount_table()}


def _mount_table() -> Iterator[tuple[str, str, str]]:
    """Yield place, device and type of each mount; the last one at a place hides those before it."""
    try:
        lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.split(" ")
        # The kernel writes a space in a path as \040.
        place = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        yield place, fields[2], fields[fields.index("-") + 1]
