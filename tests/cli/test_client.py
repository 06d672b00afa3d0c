"""The client of the socket, against servers that fail in every way a server can."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleetctl.client import ConnectionLost, Fleet, TooSlow, models
from fleetctl.client.retry import LONG_S, READ_S, REPLY_S, reply_timeout
from fleetctl.client.transport import dial
from fleetd.protocol.errors import (
    Incompatible,
    LimitExceeded,
    LockConflict,
    NotFound,
    Storage,
    Unavailable,
)
from fleetd.protocol.methods import METHODS
from fleetd.protocol.requests.mission import MissionDelete, MissionGet

wire = SimpleNamespace(**{each.__name__: each for each in METHODS.values()})
DELETE = MissionDelete(mission_id="msn-1a2b3c4d")
Serve = Callable[[bytes], bytes | None]


@pytest.fixture
def serve(home: Path) -> Iterator[Callable[..., list[dict]]]:
    """Return a function that serves connections in turn; each answers one line or none.

    It returns the list of requests that the server has read.
    """
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(home / "run" / "d.sock"))
    listener.listen()
    listener.settimeout(30)
    threads = []
    received: list[dict] = []

    def work(answers: tuple[str | None, ...]) -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                received.append(json.loads(lines.readline()))
                if answer is not None:
                    connection.sendall(answer.encode() + b"\n")

    def start(*answers: str | None) -> list[dict]:
        thread = threading.Thread(target=work, args=(answers,))
        thread.start()
        threads.append(thread)
        return received

    yield start
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    listener.close()


@pytest.fixture
def path(home: Path) -> Path:
    """Return the path of the socket."""
    return home / "run" / "d.sock"


def test_a_call_whose_answer_was_lost_is_sent_once_more_with_the_same_key(serve, path):
    received = serve(None, '{"jsonrpc":"2.0","id":2,"result":{"deleted":true}}')

    with Fleet(path) as client:
        assert client.call(DELETE).deleted is True

    first, second = (request["params"] for request in received)
    assert first == second
    assert len(first["idempotency_key"]) >= 16


def test_a_call_that_nobody_survives_is_not_sent_for_ever(serve, path):
    received = serve(None, None, None)

    with Fleet(path) as client, pytest.raises(ConnectionLost):
        client.call(DELETE)

    assert len(received) == 3


def ending(number: int, code: int, **data: object) -> str:
    error = {"code": code, "message": "fleetd ends.", "data": data}
    return json.dumps({"jsonrpc": "2.0", "id": number, "error": error})


def test_a_daemon_that_ends_is_asked_again_with_the_same_key(serve, path):
    received = serve(
        ending(1, -32005, kind="storage", retry=True),
        ending(2, -32008, kind="unavailable", retry=True),
        '{"jsonrpc":"2.0","id":3,"result":{"deleted":true}}',
    )

    with Fleet(path) as client:
        assert client.call(DELETE).deleted is True

    assert [request["params"] for request in received] == [received[0]["params"]] * 3


def test_a_store_that_went_long_ago_is_asked_for_once_more_and_not_waited_for(serve, path):
    long_away = {"kind": "unavailable", "retry": True, "away_ms": 60_000}
    received = serve(ending(1, -32008, **long_away), ending(2, -32008, **long_away))

    with Fleet(path) as client, pytest.raises(Unavailable, match="fleetd ends"):
        client.call(DELETE)

    assert len(received) == 2


def test_a_store_that_just_went_is_waited_for(serve, path):
    received = serve(
        *(ending(n, -32008, kind="unavailable", retry=True, away_ms=10) for n in (1, 2, 3)),
        '{"jsonrpc":"2.0","id":4,"result":{"deleted":true}}',
    )

    with Fleet(path) as client:
        assert client.call(DELETE).deleted is True

    assert len(received) == 4


def test_a_disk_that_is_full_is_told_at_once(serve, path):
    received = serve(ending(1, -32005, kind="storage"))

    with Fleet(path) as client, pytest.raises(Storage, match="fleetd ends"):
        client.call(DELETE)

    assert len(received) == 1


def test_a_daemon_that_only_says_that_it_ends_is_believed_in_the_end(serve, path):
    serve(ending(1, -32005, retry=True), ending(2, -32005, retry=True))

    with Fleet(path, restart_s=0.0) as client, pytest.raises(Storage, match="fleetd ends"):
        client.call(DELETE)


def test_a_call_by_name_gets_a_key_and_is_sent_again(serve, path, run):
    received = serve(None, '{"jsonrpc":"2.0","id":2,"result":{"id":"msn-1a2b3c4d"}}')

    assert run("call", "mission.create", '{"title": "Once"}').status == 0

    first, second = (request["params"] for request in received)
    assert first == second
    assert len(first.pop("idempotency_key")) >= 16
    assert first == {"title": "Once"}


def test_a_key_that_was_given_is_kept(serve, path, run):
    received = serve('{"jsonrpc":"2.0","id":1,"result":{}}')

    assert run("call", "mission.create", '{"title": "A", "idempotency_key": "mine"}').status == 0

    assert received[0]["params"]["idempotency_key"] == "mine"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("mission.create", '["Once"]'),
        ("mission.create", '{"title": "Once", "idempotency_key": null}'),
        ("mission.of_a_newer_fleetd", "{}"),
    ],
)
def test_a_call_by_name_that_has_no_key_is_never_sent_twice(serve, path, run, method, params):
    received = serve(None)

    said = run("call", method, params)

    assert (said.status, len(received)) == (1, 1)
    assert "closed the connection before it answered" in said.err


@pytest.mark.parametrize("params", ["[]", "{}"])
def test_a_call_by_name_that_changes_nothing_is_sent_again(serve, path, run, params):
    received = serve(None, '{"jsonrpc":"2.0","id":2,"result":{}}')

    assert run("call", "mission.list", params).status == 0

    assert [request["params"] for request in received] == [json.loads(params)] * 2


def test_a_daemon_that_does_not_come_back_is_said_to_have_gone(home, path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    with Fleet(path, restart_s=0.2) as client:
        connection, _ = listener.accept()
        listener.close()
        path.unlink()
        connection.close()

        with pytest.raises(ConnectionLost, match="may have been carried out"):
            client.call(DELETE)


def test_a_raw_call_is_never_sent_twice(serve, path):
    received = serve(None)

    with Fleet(path) as client, pytest.raises(ConnectionLost):
        client.call_raw("mission.create", {"title": "Once"})

    assert len(received) == 1


def test_errors_come_back_as_what_they_were(serve, path):
    serve(
        '{"jsonrpc":"2.0","id":1,"error":{"code":-32003,"message":"Held by b.",'
        '"data":{"kind":"lock_conflict","hint":"Wait.","existing_lock":{"held_by":"b"}}}}'
    )

    with Fleet(path) as client, pytest.raises(LockConflict) as caught:
        client.call(MissionGet(mission_id="msn-1a2b3c4d"))

    assert (caught.value.message, caught.value.hint) == ("Held by b.", "Wait.")
    assert caught.value.values == {"existing_lock": {"held_by": "b"}}


def test_an_error_without_an_id_belongs_to_the_call_under_way(serve, path):
    serve('{"jsonrpc":"2.0","id":null,"error":{"code":-32007,"message":"Too long."}}')

    with Fleet(path) as client, pytest.raises(LimitExceeded, match="Too long"):
        client.call_raw("system.hello")


def test_replies_to_other_calls_and_notifications_are_not_taken_for_the_answer(serve, path):
    serve(
        '{"jsonrpc":"2.0","id":99,"result":1}\n'
        '{"jsonrpc":"2.0","method":"event","params":{"subscription_id":"s","event":{"seq":7,'
        '"type":"x_y","stream":"fleet","timestamp":"t","mission_id":null,"agent_id":null,'
        '"data":{}}}}\n'
        '{"jsonrpc":"2.0","id":1,"result":2}'
    )

    with Fleet(path) as client:
        assert client.call_raw("event.subscribe") == 2


@pytest.mark.parametrize("answer", ["not json", '{"id":1,"result":{"deleted":"perhaps"}}'])
def test_an_answer_in_another_language_is_incompatible(serve, path, answer):
    serve(answer)

    with Fleet(path) as client, pytest.raises(Incompatible, match="cannot read the reply"):
        client.call(DELETE)


@pytest.mark.parametrize(
    "answer",
    [
        *(f'{{"id":1,"result":{result}}}' for result in ("null", "5", '"yes"', "[1]")),
        *(f'{{"id":1,"error":{error}}}' for error in ("5", "{}", '{"code":"x","message":5}')),
        '{"method":"event","params":5}',
    ],
)
def test_a_command_does_not_go_on_with_what_is_no_answer(serve, path, answer):
    serve(answer)

    with Fleet(path) as client, pytest.raises(Incompatible, match="cannot read the reply"):
        client.call(models.AgentList())


def test_a_daemon_that_does_not_answer_is_given_up(home, path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with Fleet(path) as client, pytest.raises(LimitExceeded, match="in time"):
            client.call(MissionGet(mission_id="msn-1a2b3c4d"), reply_s=0.05)


def test_reply_s_is_for_the_whole_reply_whatever_comes_in_between(home, path):
    ended = threading.Event()

    def tell_for_ever(listener: socket.socket) -> None:
        notice = b'{"jsonrpc":"2.0","method":"progress","params":{"token":"t","what":"x","done":1,'
        connection, _ = listener.accept()
        with connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while not ended.wait(0.01):
                connection.sendall(notice + b'"total":null}}\n')

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        telling = threading.Thread(target=tell_for_ever, args=(listener,))
        telling.start()
        # Were it endless, this would end it; the answer would be another one then.
        limit = threading.Timer(20, ended.set)
        limit.start()
        with Fleet(path, restart_s=0) as client, pytest.raises(TooSlow):
            client.call(DELETE, reply_s=0.2, progress=print)
        assert not ended.is_set()
        limit.cancel()
        ended.set()
        telling.join(30)


@pytest.mark.parametrize("made", [models, wire])
def test_timeouts_grow_with_what_a_request_takes(made):
    long = [made.CheckpointVerify(), made.CheckpointPull(mission_id="m"), made.SystemForget()]
    long.append(made.MissionDelete(mission_id="msn-1a2b3c4d"))

    assert [reply_timeout(each, None) for each in long] == [LONG_S] * 4
    assert reply_timeout(made.MissionStart(mission_id="m"), None) == REPLY_S
    assert reply_timeout(made.MissionList(), None) == READ_S
    waits = made.LockAcquire(file="a.py", agent_id="a", wait_ms=600_000)
    assert reply_timeout(waits, None) == REPLY_S + 600
    assert reply_timeout(long[0], 3.0) == 3.0


@pytest.mark.parametrize(
    ("words", "waited"),
    [
        (("mission.list",), REPLY_S),
        (("lock.acquire", '{"wait_ms": 600000}'), REPLY_S + 600),
        (("lock.acquire", '{"wait_ms": "soon"}'), REPLY_S),
        (("checkpoint.verify", "{}"), LONG_S),
        (("lock.acquire", '{"wait_ms": 600000}', "--timeout", "3"), 3),
    ],
)
def test_call_waits_as_long_as_it_takes_or_as_it_is_told(monkeypatch, daemon, run, words, waited):
    given = []

    def call_raw(self: Fleet, method: str, params: object, *, reply_s: float, again: bool) -> None:
        given.append(reply_s)

    monkeypatch.setattr(Fleet, "call_raw", call_raw)
    assert run("call", *words).status == 0
    assert given == [waited]


def test_call_with_a_timeout_gives_up_then(serve, path, run, monkeypatch):
    monkeypatch.setenv("FLEET_SOCKET", str(path))
    with socket.socket(socket.AF_UNIX) as listener:
        path.unlink()
        listener.bind(str(path))
        listener.listen()
        done = run("call", "mission.list", "--timeout", "1")
    assert (done.status, done.err.splitlines()[0]) == (1, "Error: fleetd did not answer in time.")


def fill(path: Path, waiting: list[socket.socket]) -> None:
    """Connect until the backlog is full."""
    while True:
        waiting.append(dial(path, time.monotonic() + 0.1))


def test_a_full_backlog_is_waited_for_until_the_deadline(home, path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        waiting = [dial(path, time.monotonic() + 1)]
        with pytest.raises(Unavailable, match="too busy"):
            fill(path, waiting)
        accepted = []
        room = threading.Timer(0.1, lambda: accepted.append(listener.accept()[0]))
        room.start()
        dial(path, time.monotonic() + 30).close()
        room.join()
        for connection in (*waiting, *accepted):
            connection.close()

    assert accepted


@pytest.mark.parametrize("left_behind", [False, True])
def test_where_nobody_listens_nobody_waits(home, path, monkeypatch, left_behind):
    def wait(_):
        raise AssertionError("it waits")

    monkeypatch.setattr("fleetctl.client.transport.time.sleep", wait)
    if left_behind:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))

    with pytest.raises(Unavailable, match="not running"):
        Fleet(path)


def test_a_real_daemon_says_not_found(daemon):
    with Fleet(daemon.socket) as client, pytest.raises(NotFound) as caught:
        client.call(MissionGet(mission_id="msn-00000000"))

    assert caught.value.exit_status == 4


def test_a_path_of_the_callers_own_is_named_where_nobody_listens(home, path):
    with pytest.raises(Unavailable) as elsewhere:
        Fleet(home / "wrong")
    with pytest.raises(Unavailable) as here:
        Fleet(path)

    assert elsewhere.value.hint == f"Nobody listens at {home / 'wrong'}."
    assert "fleetctl daemon start" in str(here.value)


def test_a_name_is_no_request(daemon):
    with Fleet(daemon.socket) as client, pytest.raises(TypeError, match=r"call_raw\(\) takes"):
        client.call("mission.list")  # type: ignore[arg-type]
