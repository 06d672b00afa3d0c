"""What a server is called, by whatever way it was named to libpq."""

from pathlib import Path

import pytest

from fleetd.store.api import StoreRefused
from fleetd.store.postgres.connection import connect, name_of
from fleetd.store.postgres.url import display_name
from tests.support.postgres_server import LocalPostgres

PLAIN = {"PGUSER": "ann", "PGDATABASE": "", "PGHOST": "", "PGPORT": "", "PGSERVICE": ""}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PLAIN.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://bob:pw@db.example/fleet", "postgresql://bob@db.example:5432/fleet"),
        ("postgres://bob@db.example:6000/fleet", "postgresql://bob@db.example:6000/fleet"),
        ("postgresql://db.example", "postgresql://ann@db.example:5432/ann"),
        ("postgresql://[::1]:6000/fleet", "postgresql://ann@[::1]:6000/fleet"),
        ("postgresql://a:1,b:2/fleet", "postgresql://ann@a:1,b:2/fleet"),
        ("postgresql://a,b/fleet", "postgresql://ann@a:5432,b:5432/fleet"),
        ("postgresql:///fleet?host=/run/pg", "postgresql://ann@/fleet?host=/run/pg&port=5432"),
        ("postgresql://b%40b:p%40w@h/f%2Ff", "postgresql://b@b@h:5432/f/f"),
        ("host=h dbname=fleet password='p w'", "postgresql://ann@h:5432/fleet"),
        ("postgresql://?service=team", "postgresql://?service=team"),
        ("postgresql:///fleet", "postgresql://ann@/fleet?port=5432"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, name: str) -> None:
    assert display_name(url) == name


def test_the_environment_counts_as_it_does_for_libpq(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "h")
    monkeypatch.setenv("PGPORT", "6000")
    monkeypatch.setenv("PGDATABASE", "fleet")
    assert display_name("postgresql://") == "postgresql://ann@h:6000/fleet"


def test_a_service_is_named_as_what_answers(
    postgres: LocalPostgres, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "services"
    file.write_text(
        f"[team]\nhost=127.0.0.1\nport={postgres.port}\ndbname={database}\nuser=fleet\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    with connect("postgresql://?service=team", "test") as line:
        assert name_of(line) == f"postgresql://fleet@127.0.0.1:{postgres.port}/{database}"


def test_a_port_that_is_none_is_not_repeated() -> None:
    with pytest.raises(StoreRefused, match="a port that is not a number") as refused:
        display_name("postgresql://ann:hunter2,3@h:x/fleet")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://h/fleet?sslmod=verify-full", "no parameter sslmod; is sslmode meant?"),
        ("mysql://ann@h/fleet", "begins with mysql://, not with postgresql://"),
        ("postgresql:/h/fleet", "begins with postgresql:/, not with"),
        ("postgresql+psycopg://h/fleet", "begins with postgresql+psycopg://, not with"),
        ("sqlite", "does not begin with postgresql://"),
        ("/tmp/fleet.db", "does not begin with postgresql://"),
        ("postgresql://", "names neither a server nor a database"),
        (" ", "names neither a server nor a database"),
        ("postgresql://?sslmode=require", "names neither a server nor a database"),
    ],
)
def test_a_url_that_is_none_says_what_is_wrong_with_it(url: str, told: str) -> None:
    with pytest.raises(StoreRefused) as refused:
        display_name(url)
    assert told in str(refused.value)
    assert "It looks like postgresql://USER@HOST/DATABASE." in str(refused.value)


def test_a_wrong_port_speaks_of_a_password_only_where_there_is_one() -> None:
    with pytest.raises(StoreRefused, match="a port that is not a number") as refused:
        display_name("postgresql://ann@h:abc/fleet")
    assert "password" not in str(refused.value)


@pytest.mark.parametrize("query", ["password=hun&ter=2", "passw%6frd=hun&ter=2"])
def test_a_piece_of_a_password_is_not_taken_for_a_parameter(query: str) -> None:
    with pytest.raises(StoreRefused) as refused:
        display_name(f"postgresql://h/fleet?{query}")
    assert "ter" not in str(refused.value).replace("parameter", "")


@pytest.mark.parametrize("variable", ["PGHOST", "PGHOSTADDR", "PGDATABASE", "PGSERVICE"])
def test_what_the_environment_names_need_not_stand_in_the_url(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "services").write_text("[team]\nhost=h\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    monkeypatch.setenv(variable, "team")
    assert display_name("postgresql://")
