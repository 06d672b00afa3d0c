"""A disk whose power can be cut after the fact: it records writes and syncs.

It records all changes below a directory: SQLite's by a VFS, Python's by its system calls. For every
moment of such a record ``after_cut`` creates a directory as a file system may leave it: unsynced
data is there, torn, or missing, and names are independent of contents. Real syncs are skipped;
nothing here survives a real power cut. Must not know what is stored.
"""

import os
import random
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from fleetd.store.sqlite import page_checksums

SECTOR = 512
ROOT = 0
_JOURNALS = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL
_CALLS = ("open", "close", "fsync", "fdatasync", "rename", "replace", "link", "symlink")
_CALLS += ("unlink", "remove", "mkdir", "rmdir")


class Write(NamedTuple):
    """Bytes that were written into a node; not synced yet."""

    node: int
    offset: int
    data: bytes


class Size(NamedTuple):
    """The size of a node was set."""

    node: int
    size: int


class Sync(NamedTuple):
    """A node was synced: its content, or its names, if it is a directory."""

    node: int


class Name(NamedTuple):
    """A node got a name in a directory; a rename removes its previous name."""

    directory: int
    name: str
    node: int
    old: tuple[int, str] | None = None


class Unname(NamedTuple):
    """A name was removed."""

    directory: int
    name: str


class Said(NamedTuple):
    """A reply to a client; it does not affect the disk."""

    what: Any


Step = Write | Size | Sync | Name | Unname | Said


