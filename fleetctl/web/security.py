"""Security: one-time tokens and keys, checks of a request's origin, response headers.

Any program on this computer, and any page in this user's browser, can reach the port. A key keeps
out the programs, and the checks of ``Host``, ``Origin`` and ``Sec-Fetch-Site`` the other pages.
"""

import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from hmac import compare_digest

from fleetd.protocol.errors import Denied

TOKEN_S = 600.0
MOST_TOKENS = 64
MOST_KEYS = 64

# Names that mean only this computer: with another, someone else's DNS answered with 127.0.0.1.
_HOST = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)
_SAME_SITE = ("same-origin", "none")

HEADERS = (
    (
        "Content-Security-Policy",
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
"""The headers of every response."""

NEW_LINK = "Run fleetctl web for a new link."


class KeyRing:
    """Tokens, which work once and for ten minutes, and the keys that they were exchanged for.

    Both are in memory only. The oldest is dropped when there are too many.
    """

    def __init__(self) -> None:
        self._tokens: dict[str, float] = {}
        self._keys: list[str] = []

    def new_token(self, now: float) -> str:
        """Return a token; ``now`` is in seconds of a monotonic clock."""
        self._drop_old_tokens(now)
        token = secrets.token_urlsafe(32)
        self._tokens[token] = now + TOKEN_S
        if len(self._tokens) > MOST_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        return token

    def exchange(self, token: str, now: float) -> str:
        """Return a key for a token, which becomes invalid; raises Denied."""
        self._drop_old_tokens(now)
        found = _equal_one(token, self._tokens)
        if found is None:
            raise Denied("The link was used already, or is older than 10 minutes.", hint=NEW_LINK)
        del self._tokens[found]
        self._keys.append(secrets.token_urlsafe(32))
        del self._keys[:-MOST_KEYS]
        return self._keys[-1]

    def check(self, key: str | None) -> None:
        """Raise Denied unless the key is one of these."""
        if key is None:
            raise Denied("The request has no key.", hint=NEW_LINK)
        if _equal_one(key, self._keys) is None:
            raise Denied("The key is not valid: fleetctl web was restarted.", hint=NEW_LINK)

    def _drop_old_tokens(self, now: float) -> None:
        for token in [each for each, until in self._tokens.items() if until <= now]:
            del self._tokens[token]


def _equal_one(given: str, known: Iterable[str]) -> str | None:
    """Return the equal one, in a time that does not reveal how much of it matched."""
    found = None
    for each in known:
        if compare_digest(given.encode(), each.encode()):
            found = each
    return found


def check_origin(values: Callable[[str], Sequence[str]]) -> None:
    """Raise Denied for a request that another page may have sent.

    ``values`` returns the values of a header.
    """
    hosts = values("host")
    if len(hosts) != 1 or _HOST.fullmatch(hosts[0]) is None:
        raise Denied(
            "The Host of the request is not this computer.",
            hint="Use the address that fleetctl web prints.",
        )
    own = f"http://{hosts[0].lower()}"
    if any(origin.lower() != own for origin in values("origin")):
        raise Denied(
            "The request comes from another page.", hint="Use the page of fleetctl web itself."
        )
    if any(site not in _SAME_SITE for site in values("sec-fetch-site")):
        raise Denied(
            "The request comes from another page.",
            hint="Open the address in the browser's address bar.",
        )
