"""A file system whose server does not answer, like a lost NFS server; needs the right to mount.

It speaks just enough of FUSE's protocol to be mounted. It reads later requests, so that not even a
kill ends the wait, and answers none. When the block ends, closing the connection ends all waits.
"""

import ctypes
import os
import select
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.small_disk import CannotMount

_IN, _OUT = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
_INIT, _MAJOR, _MINOR = 26, 7, 31
_WELCOME = struct.Struct("<IIIIHHIIHH8I")
_DETACH = 2


@contextmanager
def hung_mount(place: Path) -> Iterator[Path]:
    """Mount it at a directory that this creates; raises CannotMount."""
    place.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise CannotMount(f"FUSE cannot be used here: {error}") from error
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if libc.mount(b"hung", os.fsencode(place), b"fuse.hung", 0, options.encode()):
        os.close(device)
        raise CannotMount(f"mounting is not allowed here: {os.strerror(ctypes.get_errno())}")
    stopped, stop = os.pipe()
    reader = threading.Thread(target=_welcome_and_hang, args=(device, stopped))
    reader.start()
    try:
        yield place
    finally:
        libc.umount2(os.fsencode(place), _DETACH)
        os.close(stop)
        reader.join()


def _welcome_and_hang(device: int, stopped: int) -> None:
    """Read requests until the file system is not needed; closing the device ends all waits."""
    ready = select.poll()
    ready.register(device, select.POLLIN)
    ready.register(stopped, select.POLLHUP)
    try:
        while stopped not in dict(ready.poll()):
            asked = os.read(device, 1 << 17)
            _, opcode, unique, *_ = _IN.unpack_from(asked)
            if opcode == _INIT:
                body = _WELCOME.pack(_MAJOR, _MINOR, 0, 0, 16, 12, 4_096, 1, 1, 0, *[0] * 8)
                os.write(device, _OUT.pack(_OUT.size + len(body), 0, unique) + body)
    except OSError:  # it is no longer mounted, and nothing waited
        pass
    finally:
        os.close(device)
        os.close(stopped)