@dataclass
class Platter:
    """What is certainly on the disk, and the pending writes.

    A node is bytes, a text (where a symlink points), or names, if it is a directory.
    """

    nodes: dict[int, bytearray | str | dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    written: dict[int, list[Write | Size]] = field(default_factory=dict)
    named: list[Name | Unname] = field(default_factory=list)

    def take(self, step: Step) -> None:
        """Apply a step."""
        if isinstance(step, Write | Size):
            self.written.setdefault(step.node, []).append(step)
        elif isinstance(step, Name | Unname):
            self.named.append(step)
        elif isinstance(step, Sync):
            self._sync(step.node)

    def _sync(self, node: int) -> None:
        if isinstance(self.nodes.get(node), dict):
            mine, others = [], []
            for step in self.named:
                here = node in (step.directory, *_old(step)[:1])
                (mine if here else others).append(step)
            self.named = others
            for step in mine:
                self.rename(step)
        for step in self.written.pop(node, []):
            _apply(self.content(node), step)

    def content(self, node: int) -> bytearray:
        """Return the bytes of a file."""
        found = self.nodes.setdefault(node, bytearray())
        assert isinstance(found, bytearray)
        return found

    def names(self, node: int) -> dict[str, int]:
        """Return the names in a directory."""
        found = self.nodes[node]
        assert isinstance(found, dict)
        return found

    def rename(self, step: Name | Unname) -> None:
        """Apply a change of names, as far as that is still possible."""
        if isinstance(step, Unname):
            self.names(step.directory).pop(step.name, None)
            return
        if step.old and self.names(step.old[0]).get(step.old[1]) == step.node:
            del self.names(step.old[0])[step.old[1]]
        self.names(step.directory)[step.name] = step.node


def _old(step: Name | Unname) -> tuple[int, str] | tuple[()]:
    return (step.old or ()) if isinstance(step, Name) else ()


def _apply(content: bytearray, step: Write | Size) -> None:
    if isinstance(step, Size):
        del content[step.size :]
        content.extend(bytes(step.size - len(content)))
        return
    content.extend(bytes(max(0, step.offset - len(content))))
    content[step.offset : step.offset + len(step.data)] = step.data


class RecordedDisk:
    """Records all changes below a directory; its initial content is on the disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.steps: list[Step] = []
        self.syncs = True
        """False for a disk that reports syncs but does not perform them."""
        self._mutex = threading.RLock()
        self._real = {name: getattr(os, name) for name in _CALLS}
        self._nodes: dict[tuple[int, int], int] = {}
        self._known: dict[int, bytes] = {}
        self._vfs_nodes: set[int] = set()
        self._count = ROOT
        self.first = Platter()
        self._scan(root, ROOT)
        for step in self.steps:
            self.first.take(step)
        for node in range(self._count + 1):
            self.first.take(Sync(node))
        self.steps = []

    def say(self, what: Any) -> None:
        """Note a reply to a client."""
        self._note(Said(what))

    def _scan(self, directory: Path, node: int) -> None:
        self._nodes[_key(directory.stat())] = node
        for path in directory.iterdir():
            child = self._new(path)
            self.steps.append(Name(node, path.name, child))
            if path.is_symlink():
                self.first.nodes[child] = os.readlink(path)
            elif path.is_dir():
                self.first.nodes[child] = {}
                self._scan(path, child)
            elif path.is_file():
                self.steps.append(Write(child, 0, path.read_bytes()))
                self._known[child] = path.read_bytes()

    def _new(self, path: Path | str, descriptor: int | None = None) -> int:
        self._count += 1
        self._nodes[_key(os.stat(path, dir_fd=descriptor, follow_symlinks=False))] = self._count
        return self._count

    def _note(self, step: Step) -> None:
        with self._mutex:
            self.steps.append(step)

    def _node(self, info: os.stat_result) -> int | None:
        return self._nodes.get(_key(info))

    # Calls of Python

    @contextmanager
    def recording(self) -> Iterator[str]:
        """Record while the block runs; yields the name of the VFS, the default meanwhile."""
        page_checksums.available()
        vfs = _Vfs(self)
        for name in _CALLS:
            setattr(os, name, getattr(self, f"_{name}"))
        try:
            yield vfs.vfs_name
        finally:
            for name, real in self._real.items():
                setattr(os, name, real)
            vfs.unregister()

    def _where(self, path: Any, descriptor: int | None) -> tuple[int, str] | None:
        """Return the directory of a path and the name in it, None for a path outside."""
        text = os.fspath(path)
        head, _, name = (text.decode() if isinstance(text, bytes) else text).rpartition("/")
        with suppress(OSError):
            if head:
                info = os.stat(head if descriptor is None else f"{head}/", dir_fd=descriptor)
            else:
                info = os.fstat(descriptor) if descriptor is not None else Path.cwd().stat()
            node = self._node(info)
            return None if node is None else (node, name)
        return None

    def _there(self, path: Any, descriptor: int | None = None) -> os.stat_result | None:
        with suppress(OSError):
            return os.stat(path, dir_fd=descriptor, follow_symlinks=False)
        return None

    def _appeared(self, path: Any, descriptor: int | None, kind: Any = None) -> None:
        where = self._where(path, descriptor)
        if where is not None:
            node = self._new(path, descriptor)
            self.first.nodes[node] = bytearray() if kind is None else kind
            self.steps.append(Name(*where, node))

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        with self._mutex:
            made = flags & os.O_CREAT and self._there(path, dir_fd) is None
            descriptor = self._real["open"](path, flags, mode, dir_fd=dir_fd)
            if made:
                self._appeared(path, dir_fd)
            return int(descriptor)

    def _close(self, descriptor: int) -> None:
        with self._mutex:
            self._look(descriptor)
            self._real["close"](descriptor)

    def _look(self, descriptor: int) -> None:
        """Note what Python wrote into a file; the VFS notes SQLite's files."""
        with suppress(OSError):
            info = os.fstat(descriptor)
            node = self._node(info)
            if node is None or node in self._vfs_nodes or not stat.S_ISREG(info.st_mode):
                return
            data = Path(f"/proc/self/fd/{descriptor}").read_bytes()
            if data != self._known.get(node, b""):
                self._known[node] = data
                self.steps += [Size(node, 0), Write(node, 0, data)]

    def _fsync(self, descriptor: int) -> None:
        with self._mutex:
            self._look(descriptor)
            node = self._node(os.fstat(descriptor))
            if node is not None and self.syncs:
                self.steps.append(Sync(node))

    _fdatasync = _fsync

    def _rename(
        self, old: Any, new: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        with self._mutex:
            info = self._there(old, src_dir_fd)
            before, after = self._where(old, src_dir_fd), self._where(new, dst_dir_fd)
            self._lose(self._there(new, dst_dir_fd))
            self._real["rename"](old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            node = self._node(info) if info else None
            if before and after and node is not None:
                self.steps.append(Name(*after, node, before))

    _replace = _rename

    def _link(self, old: Any, new: Any, **more: Any) -> None:
        with self._mutex:
            info, after = self._there(old), self._where(new, None)
            self._real["link"](old, new, **more)
            node = self._node(info) if info else None
            if after and node is not None:
                self.steps.append(Name(*after, node))

    def _symlink(self, target: Any, path: Any, *_: Any, dir_fd: int | None = None) -> None:
        with self._mutex:
            self._real["symlink"](target, path, dir_fd=dir_fd)
            self._appeared(path, dir_fd, str(target))

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._gone("unlink", path, dir_fd)

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._gone("rmdir", path, dir_fd)

    _remove = _unlink

    def _gone(self, call: str, path: Any, descriptor: int | None) -> None:
        with self._mutex:
            where = self._where(path, descriptor)
            self._lose(self._there(path, descriptor))
            self._real[call](path, dir_fd=descriptor)
            if where is not None:
                self.steps.append(Unname(*where))

    def _lose(self, info: os.stat_result | None) -> None:
        """Drop a node when its last name is removed: its inode number may be reused."""
        if info is not None and (info.st_nlink == 1 or stat.S_ISDIR(info.st_mode)):
            self._nodes.pop(_key(info), None)

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        with self._mutex:
            self._real["mkdir"](path, mode, dir_fd=dir_fd)
            self._appeared(path, dir_fd, {})

    # Calls of SQLite

    def opened(self, path: str, *, made: bool) -> int | None:
        """Return the node of a file that SQLite opens."""
        with self._mutex:
            if made:
                self._appeared(path, None)
            info = self._there(path)
            node = self._node(info) if info else None
            if node is not None:
                self._vfs_nodes.add(node)
            return node

    def wrote(self, node: int | None, offset: int, data: bytes) -> None:
        """Note a write by SQLite."""
        if node is not None:
            self._note(Write(node, offset, bytes(data)))

    def cut(self, node: int | None, size: int) -> None:
        """Note that SQLite set a file's length."""
        if node is not None:
            self._note(Size(node, size))

    def synced(self, node: int | None, directory: str | None) -> None:
        """Note a sync by SQLite, of a directory as well."""
        with self._mutex:
            if not self.syncs:
                return
            if node is not None:
                self._note(Sync(node))
            if directory is not None:
                self.synced(self._node(os.stat(directory)), None)

    def delete(self, path: str, delete: Callable[[], None]) -> None:
        """Let SQLite delete a file, and note it."""
        with self._mutex:
            where, info = self._where(path, None), self._there(path)
            delete()
            self._lose(info)
            if where is not None:
                self._note(Unname(*where))

    # Results

    def moments(self, kinds: tuple[type, ...] = (Write, Size, Sync, Name, Unname)) -> list[int]:
        """Return the moments before which something happened, and the last one."""
        found = [n for n, step in enumerate(self.steps) if isinstance(step, kinds)]
        return [*found, len(self.steps)]

    def said(self, moment: int) -> list[Any]:
        """Return the replies that clients had by then."""
        return [step.what for step in self.steps[:moment] if isinstance(step, Said)]

    def after_cut(self, moment: int, chance: random.Random | None, place: Path) -> None:
        """Create a directory as it may be after a power cut at a moment.

        Without ``chance`` everything unsynced is missing.
        """
        platter = deepcopy(self.first)
        for step in self.steps[:moment]:
            platter.take(step)
        if chance is not None:
            _spill(platter, chance)
        place.mkdir(mode=0o700)
        _make(platter, ROOT, place, {})


def _key(info: os.stat_result) -> tuple[int, int]:
    return info.st_dev, info.st_ino


def _spill(platter: Platter, chance: random.Random) -> None:
    """Apply some of the pending writes to the disk."""
    keeps = _taste(chance)
    for step in platter.named:
        if keeps():
            platter.rename(step)
    for node, pending in platter.written.items():
        _mangle(platter.content(node), pending, chance)


def _taste(chance: random.Random) -> Callable[[], bool]:
    """Return a function that chooses what is kept: nothing, all, few or many."""
    share = chance.choice((0.0, 1.0, 0.5, 0.1, 0.9))
    return lambda: chance.random() < share


def _mangle(content: bytearray, pending: list[Write | Size], chance: random.Random) -> None:
    """Keep some of the written sectors; fill gaps with anything."""
    before = len(content)
    keeps = _taste(chance)
    upto = chance.randrange(len(pending) + 1) if chance.random() < 0.5 else len(pending)
    length = before
    for step in pending[:upto]:
        if isinstance(step, Size):
            if keeps():
                _apply(content, step)
            continue
        length = max(length, step.offset + len(step.data))
        for offset, piece in _sectors(step):
            if keeps():
                _apply(content, Write(step.node, offset, piece))
            elif offset >= before and chance.random() < 0.1:
                _apply(content, Write(step.node, offset, chance.randbytes(len(piece))))
    if length > len(content) and chance.random() < 0.5:
        content.extend(bytes(length - len(content)))


def _sectors(step: Write) -> Iterator[tuple[int, bytes]]:
    """Split a write at sector boundaries."""
    position = 0
    while position < len(step.data):
        size = SECTOR - (step.offset + position) % SECTOR
        yield step.offset + position, step.data[position : position + size]
        position += size


def _make(platter: Platter, directory: int, place: Path, made: dict[int, Path]) -> None:
    for name, node in platter.names(directory).items():
        path, what = place / name, platter.nodes.get(node, bytearray())
        if isinstance(what, dict):
            path.mkdir(mode=0o700)
            _make(platter, node, path, made)
        elif isinstance(what, str):
            path.symlink_to(what)
        elif node in made:
            path.hardlink_to(made[node])
        else:
            path.write_bytes(what)
            path.chmod(0o600)
            made[node] = path


@contextmanager
def gone_after(place: Path) -> Iterator[Path]:
    """Remove a directory after its use."""
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


class _Vfs(apsw.VFS):
    """Passes every call on to the real file system and notes it."""

    def __init__(self, disk: RecordedDisk) -> None:
        self.vfs_name = f"disk-{id(disk)}"
        self.disk = disk
        super().__init__(self.vfs_name, page_checksums.VFS, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> "_File":
        return _File(self.disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.disk.delete(filename, lambda: super(_Vfs, self).xDelete(filename, syncdir))
        if syncdir:
            self.disk.synced(None, str(Path(filename).parent))


class _File(apsw.VFSFile):
    def __init__(self, disk: RecordedDisk, name: Any, flags: list[int]) -> None:
        path = name if isinstance(name, str | None) else name.filename()
        made = path is not None and not os.path.lexists(path)
        self._journal = bool(flags[0] & _JOURNALS)
        super().__init__(page_checksums.VFS, name, flags)
        self._disk = disk
        self._node = disk.opened(path, made=made) if path else None
        # As SQLite does it: the first sync of a journal also syncs its directory.
        self._directory = str(Path(path).parent) if path and self._journal else None

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)  # the VFS below writes the page checksum into these bytes
        self._disk.wrote(self._node, offset, data)

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        self._disk.cut(self._node, size)

    def xSync(self, flags: int) -> None:
        self._disk.synced(self._node, self._directory)
        self._directory = None
