"""The SQL of the rules means the same to psycopg, whatever stands in its texts."""

from typing import Any

import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetd.store.postgres.connection import translated
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
