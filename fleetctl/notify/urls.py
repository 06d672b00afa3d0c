"""URLs of channels: which ones are accepted, and which parts of them may be shown."""

import json
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from fleetd.protocol.errors import InvalidParams

WRONG_WEBHOOK = (
    "A webhook takes an https URL, or an http URL of this computer (localhost, 127.0.0.1 or [::1])."
)


def checked_webhook(url: str) -> tuple[SplitResult, str, int | None]:
    """Return the parts of a URL, its host and its port; raises InvalidParams, without the URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    printable = url.isascii() and url.isprintable() and " " not in url
    safe = parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))
    if not (printable and host and safe):
        raise InvalidParams(
            WRONG_WEBHOOK,
            hint="Use https, or a program of this computer: --webhook http://localhost:PORT/",
        )
    return parts, host, port


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def shown(url: str) -> str:
    """Return the part of a URL that is no secret: for a webhook its host, else its scheme."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return "…"
    if parts.scheme in ("http", "https"):
        return f"{parts.scheme}://{json.dumps(host)[1:-1]}/…"
    return f"{parts.scheme}://…" if parts.scheme.isalnum() else "…"
