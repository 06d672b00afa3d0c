"""``python -m benchmarks.shared.instructions``: instructions of the server for each hook.

Two measurements of the server's CPU time differ by a third on a busy computer, those of its
instructions by a few percent. So this shows what a change of a statement or of an index costs.
Hooks are sent to a daemon, and the server logs their statements. Then a server without clients runs
the same statements under valgrind, on a copy of the cluster. The work of the kernel and of the
server's other processes is not counted. A kind of hooks takes three minutes.
"""

import argparse
import csv
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from tests.support.postgres_server import LocalPostgres

from ..fleet import running
from .crowd import HOOK, crowd
from .page import table
from .payloads import HOOKS, Payload

CLIENTS, WARM_S, SECONDS = 8, 0.6, 0.3
LOGGING = {
    "log_statement": "all",
    "log_destination": "csvlog",
    "logging_collector": "on",
    "log_filename": "server.log",
    "log_rotation_age": "0",
    "log_rotation_size": "0",
    # Only the statements change the cluster.
    "autovacuum": "off",
}
_NO_LOGGING = {"log_statement": "none", "log_destination": "stderr", "logging_collector": "off"}
# Functions of the server: one parses a message, one is called for each of its statements, and one
# at its end. Then the server waits for the next message.
_PARSE, _STATEMENT, _END = "pg_parse_query", "BeginCommand", "ReadyForQuery"
_MARK = "measured from here"
_COUNT_HOOKS = "SELECT count(*) AS hooks FROM hook_deliveries"
# The places of the session and of the message in a line of the log.
_SESSION, _MESSAGE = 5, 13
_LONGEST_MESSAGE = 1 << 24
# A statement of a message ends with a semicolon that is not in a string literal.
_PART = re.compile(r"(?:'(?:[^']|'')*'|[^;'])+")
_PREPARED = re.compile(r"PREPARE (\w+)(?: \([^)]*\))? AS\s+(.*)", re.DOTALL)
_EXECUTED = re.compile(r"EXECUTE (\w+)")
_IN_TIME = re.compile(r"EXECUTE be_in_time \(\d+\)")
_A_HOOK, _A_COMMIT = "INSERT INTO hook_deliveries", "COMMIT"
# What compares the rows of a statement with those that a rule was given, in front of the statement.
_COMPARING = re.compile(
    r"(?:SELECT expect\(json_agg\(q\), \$\d+::jsonb\) FROM \(SELECT \* FROM|WITH q AS) \("
)
PARSING, UNPLANNED = "(parsing of the messages)", "(BEGIN, SET, COMMIT, PREPARE)"


class Instructions(msgspec.Struct, frozen=True):
    """Thousands of instructions for a hook: all, and those of each statement by its text.

    ``calls`` are how often each statement runs for a hook, and ``batch`` how many hooks a commit
    has.
    """

    hooks: int
    batch: float
    total: float
    statements: dict[str, float]
    calls: dict[str, float]


class Recording(msgspec.Struct, frozen=True):
    """The messages of the connection that wrote hooks; ``first`` is the first one that counts.

    ``hooks`` is how many the database has in the end.
    """

    database: str
    messages: list[str]
    first: int
    hooks: int


def main() -> int:
    """Count and print."""
    options = _options()
    if shutil.which("valgrind") is None:
        print(
            "valgrind is not installed; install it first, as with apt install valgrind.",
            file=sys.stderr,
        )
        return 1
    for about in options.only or HOOKS:
        with LocalPostgres(settings=LOGGING) as server:
            found = measure(server, HOOKS[about])
        print(f"{about}: {_text(found, options.most)}", flush=True)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.shared.instructions", description=__doc__
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=tuple(HOOKS),
        metavar="KIND",
        help=f"a kind of hooks, of: {'; '.join(HOOKS)}",
    )
    parser.add_argument(
        "--most", type=int, default=40, metavar="N", help="print the N most expensive statements"
    )
    return parser.parse_args()


def measure(server: LocalPostgres, hooks: Sequence[Payload]) -> Instructions:
    """Send hooks, and count what their statements need; the server is stopped in the end."""
    recording = record(server, hooks)
    dumps = server.directory / "callgrind"
    dumps.mkdir()
    dumps.chmod(0o777)  # the server may have a user of its own
    valgrind = (
        *("valgrind", "--tool=callgrind", f"--callgrind-out-file={dumps}/out"),
        *(f"--dump-before={function}" for function in (_PARSE, _STATEMENT, _END)),
    )
    replay(server, recording, under=valgrind)
    return summed(recording, segments_of(dumps))


