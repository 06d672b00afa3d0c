"""Channels: a command, a webhook, and the services of Apprise."""

import logging
import os
import signal
import socket
import ssl
import subprocess
from base64 import b64encode
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import unquote

import msgspec
import trio

from fleetd import __version__
from fleetd.protocol.errors import InvalidParams, InvalidState

from .message import Message
from .outbox import Undelivered
from .urls import checked_webhook

COMMAND_S = 30.0
REQUEST_S = 20.0
# The timeout of one step of a request: the connection, a piece of the answer.
STEP_S = 10.0
# An abandoned request may occupy its thread a while longer.
THREADS = 2
_BUSY = (408, 425, 429)


def payload(message: Message) -> bytes:
    """Return a message as one line of JSON."""
    return msgspec.json.encode(message) + b"\n"


class Command:
    """A shell command that gets the message as JSON on its stdin.

    It is killed, with all that it started, when it takes too long.
    """

    retries = False
    # The time to kill the command is included.
    timeout_s = COMMAND_S + 5.0

    def __init__(self, command: str, name: str = "command", limit_s: float = COMMAND_S) -> None:
        self.name = name
        self._command = command
        self._limit_s = limit_s

    async def send(self, message: Message) -> None:
        """Run the command; raises Undelivered where it fails."""
        run = partial(
            trio.run_process,
            ["/bin/sh", "-c", self._command],
            stdin=payload(message),
            stdout=subprocess.DEVNULL,
            check=False,
            start_new_session=True,
            deliver_cancel=_kill_group,
        )
        try:
            with trio.move_on_after(self._limit_s) as waiting:
                done = await run()
        except OSError as error:
            raise Undelivered(f"it cannot be started: {error.strerror}") from error
        if waiting.cancelled_caught:
            raise Undelivered(f"killed after {self._limit_s:g} s")
        if done.returncode:
            raise Undelivered(f"exit status {done.returncode}")


async def _kill_group(process: trio.Process) -> None:
    """Kill a process and what it started; it leads a group of its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class Webhook:
    """A URL that gets each message as JSON by POST; it follows no redirect.

    Raises InvalidParams for a URL that is not https, or http of this computer.
    """

    retries = True
    timeout_s = REQUEST_S

    def __init__(self, url: str, name: str = "webhook") -> None:
        self.name = name
        self._to, self._host, self._port = checked_webhook(url)
        self._tls = ssl.create_default_context() if self._to.scheme == "https" else None
        self._threads = trio.CapacityLimiter(THREADS)

    async def send(self, message: Message) -> None:
        """Send the message; raises Undelivered."""
        link: HTTPConnection = (
            HTTPConnection(self._host, self._port, timeout=STEP_S)
            if self._tls is None
            else HTTPSConnection(self._host, self._port, timeout=STEP_S, context=self._tls)
        )
        post = partial(self._post, link, payload(message), message.id)
        try:
            status = await trio.to_thread.run_sync(
                post, abandon_on_cancel=True, limiter=self._threads
            )
        except (OSError, HTTPException) as error:
            raise Undelivered(_reason(error)) from error
        finally:
            # Wake the thread that may wait for an answer.
            with suppress(OSError, AttributeError):
                link.sock.shutdown(socket.SHUT_RDWR)
        if status >= 300:
            refused = 300 <= status < 500 and status not in _BUSY
            raise Undelivered(f"the answer was status {status}", refused=refused)

    def _post(self, link: HTTPConnection, body: bytes, key: str) -> int:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"fleetctl/{__version__}",
            "Idempotency-Key": key,
        }
        if self._to.username is not None:
            credentials = f"{unquote(self._to.username)}:{unquote(self._to.password or '')}"
            headers["Authorization"] = f"Basic {b64encode(credentials.encode()).decode()}"
        target = (self._to.path or "/") + (f"?{self._to.query}" if self._to.query else "")
        try:
            link.request("POST", target, body, headers)
            return link.getresponse().status
        finally:
            link.close()


def _reason(error: Exception) -> str:
    """Return what went wrong with a request, without its URL."""
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or type(error).__name__}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or type(error).__name__


class Apprise:
    """A URL of Apprise, which knows more than a hundred services.

    Raises InvalidState without Apprise, InvalidParams for a URL that it does not know.
    """

    retries = True
    timeout_s = 30.0

    def __init__(self, url: str, name: str = "apprise") -> None:
        self.name = name
        try:
            # Imported here: it is an extra, and only this channel needs it.
            import apprise
        except ImportError as error:
            raise InvalidState(
                "--apprise needs the package apprise, which is not installed.",
                hint="Install fleetd with the extra apprise: fleetd[apprise]",
            ) from error
        # Its log would show URLs.
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
        self._service: Any = apprise.Apprise()
        self._text = apprise.NotifyFormat.TEXT
        if not self._service.add(url):
            raise InvalidParams(
                "--apprise takes a URL that Apprise knows, such as ntfy://TOPIC or mailto://…",
                hint="Apprise lists its services: https://github.com/caronc/apprise/wiki",
            )
        self._threads = trio.CapacityLimiter(THREADS)

    async def send(self, message: Message) -> None:
        """Send the message; raises Undelivered."""
        notify = partial(
            self._service.notify, title=message.title, body=message.body, body_format=self._text
        )
        if not await trio.to_thread.run_sync(notify, abandon_on_cancel=True, limiter=self._threads):
            raise Undelivered("the service did not take it")
