"""Desktop: notifications of the session's notification server, or of macOS."""

import html
import os
import subprocess
import sys
from pathlib import Path

import trio

from fleetd.protocol.errors import InvalidState

from .message import Message
from .outbox import Channel, Undelivered, only

SECONDS = 5.0
_PLACE = "/org/freedesktop/Notifications"
_NAME = "org.freedesktop.Notifications"
# The texts are arguments of the script, not part of it.
_SCRIPT = """on run argv
display notification (item 2 of argv) with title (item 1 of argv)
end run"""


NO_BUS = "this session has no D-Bus"


def desktop() -> Channel:
    """Return the desktop of this machine; raises InvalidState where a package is missing."""
    if sys.platform == "darwin":
        return MacDesktop()
    try:
        # Imported here, so that a missing package is reported immediately.
        import jeepney  # noqa: F401
    except ImportError as error:
        raise InvalidState(
            "Desktop notifications need the package jeepney, which is not installed.",
            hint="Install fleetd with the extra notify: fleetd[notify]. Or name another channel: "
            "--command, --webhook.",
        ) from error
    return DBusDesktop()


class DBusDesktop:
    """The notification server of this user's session, over D-Bus.

    Each message has a connection of its own: sessions come and go.
    """

    name = "desktop"
    retries = False
    timeout_s = SECONDS

    async def send(self, message: Message) -> None:
        """Show the message; raises Undelivered where there is no desktop."""
        from jeepney import DBusAddress, DBusErrorResponse, new_method_call
        from jeepney.io.trio import open_dbus_router
        from jeepney.wrappers import unwrap_msg

        call = new_method_call(
            DBusAddress(_PLACE, bus_name=_NAME, interface=_NAME),
            "Notify",
            "susssasa{sv}i",
            (
                *("fleetd", 0, "", message.title),
                # Servers interpret a body as markup.
                html.escape(message.body, quote=False),
                *([], {"urgency": ("y", 1)}, -1),
            ),
        )
        try:
            async with open_dbus_router(_session_bus()) as router:
                unwrap_msg(await router.send_and_get_reply(call))
        except (OSError, trio.BrokenResourceError, trio.EndOfChannel, ExceptionGroup) as error:
            if isinstance(only(error), DBusErrorResponse):
                raise Undelivered("there is no notification server, or it refused") from error
            raise Undelivered("this session has no desktop that can be reached") from error


def missing_desktop() -> str:
    """Return why no notification can be shown in this session; nothing where one can."""
    if sys.platform == "darwin":
        return ""
    try:
        _session_bus()
    except Undelivered as error:
        return str(error)
    return ""


def _session_bus() -> str:
    """Return the address of the session's bus; raises Undelivered where there is none."""
    if address := os.environ.get("DBUS_SESSION_BUS_ADDRESS"):
        return address
    bus = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere") / "bus"
    if not bus.is_socket():
        raise Undelivered(NO_BUS)
    return f"unix:path={bus}"


class MacDesktop:
    """The notifications of macOS, by ``osascript``."""

    name = "desktop"
    retries = False
    timeout_s = SECONDS

    async def send(self, message: Message) -> None:
        """Show the message; raises Undelivered."""
        words = ["osascript", "-e", _SCRIPT, message.title, message.body]
        try:
            done = await trio.run_process(
                words, capture_stdout=True, stderr=subprocess.DEVNULL, check=False
            )
        except OSError as error:
            raise Undelivered(f"osascript cannot be started: {error.strerror}") from error
        if done.returncode:
            raise Undelivered(f"osascript ended with status {done.returncode}")
