"""One form of a record's file as it lies on the disk, plain or compressed; must not judge it."""

from pathlib import Path

import msgspec

from ...host.atomic_files import Directory, NotAFile, read_file
from ...protocol.errors import Corrupt
from .layout import GZIP, Layout
from .packing import unpacked


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
