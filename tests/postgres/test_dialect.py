"""The SQL of the rules means the same to psycopg, whatever stands in its texts."""

from contextlib import closing
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetd.domain.core.text import without_nul
from fleetd.store.postgres.connection import PostgresExecutor, connect, translated
from tests.support.postgres_server import LocalPostgres

_TEXT = st.text(st.sampled_from("ab:%'\"-/* \n?(s)"), max_size=12)


def _literal(text: str) -> tuple[str, str]:
    return f"'{text.replace(chr(39), chr(39) * 2)}'", text


def _comment(text: str) -> str:
    return f"/* {text.replace('*', '').replace('/', '')} :no %s */ -- :no 'it' %\n"


@st.composite
def _queries(draw: st.DrawFn) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Make a query, its parameters and the row that it returns."""
    columns, params, row = [], {}, {}
    for number in range(draw(st.integers(1, 6))):
        name = f"c{number}" + draw(st.sampled_from(["", " :x", "%", ' "" ', "%%s"]))
        spelled = '"' + name.replace('"', '""') + '"'
        comment = _comment(draw(_TEXT))
        if draw(st.booleans()):
            value: Any = draw(_TEXT)
            params[f"p_{number}"] = value
            sql = draw(st.sampled_from([f"CAST(:p_{number} AS TEXT)", f":p_{number}::text"]))
        else:
            sql, value = _literal(draw(_TEXT))
        if draw(st.booleans()):
            sql, value = f"({sql} = '%') :: int % 7", int(value == "%")
        columns.append(f"{comment}{sql} AS {spelled}")
        row[name] = value
    return f"SELECT {', '.join(columns)} {_comment('')}", params, row


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(_queries())
def test_a_query_returns_what_it_says(
    postgres: LocalPostgres, made: tuple[str, dict[str, Any], dict[str, Any]]
) -> None:
    sql, params, row = made
    with psycopg.connect(
        postgres.url(user="postgres"), row_factory=psycopg.rows.dict_row
    ) as connection:
        assert connection.execute(translated(sql).encode(), params).fetchone() == row


_VALUES = st.tuples(
    st.text(st.characters(codec="utf-8") | st.sampled_from("'\"\\\0%:;$E-\n"), max_size=20),
    st.integers(-(2**63), 2**63 - 1) | st.booleans(),
    st.none() | st.text(max_size=3),
)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(_VALUES, max_size=250))
def test_rows_that_are_written_together_come_back(
    postgres: LocalPostgres, rows: list[tuple[str, int, str | None]]
) -> None:
    with closing(connect(postgres.url(user="postgres"), "test")) as connection:
        connection.execute("CREATE TEMP TABLE kept (place BIGINT, a TEXT, b BIGINT, c TEXT)")
        execute = PostgresExecutor(connection)
        execute.many(
            "INSERT INTO kept SELECT :place, :a, :b, :c WHERE '%' <> ':a' AND :b::text = :d",
            [
                {"place": place, "a": a, "b": b, "c": c, "d": str(int(b))}
                for place, (a, b, c) in enumerate(rows)
            ],
        )
        found = execute.tuples("SELECT a, b, c FROM kept ORDER BY place", {})
    assert found == [(without_nul(a), int(b), without_nul(c)) for a, b, c in rows]


def test_rows_that_are_written_together_are_one_message_and_no_pipeline(
    postgres: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise AssertionError("a pipeline")

    with closing(connect(postgres.url(user="postgres"), "test")) as connection:
        connection.execute("CREATE TEMP TABLE kept (a BIGINT)")
        monkeypatch.setattr(type(connection), "pipeline", refuse)
        said: list[bytes] = []
        real = connection.simple_query
        monkeypatch.setattr(
            connection, "simple_query", lambda text: said.append(text) or real(text)
        )
        PostgresExecutor(connection).many(
            "INSERT INTO kept VALUES (:a)", ({"a": number} for number in range(150))
        )
        assert len(said) == 1
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (150,)


def test_the_server_notices_a_client_that_vanished(postgres: LocalPostgres) -> None:
    with closing(connect(postgres.url(user="postgres", tcp=True), "test")) as connection:
        set_to = {
            name: connection.execute(f"SHOW {name}".encode()).fetchone()
            for name in ("tcp_user_timeout", "tcp_keepalives_idle")
        }
    assert set_to == {"tcp_user_timeout": ("10000",), "tcp_keepalives_idle": ("5",)}