def record(server: LocalPostgres, hooks: Sequence[Payload], *, warm_s: float = WARM_S) -> Recording:
    """Send hooks to a new daemon; leave the cluster as it was before the daemon's last start."""
    database = server.new_database()
    url = server.url(database)
    before = server.directory / "before"
    send = partial(
        crowd,
        HOOK,
        clients=CLIENTS,
        seconds=SECONDS,
        server=server,
        warm_s=warm_s,
        hooks=hooks,
    )
    with tempfile.TemporaryDirectory(prefix="fleetd-instructions-", dir="/tmp") as name:
        place = Path(name)
        with running(place, FLEET_DATABASE_URL=url) as fleet:
            send([fleet])
        server.stop()
        subprocess.run(["cp", "-a", str(server.data), str(before)], check=True)
        (server.data / "log" / "server.csv").unlink()
        server.start()
        with running(place, FLEET_DATABASE_URL=url) as fleet:
            send([fleet], on_warm=lambda: server.sql(f"SELECT '{_MARK}'"))
        taken = server.sql(_COUNT_HOOKS, database=database)[0]["hooks"]
    server.stop()
    messages, first = _messages(server.data / "log" / "server.csv")
    shutil.rmtree(server.data)
    before.rename(server.data)
    return Recording(database, messages, first, taken)


def _messages(log: Path) -> tuple[list[str], int]:
    """Return the messages of the connection that writes hooks, and how many came before the mark.

    They are without the time limits of the daemon, which a slow server would miss.
    """
    csv.field_size_limit(_LONGEST_MESSAGE)
    sent: list[tuple[str, str]] = []
    with log.open(newline="") as lines:
        for line in csv.reader(lines):
            kind, _, text = line[_MESSAGE].partition("statement: ")
            if text and not kind:
                sent.append((line[_SESSION], text))
    marked = next(place for place, (_, text) in enumerate(sent) if _MARK in text)
    batches = Counter(session for session, text in sent if _IN_TIME.search(text))
    [(writer, _)] = batches.most_common(1)
    own = [(place, text) for place, (session, text) in enumerate(sent) if session == writer]
    messages = [_IN_TIME.sub(f"EXECUTE be_in_time ({1 << 62})", text) for _, text in own]
    return messages, sum(place < marked for place, _ in own)


def replay(server: LocalPostgres, recording: Recording, *, under: Sequence[str] = ()) -> None:
    """Run the messages in a server without clients; raise RuntimeError if hooks are missing."""
    script = [*recording.messages, _COUNT_HOOKS]
    done = server.run_alone(recording.database, script, under=under, settings=_NO_LOGGING)
    if f'hooks = "{recording.hooks}"' not in done.stdout:
        raise RuntimeError(f"the statements had other results than before:\n{done.stderr[-4000:]}")


def segments_of(dumps: Path) -> Iterator[tuple[str, int]]:
    """Yield each call of a function, and the instructions after it.

    A dump has the instructions since the one before, and what ended it.
    """
    after = ""
    for path in sorted(dumps.glob("out.*"), key=lambda each: int(each.suffix[1:])):
        trigger, counted = "", 0
        with path.open() as lines:
            for line in lines:
                if line.startswith("desc: Trigger: --dump-before="):
                    trigger = line.rpartition("=")[2].strip()
                elif line.startswith(("summary:", "totals:")):
                    counted = int(line.split()[1])
                    break
        yield after, counted
        after = trigger


def summed(recording: Recording, segments: Iterable[tuple[str, int]]) -> Instructions:
    """Return what each statement of a recording needed, given the segments of its replay.

    A segment is a function of the server and the instructions after its call.
    """
    names: dict[str, str] = {}
    counted: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    hooks = commits = 0
    parts: Iterator[str] = iter(())
    messages = iter(enumerate(recording.messages))
    what, counts, in_message = "", False, False
    for function, instructions in segments:
        if function == _END:
            in_message = False
            continue
        nested = function == _PARSE and in_message  # of a function in SQL
        if function == _PARSE and not nested:
            place, message = next(messages, (-1, ""))
            parts = (each.strip() for each in _PART.findall(message) if each.strip())
            what, counts, in_message = PARSING, place >= recording.first, True
        elif function == _STATEMENT:
            part = next(parts, "")
            if prepared := _PREPARED.match(part):
                names[prepared[1]] = " ".join(prepared[2].split())
            executed = _EXECUTED.match(part)
            what = names.get(executed[1], executed[1]) if executed else UNPLANNED
            hooks += counts and what.startswith(_A_HOOK)
            commits += counts and part == _A_COMMIT
        if counts:
            counted[what] += instructions
            calls[what] += not nested
    if not hooks or not commits:
        raise RuntimeError(f"no hook was counted: does this server call {_STATEMENT}?")
    return Instructions(
        hooks=hooks,
        batch=hooks / commits,
        total=sum(counted.values()) / hooks / 1_000,
        statements={what: count / hooks / 1_000 for what, count in counted.most_common()},
        calls={what: times / hooks for what, times in calls.items()},
    )


def _text(found: Instructions, most: int) -> str:
    head = ["statement", "for a hook", "thousand instructions for a hook"]
    rows = [
        [
            _COMPARING.sub("compared: ", what, count=1)[:100],
            f"{found.calls[what]:.2f}",
            f"{count:,.0f}",
        ]
        for what, count in [*found.statements.items()][:most]
    ]
    return (
        f"{found.total:,.0f} thousand instructions for a hook, of {found.hooks} hooks, "
        f"{found.batch:.1f} in a commit\n\n{table(head, rows)}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
