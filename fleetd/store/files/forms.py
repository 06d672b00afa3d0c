"""A record's file as it lies on the disk, plain or compressed with gzip."""

import gzip
import zlib
from pathlib import Path

import msgspec

from ...host.atomic_files import Directory, NotAFile, read_file
from ...protocol.errors import Corrupt
from .layout import GZIP, Layout

# A snapshot is far smaller; whoever made a larger one wants to fill our memory.
MOST_BYTES = 64 * 1024 * 1024
_GZIP = 16 + zlib.MAX_WBITS


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is there: its bytes, and what they are when nothing is compressed.

    ``trouble`` says why ``data`` is not there; ``no_file`` that something else stands in its place.
    """

    path: Path
    raw: bytes = b""
    data: bytes = b""
    trouble: Corrupt | OSError | None = None
    no_file: bool = False

    @property
    def compressed(self) -> bool:
        """Whether this is the compressed form."""
        return self.path.name.endswith(GZIP)

    def plain(self) -> bytes:
        """Return the bytes that nothing compresses; raises what is in their way."""
        if self.trouble is not None:
            raise self.trouble
        return self.data


def form_of(layout: Layout, files: Directory, name: str) -> Form | None:
    """Read one form; None when it is not there."""
    path = files.path / name
    try:
        raw = read_file(files, name)
    except FileNotFoundError:
        return None
    except NotAFile as error:
        return Form(path=path, trouble=layout.not_a_file(path, str(error)), no_file=True)
    except OSError as error:  # its other form may lie where the disk is whole
        return Form(path=path, trouble=error)
    try:
        data = unpacked(raw) if name.endswith(GZIP) else raw
    except ValueError as error:
        return Form(path=path, raw=raw, trouble=layout.damaged(path, str(error)))
    return Form(path=path, raw=raw, data=data)


def packed(data: bytes) -> bytes:
    """Return the bytes compressed, without a name or a time in them."""
    return gzip.compress(data, mtime=0)


def unpacked(raw: bytes) -> bytes:
    """Return what was compressed; raises ValueError for anything that is not whole."""
    unpacking = zlib.decompressobj(_GZIP)
    try:
        data = unpacking.decompress(raw, MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"it is no gzip file: {error}") from error
    if not unpacking.eof:
        raise ValueError("it ends early" if not unpacking.unconsumed_tail else "it is too large")
    if unpacking.unused_data:
        raise ValueError("something follows its end")
    return data
