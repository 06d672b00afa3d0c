"""A collector: the URL that accepts spans by POST, as in OTLP over HTTP."""

import os
import ssl
from base64 import b64encode
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

from fleetd import __version__
from fleetd.protocol.display import short
from fleetd.protocol.errors import InvalidParams, Unavailable

from .encoding import Encoding

STEP_S = 20.0
# The limit of an answer, which is an error text or the number of rejected spans.
ANSWER_BYTES = 64 * 1024
TRACES = "/v1/traces"
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
_WRONG = (
    "--endpoint takes an https URL, or an http URL of this computer (localhost, 127.0.0.1 or"
    " [::1])."
)
_AGAIN = "Try again later: the same spans have the same ids."


class Collector:
    """The receiver of spans; redirects are not followed, and its certificate is verified.

    Only its host is ever shown: the rest of a URL may contain secrets. Raises InvalidParams for an
    invalid URL or header.
    """

    def __init__(self, url: str, encoding: Encoding) -> None:
        self._encoding = encoding
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError:
            parts, self._host, self._port = urlsplit(""), "", None
        safe = parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(self._host))
        if not (url.isascii() and url.isprintable() and " " not in url and self._host and safe):
            raise InvalidParams(
                _WRONG,
                hint="A collector on this computer: --endpoint http://localhost:4318",
                field="endpoint",
            )
        path = parts.path.rstrip("/")
        self._target = path if path.endswith(TRACES) else path + TRACES
        self._target += f"?{parts.query}" if parts.query else ""
        self._headers = _headers()
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {b64encode(credentials.encode()).decode()}"
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self.shown = f"{parts.scheme}://{self._host}" + (f":{self._port}" if self._port else "")

    def send(self, body: bytes) -> None:
        """Send one request; raises Unavailable if the collector did not accept all of it."""
        try:
            status, answer = self._post(body)
        except (OSError, HTTPException) as error:
            raise Unavailable(
                f"The collector at {self.shown} does not answer: {_reason(error)}.", hint=_AGAIN
            ) from None
        if not 200 <= status < 300:
            refused = 300 <= status < 500 and status not in (408, 425, 429)
            raise Unavailable(
                f"The collector at {self.shown} refused the spans: HTTP status {status}.",
                hint=f"Check the URL, and {HEADERS} if it needs a key." if refused else _AGAIN,
            )
        rejected, words = self._encoding.rejected(answer)
        if rejected > 0:
            detail = f": {short(words, 200)}" if words else ""
            raise Unavailable(
                f"The collector at {self.shown} rejected {rejected} spans{detail}.",
                hint="Its log says more.",
            )

    def _post(self, body: bytes) -> tuple[int, bytes]:
        link: HTTPConnection = (
            HTTPConnection(self._host, self._port, timeout=STEP_S)
            if self._tls is None
            else HTTPSConnection(self._host, self._port, timeout=STEP_S, context=self._tls)
        )
        headers = {
            "User-Agent": f"fleetctl/{__version__}",
            **self._headers,
            "Content-Type": self._encoding.content_type,
        }
        try:
            link.request("POST", self._target, body, headers)
            answer = link.getresponse()
            return answer.status, answer.read(ANSWER_BYTES)
        finally:
            link.close()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return False


def _headers() -> dict[str, str]:
    """Return the headers from the variable that all OpenTelemetry exporters read."""
    found: dict[str, str] = {}
    for pair in filter(str.strip, os.environ.get(HEADERS, "").split(",")):
        name, _, value = pair.partition("=")
        name, value = name.strip(), unquote(value.strip())
        plain = value.isascii() and value.isprintable()
        if not (plain and name.isascii() and name.replace("-", "").replace("_", "").isalnum()):
            raise InvalidParams(
                f"{HEADERS} has no pairs such as name=value, with commas between them.",
                hint=f"Correct or unset {HEADERS}.",
                field="headers",
            )
        found[name] = value
    return found


def _reason(error: Exception) -> str:
    """Return what went wrong with a request, without its URL."""
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or type(error).__name__})"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or type(error).__name__
