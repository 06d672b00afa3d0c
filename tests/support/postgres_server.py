"""A real PostgreSQL server for a test; it must not know fleetd.

Its cluster is in a new directory below the temporary one and is deleted afterwards. The server
refuses to run as root: then it runs as the user of Debian's package, or as nobody. When the process
that started it dies in any way, the server ends too.
"""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg

from tests.support.postgres_programs import binaries, unprivileged
from tests.support.process_family import family, send, wait_until_gone

START_S = 60
SUPERUSER = "postgres"
# The owner of the databases of tests: no part of fleetd may need a superuser.
OWNER = "fleet"
_AMERICAN = ("--locale-provider", "icu", "--icu-locale", "en-US")
_numbers = itertools.count(1)

# Nothing in a test must survive a power cut; committed data survives a SIGKILL.
_FLEETING = {"fsync": "off", "full_page_writes": "off"}
_ALWAYS = {
    "autovacuum_naptime": "10s",
    "log_min_messages": "warning",
    "max_connections": "200",
    "max_wal_senders": "4",
    "wal_level": "replica",
}
# Ends the server when its standard input ends, which happens when the process that holds it ends.
_GUARD = """
read -r _
read -r pid < "$0/data/postmaster.pid" && kill -QUIT "$pid"
while [ -e "$0/data/postmaster.pid" ] && kill -0 "$pid"; do sleep 0.1; done
rm -rf "$0"
"""


