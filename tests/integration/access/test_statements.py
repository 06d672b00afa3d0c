"""SQL never holds what somebody said: values are bound, and statements are this program's own."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

import fleetd
from fleetd.protocol.errors import FleetError, Internal
from fleetd.protocol.methods import METHODS
from fleetd.protocol.request import Request
from fleetd.protocol.requests.hook import HookDeliver
from tests.support.fleet import Fleet, opened

ROOT = Path(fleetd.__file__).parent
SQL = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|WHERE|PRAGMA|VACUUM|SAVEPOINT)\b")
# Whoever puts something new into a statement says here that he looked: it is made of constants,
# of names of columns that the program itself wrote down, or of placeholders.
REVIEWED = {
    "domain/agents/agent_loss": {"condition"},
    "domain/agents/agents": {"where"},
    "domain/agents/mailbox": {
        "inside_of('agent', wanted)",
        "inside_of('id', [*found])",
        "order",
        "state",
        "where",
    },
    "domain/artifacts/ingest": {"names"},
    "domain/artifacts/inventory": {
        "KINDS[noun].table",
        "inside_of('i', mission_ids)",
        "inside_of('i', record_ids)",
        "table",
        "when",
    },
    "domain/artifacts/outbox": {"KINDS[noun].table", "inside_of('coming', coming)", "there"},
    "domain/attention/conflicts": {"inside"},
    "domain/attention/overview": {"where"},
    "domain/checkpoints/checkpoints": {"also", "columns", "where"},
    "domain/checkpoints/derived_context": {"mine"},
    "domain/checkpoints/moments": {"_WHOLE", "inside_of('id', some)", "table"},
    "domain/cluster/membership": {
        "_LISTED",
        "agent",
        "living",
        "machine",
    },
    "domain/core/event_log": {"holds", "rows", "seen"},
    "domain/core/history": {
        "', '.join(_LOCK)",
        "changed",
        "inside_of('id', some)",
        "into",
        "key",
        "names",
        "rows",
        "source",
        "table",
        "values",
        "where",
    },
    "domain/core/ids": {"TABLES[noun]", "table"},
    "domain/core/soft_delete": {"TABLES[noun]", "_EMPTIED[noun]"},
    "domain/core/tombstones": {"inside_of('d', digests)"},
    "domain/core/tx": {"names", "table", "values"},
    "domain/erasure/erase": {
        "agent",
        "agents",
        "beyond",
        "contains_any('mission_json', ['noted'])",
        "elsewhere",
        "ended",
        "events",
        "m",
        "named",
        "names",
        "notes",
        "table",
        "theirs",
        "where",
    },
    "domain/erasure/scope": {
        "a",
        "below('cwd')",
        "below('project_dir')",
        "chosen[table]",
        "inside_of('a', agents)",
        "inside_of('m', self.missions)",
        "inside_of('r', self.runs)",
        "m",
        "of_agents",
        "steps",
        "table",
        "where",
    },
    "domain/erasure/steps": {
        "clauses[table]",
        "going",
        "kept",
        "scope.clauses()['snapshots']",
        "table",
        "which",
    },
    "domain/events/streams": {"each", "mine", "name", "order", "where"},
    "domain/liveness/silence": {
        *("also", "beside", "column", "most", "unreachable('a')", "table", "where"),
    },
    "domain/locks/leases": {
        "each",
        "inside_of('path', paths)",
        "of_table",
        "pairs",
        "table",
    },
    "domain/locks/locks": {"where"},
    "domain/locks/queue": {"nobody", "row"},
    "domain/missions/missions": {"assignments", "where"},
    "domain/missions/selection": {"inside_of('place', places)", "inside_of('status', states)"},
    "domain/missions/sorties": {"assignments"},
    "domain/notes/facts": {"withdrawn"},
    "domain/notes/notes": {"order", "where"},
    "domain/recovery/restore_context": {"where"},
    "domain/recovery/prompt": {"where"},
    "domain/recovery/restore": {"where"},
    "domain/recovery/restore_steps": {
        "assignments",
        "inside_of('owner', some)",
        "inside_of('path', some)",
    },
    "domain/recovery/roll_forward": {"assignments"},
    "domain/recovery/state": {
        "assignments",
        "inside_of('agent', agents)",
        "unreachable('briefed')",
    },
    "domain/report/collect": {"where", "column", "inside_of('a', some)", "inside_of('m', some)"},
    "domain/retention/pruning": {"also"},
    "domain/retention/events_and_locks": {"behind", "key", "noun"},
    "domain/retention/sessions": {"over", "up_to if until else ''"},
    "domain/search/index": {"inside", "inside_of('s', sources)", "rows"},
    "domain/search/search": {
        "inside_of('e', events)",
        "inside_of('m', mail)",
        "inside_of('n', notes)",
        "inside_of('p', places)",
        "source",
        "where",
    },
    "domain/sessions/listing": {"tables", "where"},
    "domain/sessions/session_lifecycle": {"inside_of('id', agent_ids)", "where", "which"},
    "domain/sessions/session_move": {
        "inside_of('window', windows)",
        "made",
        "nobodys",
        "owner",
        "table",
    },
    "domain/timeline/fleet": {"in_force"},
    "domain/timeline/timeline": {"agent_filter", "inside_of('id', some)", "what", "where"},
    "domain/sessions/sessions": {"changes", "live if unless_ended else ''"},
    "domain/snapshots/outcomes": {"kinds"},
    "domain/snapshots/recovery_context": {"inside_of('author', reader.whose)", "more"},
    "domain/snapshots/runs": {"inside_of('session', names)"},
    "domain/snapshots/snapshots": {"mine", "newest", "where"},
    "domain/system/epoch": {"KINDS[noun].table", "inside_of('wait', waits)"},
    "domain/system/legacy_import": {"events", "what"},
    "domain/usage/records": {
        "', '.join(FIGURES)",
        "', '.join(_COLUMNS)",
        "', '.join((f':{name}' for name in _COLUMNS))",
        "inside_of('k', some)",
    },
    "domain/usage/transcripts": {"agent_filter", "where"},
    "domain/usage/report": {
        "', '.join(_COLUMNS)",
        "in_sql(sorted(KNOWN))",
        "inside",
        "where",
    },
    "store/postgres/checks": {"function", "name"},
    "store/postgres/connection": {
        "4 * _SECOND",
        "_COUNT",
        "_IDLE_S",
        "_INTERVAL_S",
        "_UNANSWERED_MS",
    },
    "store/postgres/batch": {
        "_kept('events', END)",
        "_kept('fencing', _LAST_FENCING)",
        "counter",
        "expression",
    },
    # Clauses of this program's own statements.
    "store/postgres/shape": {
        "', '.join(counted)",
        "head[2]",
        "returned",
        "table.strip()",
        "where",
    },
    "store/sqlite/integrity_check": {"column", "key", "name", "table"},
    "store/sqlite/kept_sorties": {"mission_columns", "what"},
    "store/sqlite/migrate": {"number"},
    "store/transfer/copy": {"table.name"},
    "store/transfer/postgres_side": {"kept", "key", "sequence", "table.name"},
    "store/transfer/sqlite_side": {
        "', '.join(table.columns)",
        "', '.join(table.key)",
        "marks",
        "name",
        "table.name",
    },
}
# Constants, fields of the tables of nouns and walks, and lists of this program's own words.
PLAIN = re.compile(r"(\w+\.)*_?[A-Z][A-Z_]+|(policy|kind|walk)\.\w+|in_sql\(\w+\)")


def pieces(tree: ast.AST) -> Iterator[str]:
    """Yield what is put into the texts of statements."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            fixed = "".join(str(v.value) for v in node.values if isinstance(v, ast.Constant))
            for value in node.values:
                if SQL.search(fixed) and isinstance(value, ast.FormattedValue):
                    yield ast.unparse(value.value)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.Add):
            sides = [node.left, node.right]
            if any(isinstance(s, ast.Constant) and SQL.search(str(s.value)) for s in sides):
                yield from (ast.unparse(s)[:40] for s in sides if not isinstance(s, ast.Constant))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            text = node.func.value
            fixed = str(text.value) if isinstance(text, ast.Constant) else ""
            if node.func.attr in ("format", "replace") and SQL.search(fixed):
                yield ast.unparse(node)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT).with_suffix(""))


