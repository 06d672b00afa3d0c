"""Error classification for PostgreSQL, and the errors that clients get.

Four things are kept apart: a connection that is gone (the batch runs again on another one), a
server that cannot be used for now (everybody is refused until it can), what one request met (the
others do not notice), and everything else, which is a bug of ours.
"""

import re

import psycopg

from ...protocol.display import clean
from ...protocol.errors import (
    Corrupt,
    FleetError,
    Incompatible,
    InvalidParams,
    Storage,
    Unavailable,
)
from ..api import StoreRefused

_MESSAGE_MAX = 300
# Class 08 and these end the connection: what follows on it fails for no reason of its own.
_ENDS = {"57P01", "57P02", "57P03", "57P05", "25P03", "25P04"}
# Another transaction was in the way, and is not any more: the same again may well succeed.
_AGAIN = {"40001", "40P01", "40003"}
_READ_ONLY = "25006"
CONFLICT = "FL001"
"""The SQLSTATE of ``expect``, a function of the schema, for rows that have changed meanwhile."""
_STOOD_STILL = "25P03"
_FORBIDDEN = "42501"
# What the schema lacks: another program, or a newer one of ours, has changed it.
_SCHEMA = {"42P01", "42703", "42883", "3F000"}
_FULL = "53100"
_DAMAGED = ("XX001", "XX002", "58P01", "58030")
_REFUSALS = {
    _FULL: ("The server's disk is full", "Free some space on the server, then try again."),
    "53200": ("The server has no memory left", "Try again when its load is lower."),
    "53300": ("The server accepts no more connections", "Raise its max_connections."),
    "55P03": ("Another machine holds a lock on the store", "Try again soon."),
    _STOOD_STILL: ("This took too long between two statements", "Try again soon."),
    "57014": ("The server took too long or is stopping", "Try again soon."),
}
_REFUSED = "Grant its role the rights that docs/postgresql.md lists."
# What the server says in English. In another language it is taken for something that passes: the
# daemon then goes on trying, and still shows the server's message.
_FINAL = re.compile(
    r"password authentication failed|no password supplied|no pg_hba\.conf entry"
    r"|pg_hba\.conf rejects|role \"[^\"]*\" does not exist|database \"[^\"]*\" does not exist"
    r"|permission denied for database|is not permitted to log in"
    r"|(?:peer|ident|certificate|cert|GSSAPI|LDAP|PAM|RADIUS|SSPI) authentication failed"
    r"|server does not support SSL|certificate verify failed|certificate file .* does not exist"
    r"|does not match host name|requires a valid client certificate"
    r"|definition of service|invalid .* value:|invalid integer value|invalid port number",
    re.IGNORECASE,
)


class Stalled(psycopg.OperationalError):
    """The server did not answer in time; nobody knows what became of the statement."""


class TurnTooLate(Stalled):
    """A daemon that ends waits no longer for its turn, while the server is there."""


class ServerAway(Exception):
    """The server cannot be used now. ``step`` failed with ``message``.

    ``final`` means that waiting does not help.
    """

    def __init__(self, step: str, message: str, *, final: bool = False) -> None:
        super().__init__(f"{step}: {message}")
        self.step = step
        self.message = message
        self.final = final


class ServerBehind(ServerAway):
    """The server lacks what was known to be committed; raised once, then everybody knows."""


class InDoubt(ServerAway):
    """The server went in the middle of a COMMIT, and did not come back in time to be asked."""


def server_message(error: BaseException) -> str:
    """Return the message of the server, or of libpq, on one line that is fit for a person."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    first = (primary or str(error)).strip().partition("\n")[0]  # what follows are guesses
    text = re.sub(r"^(?:connection failed: |connection is bad: )", "", clean(first)).rstrip(".")
    return text if len(text) <= _MESSAGE_MAX else text[:_MESSAGE_MAX] + "…"


def is_final(text: str) -> bool:
    """Whether a message at connecting will come again until somebody repairs its cause."""
    return _FINAL.search(text) is not None


def sqlstate(error: BaseException) -> str:
    """Return the error's SQLSTATE, '' when there is none."""
    return (error.sqlstate or "") if isinstance(error, psycopg.Error) else ""