class LocalPostgres:
    """One cluster and its server, reached by a Unix socket or by TCP on 127.0.0.1.

    ``durable`` enables syncs, as in production; otherwise the server is fast, and a power cut would
    corrupt it. ``settings`` are entries of postgresql.conf. As a context manager it starts the
    server, and removes it in the end.
    """

    def __init__(self, *, durable: bool = False, settings: Mapping[str, str] | None = None) -> None:
        self._bin = binaries()
        self._user = unprivileged()
        self.directory = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp")).resolve()
        self.data = self.directory / "data"
        self.log = self.directory / "server.log"
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._settings = {**_ALWAYS, **({} if durable else _FLEETING), **(settings or {})}
        self._stopped: list[int] = []
        self._own(self.directory)

    def __enter__(self) -> "LocalPostgres":
        try:
            self.create()
            self.start()
        except BaseException:
            self.clean_up()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.clean_up()

    def create(self) -> None:
        """Create the cluster. Its locale is not C: a query must request to sort by bytes."""
        always = (
            *("initdb", "--pgdata", str(self.data), "--username", SUPERUSER, "--auth", "trust"),
            *("--encoding", "UTF8", "--no-sync", "--no-instructions"),
        )
        try:
            self.run(*always, "--locale", "C.UTF-8", *_AMERICAN)
        except AssertionError:  # an older server, or one built without ICU
            self.run(*always, "--no-locale")
        self._configure()

    def _configure(self) -> None:
        own = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.directory),
            "port": str(self.port),
        }
        lines = [f"{name} = '{value}'\n" for name, value in (self._settings | own).items()]
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(lines)

    def start(self, *, wait: bool = True) -> None:
        """Start the server on its previous port and wait until it answers."""
        assert self.process is None, "it runs already"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(self._bin / "postgres"), "-D", str(self.data)],
                **self._as_user(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, str(self.directory)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the server accepts connections; raise an error if it ends instead."""
        assert self.process is not None
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.sql("SELECT 1")
            except psycopg.OperationalError:
                assert self.process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.02)
            else:
                return

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: ``smart`` waits for clients, ``fast`` and ``immediate`` do not."""
        kinds = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
        assert self.process is not None
        self.process.send_signal(kinds[mode])
        self.process.wait(START_S)
        self._ended()

    def restart(self, mode: str = "fast") -> None:
        """Stop the server and start it again."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """End the server and all its processes with SIGKILL, as a power cut would."""
        assert self.process is not None
        pids = family(self.process.pid)
        # Stop all first, so that no process notices the death of another and writes something.
        for how in (signal.SIGSTOP, signal.SIGKILL):
            send(pids, how)
        self.process.wait(START_S)
        wait_until_gone(pids)
        self._ended()

    def _ended(self) -> None:
        self.process = None
        self._stopped = []
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None

    def suspend(self) -> None:
        """Suspend the server and its connections; they stay open and answer nothing."""
        # Only the first process makes new ones: once it is stopped, the list is complete.
        assert self.process is not None
        send([self.process.pid], signal.SIGSTOP)
        self._stopped = family(self.process.pid)
        send(self._stopped, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the server after ``suspend``."""
        send(reversed(self._stopped), signal.SIGCONT)
        self._stopped = []

    def url(
        self, database: str = "postgres", *, user: str = OWNER, tcp: bool = False, **options: str
    ) -> str:
        """Return the address of a database; ``options`` are parameters of libpq."""
        if tcp:
            query = f"?{urlencode(options)}" if options else ""
            return f"postgresql://{user}@127.0.0.1:{self.port}/{quote(database)}{query}"
        options = {"host": str(self.directory), "port": str(self.port), **options}
        return f"postgresql://{user}@/{quote(database)}?{urlencode(options, quote_via=quote)}"

    def sql(self, statement: Any, *values: Any, database: str = "postgres") -> list[dict[str, Any]]:
        """Run a statement as superuser, outside a transaction, and return its rows."""
        return run_sql(self.url(database, user=SUPERUSER), statement, *values)

    def new_database(self, template: str = "template1") -> str:
        """Create an empty database, or a copy of another, and return its name."""
        name = f"fleet_{os.getpid()}_{next(_numbers)}"
        self._make_owner()
        self.sql(f'CREATE DATABASE "{name}" OWNER {OWNER} TEMPLATE "{template}"')
        return name

    def _make_owner(self) -> None:
        # Other processes may do the same at the same moment.
        with contextlib.suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
            self.sql(f"CREATE ROLE {OWNER} LOGIN")

    def drop_database(self, name: str) -> None:
        """Drop a database, even while clients are connected to it."""
        self.sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def disconnect(self, database: str) -> None:
        """End every connection to a database, as an administrator may do."""
        self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = %s AND pid <> pg_backend_pid()",
            database,
        )

    def standby(self) -> "LocalPostgres":
        """Return another started server that follows this one and is read-only."""
        other = LocalPostgres(settings=self._settings)
        other.run(
            *("pg_basebackup", "--pgdata", str(other.data), "--write-recovery-conf"),
            *("--host", str(self.directory), "--port", str(self.port), "--username", SUPERUSER),
            *("--checkpoint", "fast", "--no-sync"),
        )
        other._configure()
        other.start()
        return other

    def promote(self) -> None:
        """Promote a standby to a writable server."""
        self.sql("SELECT pg_promote()")

    def run(self, program: str, *arguments: str) -> str:
        """Run one of PostgreSQL's programs as the server's user and return its output."""
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            **self._as_user(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"
        said: str = done.stdout
        return said

    def run_alone(
        self,
        database: str,
        messages: Sequence[str],
        *,
        under: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run messages on the stopped server's database, in one process without clients.

        ``under`` is a program that runs this process, with its arguments.
        """
        options = [each for entry in (settings or {}).items() for each in ("-c", "=".join(entry))]
        return subprocess.run(
            [
                *(*under, str(self._bin / "postgres"), "--single", "-j", "-D", str(self.data)),
                *(*options, database),
            ],
            **self._as_user(),
            input="".join(f"{message};\n\n" for message in messages),
            capture_output=True,
            text=True,
            check=False,
        )

    def clean_up(self) -> None:
        """End the server in whatever state it is and remove all its files."""
        if self.process is not None:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _own(self, path: Path) -> None:
        path.chmod(0o755)
        if self._user is not None:
            os.chown(path, self._user.pw_uid, self._user.pw_gid)

    def _as_user(self) -> dict[str, Any]:
        """Return the options for starting a process of the server; no terminal interrupts it."""
        env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}
        options: dict[str, Any] = {"start_new_session": True, "cwd": self.directory, "env": env}
        if self._user is not None:
            options |= {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        return options


def run_sql(url: str, statement: Any, *values: Any) -> list[dict[str, Any]]:
    """Run a statement on a separate connection, outside a transaction; return its rows."""
    with psycopg.connect(url, autocommit=True, row_factory=psycopg.rows.dict_row) as connection:
        cursor = connection.execute(statement, values or None)
        return cursor.fetchall() if cursor.description is not None else []


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
