"""Connects to a PostgreSQL server with the settings that fleetd's promises rest on."""

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from .. import StoreRefused
from .adapting import adapt

CONNECT_S = 5
# A server that has gone without a word is noticed after this long; one transaction takes less.
_SILENCE_MS = 10_000
_OWN = {
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": _SILENCE_MS,
}
_SETTINGS = (
    "SET synchronous_commit = on",
    "SET client_encoding = 'UTF8'",
    "SET timezone = 'UTC'",
    # Who is stopped in the middle of a transaction must not keep everybody else from writing.
    f"SET idle_in_transaction_session_timeout = {_SILENCE_MS}",
    f"SET lock_timeout = {_SILENCE_MS}",
    f"SET statement_timeout = {3 * _SILENCE_MS}",
)


def parsed(url: str) -> dict[str, Any]:
    """Return what a URL says, by libpq's names; raises StoreRefused for one that is none."""
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise StoreRefused(
            f"The store is set to something that is no PostgreSQL URL ({error}). "
            "It looks like postgresql://USER@HOST/DATABASE."
        ) from None


def connect(url: str, purpose: str) -> psycopg.Connection[Any]:
    """Open a connection; ``purpose`` is what the server's own lists call it."""
    given = parsed(url)
    # What a person wrote into the URL comes before what we think best.
    options = _OWN | {"application_name": f"fleetd {purpose}"} | given
    connection: psycopg.Connection[Any] = psycopg.connect(
        url, autocommit=True, **{name: options[name] for name in options if name not in given}
    )
    try:
        adapt(connection)
        for setting in _SETTINGS:
            connection.execute(setting.encode())
    except BaseException:
        connection.close()
        raise
    return connection


def named(url: str) -> str:
    """Return what a server is called in front of people, without any secret."""
    given = parsed(url)
    user = f"{given['user']}@" if given.get("user") else ""
    port = f":{given['port']}" if given.get("port") else ""
    return f"postgresql://{user}{given.get('host', '')}{port}/{given.get('dbname', '')}"
