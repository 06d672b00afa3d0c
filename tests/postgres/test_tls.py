"""TLS and authentication are libpq's, and no password is seen anywhere."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.client import Fleet
from fleetd.store.postgres.connection import connect
from fleetd.store.postgres.errors import ServerAway
from tests.support.certificates import Authority
from tests.support.postgres_server import LocalPostgres
from tests.support.processes import Daemon, fleetctl

SECRET = "geheim-4711"
HBA = """
local all all trust
hostssl all fleet_cert 127.0.0.1/32 cert
hostssl all fleet_pw 127.0.0.1/32 scram-sha-256
"""
ROLES = (
    "CREATE ROLE fleet_cert LOGIN",
    f"CREATE ROLE fleet_pw LOGIN PASSWORD '{SECRET}'",
    "CREATE DATABASE tls",
    "GRANT ALL ON DATABASE tls TO fleet_pw, fleet_cert",
    "ALTER DATABASE tls OWNER TO fleet_pw",
)


class Secured:
    """A server that is reached with TLS only, and the authorities around it."""

    def __init__(self, server: LocalPostgres, directory: Path) -> None:
        self.server = server
        self.ours, self.other = Authority(directory, "ours"), Authority(directory, "other")
        self.certificate, self.key = self.ours.sign("fleet_cert")

    def url(self, user: str, *, name: str = "localhost", **options: str) -> str:
        chosen = {
            "sslmode": "verify-full",
            "sslrootcert": str(self.ours.certificate),
            "hostaddr": "127.0.0.1",
            **options,
        }
        query = "&".join(f"{key}={value}" for key, value in chosen.items())
        return f"postgresql://{user}@{name}:{self.server.port}/tls?{query}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make certificates with")
    server = LocalPostgres(settings={"ssl": "on", "password_encryption": "scram-sha-256"})
    try:
        server.create()
        made = Secured(server, tmp_path_factory.mktemp("tls"))
        certificate, key = made.ours.sign("localhost")
        for source, name in (
            (certificate, "server.crt"),
            (key, "server.key"),
            (made.ours.certificate, "root.crt"),
        ):
            shutil.copy(source, server.data / name)
            server._own(server.data / name)
            (server.data / name).chmod(0o600)
        with (server.data / "postgresql.conf").open("a") as file:
            file.write("ssl_ca_file = 'root.crt'\n")
        (server.data / "pg_hba.conf").write_text(HBA)
        server.start()
        for statement in ROLES:
            server.sql(statement)
        yield made
    finally:
        server.clean_up()


@pytest.fixture
def passfile(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a password file as libpq looks for it."""
    path = home / "home" / ".pgpass"
    path.write_text(f"localhost:*:tls:fleet_pw:{SECRET}\n")
    path.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(path))
    return path


def refused(url: str) -> ServerAway:
    with pytest.raises(ServerAway) as error:
        connect(url, "writer").close()
    assert error.value.final, error.value.message
    assert SECRET not in str(error.value)
    return error.value


def test_a_certificate_of_the_right_authority_for_the_right_name_is_accepted(
    secured: Secured, passfile: Path
) -> None:
    line = connect(secured.url("fleet_pw"), "writer")
    row = line.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()
    line.close()
    assert row == (True,)


def test_a_certificate_of_another_authority_is_refused(secured: Secured, passfile: Path) -> None:
    url = secured.url("fleet_pw", sslrootcert=str(secured.other.certificate))
    assert "certificate verify failed" in refused(url).message


def test_a_certificate_for_another_name_is_refused(secured: Secured, passfile: Path) -> None:
    url = secured.url("fleet_pw", name="db.example.org")
    assert "does not match host name" in refused(url).message


def test_without_tls_such_a_server_lets_nobody_in(secured: Secured, passfile: Path) -> None:
    url = secured.url("fleet_pw", sslmode="disable", sslrootcert="")
    assert "no encryption" in refused(url).message


def test_a_client_certificate_stands_for_a_password(secured: Secured) -> None:
    given = {"sslcert": str(secured.certificate), "sslkey": str(secured.key)}
    connect(secured.url("fleet_cert", **given), "writer").close()
    assert "certificate" in refused(secured.url("fleet_cert")).message


def test_a_password_file_that_others_may_read_is_not_read(secured: Secured, passfile: Path) -> None:
    passfile.chmod(0o644)
    assert "no password supplied" in refused(secured.url("fleet_pw")).message


def test_a_wrong_password_is_refused_and_not_shown(secured: Secured, home: Path) -> None:
    url = secured.url("fleet_pw").replace("fleet_pw@", f"fleet_pw:wrong-{SECRET}@")
    assert "password authentication failed" in refused(url).message


@pytest.mark.parametrize("where", ["pgpass", "url", "service"])
def test_a_daemon_shows_its_password_nowhere(
    secured: Secured, home: Path, monkeypatch: pytest.MonkeyPatch, passfile: Path, where: str
) -> None:
    url = secured.url("fleet_pw")
    if where == "url":
        passfile.unlink()
        url = url.replace("fleet_pw@", f"fleet_pw:{SECRET}@")
    if where == "service":
        passfile.unlink()
        monkeypatch.setenv("PGSERVICEFILE", str(home / "services"))
        options = url.partition("?")[2].replace("&", "\n")
        (home / "services").write_text(
            f"[fleet]\nhost=localhost\nport={secured.server.port}\ndbname=tls\nuser=fleet_pw\n"
            f"password={SECRET}\n{options}\n"
        )
        url = "service=fleet"
    monkeypatch.setenv("FLEET_DATABASE_URL", url)
    daemon = Daemon(socket=home / "run" / "d.sock", log=home / "daemon.log", warm=True)
    daemon.start()
    try:
        said = [
            (Path("/proc") / str(daemon.process.pid) / "cmdline").read_text(),
            *(
                fleetctl(*command).out + fleetctl(*command).err
                for command in (
                    ("status", "--json"),
                    ("config", "--json"),
                    ("doctor", "--json"),
                    ("call", "system.health"),
                    ("metrics",),
                )
            ),
        ]
        with Fleet(daemon.socket) as client:
            said += [json.dumps(client.call_raw(f"system.{each}")) for each in ("hello", "config")]
    finally:
        daemon.stop()
    assert SECRET not in "".join([*said, daemon.log.read_text()])
    assert "localhost" in said[1] or where == "service"