def ends_connection(error: BaseException) -> bool:
    """Whether an error says that its connection cannot be used any more."""
    if isinstance(error, Stalled | psycopg.InterfaceError):
        return True
    code = sqlstate(error)
    return code in _ENDS or code.startswith("08")


def was_idle_too_long(error: BaseException) -> bool:
    """Whether the server ended a connection because we were busy with something else."""
    return sqlstate(error) == _STOOD_STILL


def is_transient(error: BaseException) -> bool:
    """Whether the same again, in a new transaction, may succeed."""
    return sqlstate(error) in _AGAIN


def is_read_only(error: BaseException) -> bool:
    """Whether everybody will meet the same, until the server is another one."""
    return sqlstate(error) == _READ_ONLY


def as_away(error: BaseException, step: str) -> ServerAway:
    """Return the same as a server that cannot be used."""
    if sqlstate(error) == _READ_ONLY:
        return ServerAway(step, f"it is read-only ({server_message(error)})")
    return ServerAway(step, server_message(error), final=sqlstate(error) == _FORBIDDEN)


def schema_refusal(error: StoreRefused, where: str) -> ServerAway:
    """Return the same for a schema that is none of this program's."""
    text = str(error).rstrip(".")
    rest = text.removeprefix(f"{where} ")
    return ServerAway("opening", text if rest == text else f"it {rest}", final=True)


def translate(error: BaseException, where: str) -> BaseException:
    """Return the error for the client, given one of the server; others are returned unchanged."""
    code = sqlstate(error)
    if not code:
        return error
    message = server_message(error)
    if code in _REFUSALS:
        what, hint = _REFUSALS[code]
        text = f"{what} ({where}: {message}); nothing was stored."
        if code == _FULL:  # the same again at once would fail too
            return Storage(text, hint=hint)
        return Unavailable(text, hint=hint, retry=True)
    if code in _AGAIN:
        text = f"{where}: other transactions conflicted repeatedly ({message})."
        return Unavailable(text, hint="Try again soon.", retry=True)
    if code in _SCHEMA:
        text = f"{where} has a different schema than this fleetd needs ({message})."
        return Incompatible(text, hint="Run fleetctl doctor for the difference. Upgrade fleetd.")
    if code == _READ_ONLY:
        return Unavailable(f"{where} is read-only.", hint="Try again soon.", retry=True)
    if code == _FORBIDDEN:
        return Storage(f"{where} refuses: {message}.", hint=_REFUSED)
    if code in _DAMAGED:
        hint = "Check the server's log and disk."
        return Corrupt(f"{where} is damaged ({message}).", hint=hint)
    return _by_class(code, message, where) or error


def _by_class(code: str, message: str, where: str) -> FleetError | None:
    """Return the error for a class of SQLSTATEs that have no entry of their own."""
    if code.startswith("54"):
        text = f"This is too long for {where} ({message}): an indexed value, such as a path"
        return InvalidParams(f"{text} or a name, has at most 2,700 bytes. Give a shorter one.")
    if code.startswith("22"):
        text = f"{where} cannot hold a value of this request: {message}."
        return InvalidParams(text, hint="Change or omit the value that the error names.")
    if code.startswith("53"):
        return Unavailable(f"{where}: {message}.", hint="Try again soon.", retry=True)
    return None


def wrong_schema(found: int, known: int) -> str:
    """Return what is said of a schema that is not this program's."""
    return (
        f"it has schema version {found}, this fleetd knows {known}. Install the newer fleetd on"
        " this machine too"
    )


def outcome_unknown(where: str, why: str) -> Unavailable:
    """Return the error for a request of which nobody can say whether it was committed."""
    return Unavailable(
        f"The connection to {where} was lost during a commit ({why}): the outcome of this request"
        " is unknown.",
        hint="Send it again with the same idempotency key; it then takes effect once.",
        retry=True,
        outcome="unknown",
        step="committing",
    )