def unreviewed(source: str, module: str) -> list[str]:
    known = REVIEWED.get(module, set())
    found = pieces(ast.parse(source))
    return [each for each in found if each not in known and not PLAIN.fullmatch(each)]


def test_what_is_put_into_a_statement_was_looked_at() -> None:
    found = {
        str(path.relative_to(ROOT)): odd
        for path in sorted(ROOT.rglob("*.py"))
        if (odd := unreviewed(path.read_text(), name_of(path)))
    }
    assert found == {}


def test_nothing_is_listed_that_is_not_there() -> None:
    there: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        there.setdefault(name_of(path), set()).update(pieces(ast.parse(path.read_text())))
    gone = {module: names - there.get(module, set()) for module, names in REVIEWED.items()}
    assert {module: names for module, names in gone.items() if names} == {}


@pytest.mark.parametrize(
    "planted",
    [
        "tx.run(f\"DELETE FROM missions WHERE id = '{request.id}'\")",
        "tx.run(\"DELETE FROM missions WHERE id = '%s'\" % request.id)",
        "tx.run('DELETE FROM missions WHERE id = ' + request.id)",
        "tx.run('DELETE FROM missions WHERE id = {}'.format(request.id))",
    ],
)
def test_a_value_in_a_statement_would_be_seen(planted: str) -> None:
    assert unreviewed(planted, "missions")


