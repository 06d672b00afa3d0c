"""Connects to a PostgreSQL server with the settings that fleetd's promises rest on."""

import os
from collections.abc import Mapping
from typing import Any

import psycopg

from .connection import STATEMENT_MS, TABLE_MS, ServerConnection
from .errors import ServerAway, is_final, said
from .executor import adapt
from .url import parsed, spelled

CONNECT_S = 5
OLDEST = 13
_SECOND = 1_000
_OWN = {
    "connect_timeout": CONNECT_S,
    "client_encoding": "UTF8",
    # A network that has gone without a word is noticed after eleven seconds of silence.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10 * _SECOND,
}
# Each is shorter than the next: who stands still in the middle of a transaction lets go before
# those who wait for him give up, the server gives up a statement before we hang up on it. The wait
# for the fleet's turn has limits of its own (see batch.py).
_SETTINGS = f"""
    SET idle_in_transaction_session_timeout = {4 * _SECOND};
    SET lock_timeout = {TABLE_MS};
    SET statement_timeout = {STATEMENT_MS};
    SET jit = off;
    SET standard_conforming_strings = on;
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') = 'off';
    SELECT current_setting('server_encoding'), current_schema(),
        CASE WHEN pg_is_in_recovery() THEN 'it is a standby'
            WHEN current_setting('transaction_read_only')::boolean
            THEN 'default_transaction_read_only is on, and it is no standby' END,
        pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()
""".encode()
# Rules are few and run all the time: each is planned once for a connection.
_PREPARE_AFTER = 1
_PREPARED_MAX = 1_000


def connect(url: str, purpose: str) -> ServerConnection:
    """Open a connection; ``purpose`` is what the server's own lists call it.

    Raises StoreRefused for a URL that is none, ServerAway for a server that cannot be used.
    """
    given = parsed(url)
    try:
        connection = ServerConnection.connect(
            url,
            autocommit=True,
            prepare_threshold=_PREPARE_AFTER,
            **_added(given, f"fleetd {purpose}"),
        )
    except psycopg.Error as error:
        told = _without(said(error), given)
        raise ServerAway("connecting", told, final=is_final(str(error))) from None
    connection.prepared_max = _PREPARED_MAX
    try:
        adapt(connection)
        _set(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _added(given: Mapping[str, Any], purpose: str) -> dict[str, Any]:
    """Return what we think best where nobody wrote anything else."""
    ours: dict[str, Any] = _OWN | {"application_name": purpose}
    several = "," in str(given.get("host") or os.environ.get("PGHOST", ""))
    if several and "PGTARGETSESSIONATTRS" not in os.environ:
        ours["target_session_attrs"] = "read-write"
    return {name: value for name, value in ours.items() if name not in given}


def _without(text: str, given: Mapping[str, Any]) -> str:
    """Return a text without any secret of the URL, should libpq ever show one."""
    for name in ("password", "sslpassword", "oauth_client_secret"):
        if secret := str(given.get(name) or ""):
            text = text.replace(secret, "***")
    return text


def _set(connection: ServerConnection) -> None:
    version = connection.info.server_version // 10_000
    if version < OLDEST:
        why = f"it is PostgreSQL {version}, and fleetd needs {OLDEST} or newer"
        raise ServerAway("connecting", why, final=True)
    try:
        cursor = connection.execute(_SETTINGS, prepare=False)
    except psycopg.Error as error:
        raise ServerAway("connecting", said(error)) from None
    while cursor.nextset():
        pass
    encoding, schema, read_only, *backend = _fetched(cursor)
    connection.backend = (backend[0], backend[1])
    if encoding != "UTF8":
        why = f"the database's encoding is {encoding}, and fleetd needs UTF8"
        raise ServerAway("connecting", why, final=True)
    if schema is None:
        why = "there is no schema that its search_path names, or none that the role may use"
        raise ServerAway("connecting", why, final=True)
    if read_only:
        raise ServerAway("connecting", f"it is read-only: {read_only}")


def _fetched(cursor: psycopg.Cursor[Any]) -> tuple[Any, ...]:
    return cursor.fetchone() or ("UTF8", "", None, 0, "")


def name_of(connection: ServerConnection) -> str:
    """Return what the server at the other end of a connection is called."""
    info = connection.info
    return spelled(info.user, info.host, str(info.port), info.dbname)


def shown_version(connection: ServerConnection) -> str:
    """Return the server's name and version, as in ``PostgreSQL 15.18``."""
    number = connection.info.parameter_status("server_version") or str(
        connection.info.server_version
    )
    return f"PostgreSQL {number.split(' ')[0]}"
