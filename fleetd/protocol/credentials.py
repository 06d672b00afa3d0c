"""Peer credentials of a Unix socket, as the kernel tells them."""

import struct
import sys
from typing import Any

if sys.platform == "linux":
    # The C module: fleetctl does without the slow import of the one above it.
    from _socket import SO_PEERCRED, SOL_SOCKET

    def credentials(sock: Any) -> tuple[int, int | None]:
        """Return the uid and the pid of the other end; raises OSError where nobody knows.

        Of a listener's end they are those of the process that called ``listen``.
        """
        layout = struct.Struct("3i")
        option = sock.getsockopt(SOL_SOCKET, SO_PEERCRED, layout.size)
        pid, uid, _ = layout.unpack(option)
        # The kernel counts uids without a sign.
        return uid & 0xFFFFFFFF, pid

else:

    def credentials(sock: Any) -> tuple[int, int | None]:
        """Return the uid of the other end; raises OSError where nobody knows."""
        # struct xucred of macOS and FreeBSD begins with a version and the uid.
        local_level, local_peercred, size = 0, 1, 76
        option = sock.getsockopt(local_level, local_peercred, size)
        _, uid = struct.unpack_from("2I", option)
        return uid, None