MARK = "zq9"
HOSTILE = (
    f"{MARK}'; DROP TABLE missions; --",
    f'{MARK}") OR 1=1; UPDATE missions SET title = "{MARK}',
    f"{MARK}-valid",
    f"msn-{MARK}",
    f"%{MARK}_\\",
)
LAST = ("delete", "forget", "cancel", "complete", "fail", "prune", "discard", "unregister")


def sample(kind: Any) -> Any:
    """Return something of a type that is taken, as far as the type alone tells."""
    if isinstance(kind, inspect.Metadata):
        examples = (kind.extra_json_schema or {}).get("examples")
        return examples[0] if examples else sample(kind.type)
    if isinstance(kind, inspect.UnionType):
        return sample(next(t for t in kind.types if not isinstance(t, inspect.NoneType)))
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        return kind.ge or kind.gt or 1
    if isinstance(kind, inspect.ListType | inspect.VarTupleType):
        return [sample(kind.item_type)]
    if isinstance(kind, inspect.StructType):
        return {f.encode_name: sample(f.type) for f in kind.fields if f.required}
    plain = {inspect.BoolType: False, inspect.DictType: {}, inspect.RawType: {}}
    return plain.get(type(kind), "a text")


def attempts(known: dict[str, Any], request: type[Request[Any]]) -> Iterator[dict[str, Any]]:
    """Yield parameters of a method with something hostile in one text, each text in turn."""
    info = inspect.type_info(request)
    assert isinstance(info, inspect.StructType)
    base = {
        f.encode_name: known.get(f.encode_name, sample(f.type))
        for f in info.fields
        if f.required or f.encode_name in known
    }
    yield base
    for field in info.fields:
        kind = repr(field.type)
        for text in HOSTILE if "StrType" in kind else ():
            listed = any(word in kind for word in ("ListType", "VarTupleType"))
            yield {**base, field.encode_name: [text] if listed else text}
        if "DictType" in kind:
            yield {**base, field.encode_name: {text: text for text in HOSTILE}}


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of every statement that is run from now on."""
    from fleetd.store.sqlite import group_commit

    seen: list[str] = []

    class Spying(group_commit.SqliteExecutor):
        def __call__(self, sql: str, params: Any) -> Any:
            seen.append(sql)
            return super().__call__(sql, params)

        def tuples(self, sql: str, params: Any) -> Any:
            seen.append(sql)
            return super().tuples(sql, params)

        def many(self, sql: str, params: Any) -> None:
            seen.append(sql)
            super().many(sql, params)

    monkeypatch.setattr(group_commit, "SqliteExecutor", Spying)
    return seen


async def test_no_text_of_any_method_becomes_part_of_a_statement(
    statements: list[str], tmp_path: Path
) -> None:
    async with opened(tmp_path) as fleet:
        witness = await fleet.mission(title="witness")
        known = await inhabited(fleet)
        before = schema(fleet)
        methods = sorted(METHODS, key=lambda name: (name.endswith(LAST), name))
        answered = 0
        for method in methods:
            for given in attempts(known, METHODS[method]):
                answered += await taken(fleet, METHODS[method], given)
        assert answered > len(METHODS)
        assert schema(fleet) == before
        assert (await fleet.again(witness)).title == "witness"
        assert len(await fleet.sorties(witness)) == 4
    assert len(statements) > 1_000
    assert [sql for sql in statements if MARK in sql] == []


async def inhabited(fleet: Fleet) -> dict[str, Any]:
    """Return parameters that name what is there."""
    mission = await fleet.mission(title="target")
    await fleet.agents(mission, "specialist-1", "dispatch-1")
    sortie = await fleet.work(mission, 0, "specialist-1")
    lock = await fleet.lock(mission, "src/a.py", "specialist-1")
    message = await fleet.write(mission, ["specialist-1"])
    checkpoint = await fleet.checkpoint(mission)
    return {
        "mission_id": mission.id,
        "sortie_id": sortie.id,
        "lock_id": lock.id,
        "message_id": message.id,
        "checkpoint_id": checkpoint.id,
        "agent_id": "specialist-1",
        "cwd": str(fleet.project),
    }


def schema(fleet: Fleet) -> list[Any]:
    return fleet.sql("SELECT type, name, sql FROM sqlite_master ORDER BY name")


async def taken(fleet: Fleet, request: type[Request[Any]], given: dict[str, Any]) -> bool:
    """Perform a request, also one that the check of its types would refuse before."""
    if request is HookDeliver:
        given = {"payload": "{}", **given}
    try:
        made: Request[Any] = msgspec.convert(given, request)
    except msgspec.ValidationError:
        try:
            made = request(**given)
        except TypeError:
            return False
    try:
        await fleet.do(made)
    except Internal:
        raise
    except (FleetError, ValueError, AttributeError, TypeError, OSError):
        return False
    return True
