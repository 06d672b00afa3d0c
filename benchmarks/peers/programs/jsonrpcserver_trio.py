"""jsonrpcserver without changes, behind a Unix socket of trio's: a line in, a line out.

Its ``async_dispatch`` needs asyncio and cannot run here, so this uses its ``dispatch``.
"""

import importlib.metadata
import json
import os
import socket
import sys
import warnings
from pathlib import Path
from typing import Any

import trio

with warnings.catch_warnings():
    # The library reads its schema with a call that newer Pythons deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    from jsonrpcserver import Result, Success, dispatch

BACKLOG = 128
RECEIVE_BYTES = 65_536


def main() -> None:
    """Serve one requested method with one reply, until stdin ends."""
    asked = json.loads(sys.stdin.readline())
    path = Path(asked["directory"]) / "j.sock"
    trio.run(_serve, path, asked["method"], asked["reply"])


async def _serve(path: Path, method: str, reply: Any) -> None:
    def answer(**_params: Any) -> Result:
        return Success(reply)

    os.umask(0o077)
    listener = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with listener:
        await listener.bind(str(path))
        listener.listen(BACKLOG)
        facts = {"version": importlib.metadata.version("jsonrpcserver"), "way": "over a socket"}
        print(json.dumps(facts | {"socket": str(path)}), flush=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_stdin_ends, nursery.cancel_scope)
            while True:
                client, _ = await listener.accept()
                nursery.start_soon(_answer, client, {method: answer})


async def _answer(client: Any, methods: dict[str, Any]) -> None:
    waiting = b""
    with client:
        while received := await client.recv(RECEIVE_BYTES):
            *lines, waiting = (waiting + received).split(b"\n")
            for line in lines:
                answered = dispatch(line.decode(), methods).encode() + b"\n"
                while answered:
                    answered = answered[await client.send(answered) :]


async def _until_stdin_ends(serving: trio.CancelScope) -> None:
    await trio.lowlevel.wait_readable(sys.stdin.fileno())
    serving.cancel()


if __name__ == "__main__":
    main()
