"""The URL of a server: parsed, and shown without its secrets."""

import difflib
import re
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from ..api import StoreRefused

_PORT = 5432
_LIKE = "It looks like postgresql://USER@HOST/DATABASE."
_PORTS = re.compile(r"(?:\d*)(?:,\d*)*")
_OURS = re.compile("postgres(?:ql)?://")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{1,19}:/{1,2}")
_PARAMETER = re.compile(r'invalid URI query parameter: "([a-z_]{1,30})"')
# Without any of them libpq looks for a database of the user's own name on this computer.
_PLACES = ("host", "hostaddr", "dbname", "service")
_ENCODED = (
    "Its password has a character with a meaning in a URL: write @ as %40, / as %2F,"
    " : as %3A, # as %23, ? as %3F and % as %25, or keep the password in ~/.pgpass."
)


class ServerAddress:
    """A server as people know it; ``name`` becomes that of the one that answers, of several."""

    def __init__(self, url: str) -> None:
        self.name = display_name(url)


def parse(url: str) -> dict[str, Any]:
    """Return what a URL says, by libpq's names; raises StoreRefused for one that is none.

    libpq takes a URL apart at the first signs that it knows, and would look for half a password
    as a host, in front of everybody.
    """
    if "://" in url:
        place = url.partition("://")[2]
        authority = re.split(r"[/?]", place, maxsplit=1)[0]
        if place.partition("?")[0].count("@") > 1 or ("@" in place and "@" not in authority):
            raise StoreRefused(f"The store's URL cannot be read. {_ENCODED}")
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        why = re.sub(r'"[^"]*"', '"…"', str(error)).strip()
        raise StoreRefused(
            f"The store's URL is not a PostgreSQL URL"
            f" ({_wrong_start(url) or _wrong_parameter(url, str(error)) or why}). {_LIKE}"
        ) from None
    if not _PORTS.fullmatch(str(given.get("port") or "")):
        # Half a password may stand there, but only where there is one.
        hint = _ENCODED if given.get("password") else _LIKE
        raise StoreRefused(f"The store's URL has a port that is not a number. {hint}")
    if not any(effective(given).get(name) or name in given for name in _PLACES):
        raise StoreRefused(
            "The store's URL names neither a server nor a database,"
            f" and neither do PGHOST, PGDATABASE and PGSERVICE. {_LIKE}"
        )
    return given


def _wrong_start(url: str) -> str:
    """Say what stands in the place of the scheme; never what may be part of a password."""
    if _OURS.match(url) or ("=" in url and "://" not in url):
        return ""
    if scheme := _SCHEME.match(url):
        return f"it begins with {scheme[0]}, not with postgresql://"
    return "it does not begin with postgresql://"


def _wrong_parameter(url: str, message: str) -> str:
    """Name a parameter that libpq does not know; behind a password it may be a part of that."""
    found, query = _PARAMETER.search(message), url.partition("?")[2]
    if found is None or "password" in query or "%" in query:
        return ""
    known = [option.keyword.decode() for option in _defaults()]
    suggestions = difflib.get_close_matches(found[1], known, n=1)
    return f"there is no parameter {found[1]}" + (
        f"; is {suggestions[0]} meant?" if suggestions else ""
    )


def effective(given: Mapping[str, Any]) -> dict[str, str]:
    """Return what libpq goes by: what was given, else the environment and its defaults."""
    there = {o.keyword.decode(): o.val.decode("utf-8", "replace") for o in _defaults() if o.val}
    return there | {name: str(value) for name, value in given.items() if value}


def _defaults() -> list[pq.ConninfoOption]:
    try:
        return pq.Conninfo.get_defaults()
    except psycopg.Error:  # a service file that cannot be read: connecting will say so
        return []


def display_name(url: str) -> str:
    """Return what a server is called in front of people, without any secret."""
    given = parse(url)
    if "service" in given and "host" not in given:  # only libpq knows what its file says
        return f"postgresql://?service={given['service']}"
    all_of_it = effective(given)
    user = all_of_it.get("user", "")
    hosts = all_of_it.get("host") or all_of_it.get("hostaddr") or ""
    return format_url(user, hosts, all_of_it.get("port", ""), all_of_it.get("dbname") or user)


def format_url(user: str, hosts: str, ports: str, database: str) -> str:
    """Return a URL of the parts; a socket's directory stands behind, where libpq reads it too.

    Without a host it is libpq's own socket, for which there is no name.
    """
    userinfo = f"{user}@" if user else ""
    if not hosts:
        return f"postgresql://{userinfo}/{database}" + (f"?port={ports}" if ports else "")
    if hosts.startswith(("/", "@")):
        return f"postgresql://{userinfo}/{database}?host={hosts}&port={ports}"
    names = hosts.split(",")
    numbers = ports.split(",")
    if len(numbers) < len(names):
        numbers = numbers[:1] * len(names)
    pairs = zip(map(_bracketed, names), numbers, strict=False)
    places = ",".join(f"{name}:{number or _PORT}" for name, number in pairs)
    return f"postgresql://{userinfo}{places}/{database}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
