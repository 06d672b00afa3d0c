"""A network between a store and its server, which fails on request."""

import contextlib
import socket
import threading
from typing import Literal

Moment = Literal["before", "after", "unnoticed", "half"]


class Proxy:
    """Forwards connections on a port of its own; a context manager.

    ``cut(text, "before")`` loses the next message in which ``text`` stands, and its connection;
    "after" lets it arrive, and loses what the server answers; "unnoticed" is as "before", but the
    server hears nothing of it. Of "half" a half arrives, and then nothing more, as when the client
    is stopped. ``hold`` lets nothing through until ``go_on``.
    """

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._cuts: list[tuple[bytes, Moment]] = []
        self._flows = threading.Event()
        self._flows.set()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.refusing = False
        self.cuts = 0

    def __enter__(self) -> "Proxy":
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._flows.set()
        self._hang_up(self._listening)
        self.hang_up()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def cut(self, text: bytes, when: Moment) -> None:
        self._cuts.append((text, when))

    def hold(self) -> None:
        self._flows.clear()

    def go_on(self) -> None:
        self._flows.set()

    def hang_up(self) -> None:
        """End all connections."""
        for one in self._open:
            self._hang_up(one)

    def _hang_up(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()

    def _begin(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self.refusing:
                    client.close()
                    continue
                server = socket.create_connection(self._target)
                self._open += [client, server]
                lost = threading.Event()
                self._begin(self._ask, client, server, lost)
                self._begin(self._answer, server, client, lost)

    def _ask(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                self._flows.wait()
                when = self._due(data)
                if when == "unnoticed":
                    self._hang_up(client)
                    return
                if when == "before":
                    break
                if when == "half":
                    server.sendall(data[: len(data) // 2])
                    return
                if when == "after":
                    lost.set()
                server.sendall(data)
        if not lost.is_set():
            self._hang_up(client)
            self._hang_up(server)

    def _answer(self, server: socket.socket, client: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                self._flows.wait()
                if lost.is_set():
                    break
                client.sendall(data)
        self._hang_up(client)
        self._hang_up(server)

    def _due(self, data: bytes) -> Moment | None:
        for cut in self._cuts:
            if cut[0] in data:
                self._cuts.remove(cut)
                self.cuts += 1
                return cut[1]
        return None
