"""The web server without a daemon: what it answers, what it refuses, and whom it closes."""

import socket
from collections.abc import Callable

import pytest
import trio
import trio.testing

from fleetctl.web import security
from fleetctl.web.connection import Connection, Limits, Reply
from fleetctl.web.messages import Response, WebRequest
from fleetctl.web.security import MOST_KEYS, TOKEN_S, KeyRing
from fleetctl.web.static_files import CONTENT_TYPES, DIRECTORY
from fleetd.protocol.errors import Denied
from tests.support.web import HOST, Client, Ended, get, served

HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
# Requests that are answered in different places, each with its status.
EVERYWHERE = {
    get("/"): 200,
    get("/static/index.html"): 200,
    get("/static/../../cli.py"): 404,
    get("/nowhere"): 404,
    get("/key"): 401,
    get("/api/system.hello"): 401,
    get("/events"): 401,
    get("/", host="evil.example"): 403,
    b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n": 405,
    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx": 413,
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 16_384 + b"\r\n\r\n": 431,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n": 400,
    b"PRI * HTTP/2.0\r\nHost: localhost\r\n\r\nSM\r\n\r\n": 505,
}


@pytest.fixture
def clock(autojump_clock: trio.testing.MockClock) -> trio.testing.MockClock:
    """Let time pass as soon as nothing happens any more; what is sent arrives before that."""
    autojump_clock.autojump_threshold = 0.05
    return autojump_clock


# What every response has


@pytest.mark.parametrize("request_", EVERYWHERE, ids=lambda raw: ascii(raw[:28].decode("latin-1")))
async def test_every_response_has_the_headers_of_safety_and_no_others_of_their_kind(
    home: object, request_: bytes
) -> None:
    async with served() as web:
        answer = await web.raw(request_)
    assert answer.status == EVERYWHERE[request_]
    assert {name: answer.header(name) for name in HEADERS} == HEADERS
    assert answer.header("cache-control") == ("no-cache" if answer.status == 200 else "no-store")
    assert answer.header("date")
    names = {name for name, _ in answer.headers}
    assert not [name for name in names if name.startswith("access-control-") or "cookie" in name]
    if answer.status >= 400:
        assert answer.error["hint"]


async def test_a_bug_ends_one_request_and_no_other(
    home: object, capsys: pytest.CaptureFixture[str]
) -> None:
    async def handle(request: WebRequest, reply: Reply) -> None:
        if request.path == "/bug":
            raise ZeroDivisionError
        await reply.send(Response(200))

    async with served(handle) as web:
        answer = await web.ask("/bug")
        assert (answer.status, answer.error["kind"]) == (500, "internal")
        assert {name: answer.header(name) for name in HEADERS} == HEADERS
        assert (await web.ask("/")).status == 200
    assert "ZeroDivisionError" in capsys.readouterr().err


async def test_a_bug_in_the_connection_ends_it_and_no_other(
    home: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served() as web:
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "_answer", lambda *_: 1 / 0)
            client = await web.client()
            await client.send(get("/"))
            assert await client.rest() == b""
        assert (await web.ask("/")).status == 200
    assert "ZeroDivisionError" in capsys.readouterr().err


# Other pages and other methods


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "LocalHost:1", "127.0.0.1:65535"]
)
async def test_names_of_this_computer_are_answered_at_any_port(home: object, host: str) -> None:
    async with served() as web:
        assert (await web.raw(get("/", host=host))).status == 200
        own = {"Origin": f"http://{host}", "Sec_Fetch_Site": "same-origin"}
        assert (await web.raw(get("/", host=host, **own))).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8722",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil@127.0.0.1",
        "127.0.0.1:8722:8722",
        "127.0.0.1:port",
        "127.0.0.2",
        "0.0.0.0",
        "[::]",
        "::1",
        "2130706433",
        "127.0.0.1:",
        "",
    ],
)
async def test_a_name_that_somebody_made_lead_here_is_refused(home: object, host: str) -> None:
    async with served() as web:
        for path in ("/", "/static/index.html", "/key", "/api/system.hello", "/events"):
            answer = await web.raw(get(path, host=host, X_Fleet_Key=web.key))
            assert (answer.status, answer.error["kind"]) == (403, "denied")


async def test_a_request_without_a_host_is_refused(home: object) -> None:
    async with served() as web:
        assert (await web.raw(b"GET / HTTP/1.1\r\n\r\n")).status == 400
        assert (await web.raw(b"GET / HTTP/1.0\r\n\r\n")).status == 403
        twice = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
        assert (await web.raw(twice)).status == 400
        whole = b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert (await web.raw(whole)).status == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:8722"},
        {"Origin": "http://127.0.0.1:8723"},
        {"Origin": "http://localhost:8722"},
        {"Origin": "http://127.0.0.1:8722.evil.example"},
        {"Origin": ""},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": ""},
        {"Origin": f"http://{HOST}", "Sec_Fetch_Site": "cross-site"},
    ],
)
async def test_a_request_of_another_page_is_refused(home: object, headers: dict[str, str]) -> None:
    async with served() as web:
        for path in ("/", "/key", "/api/system.hello", "/events"):
            answer = await web.ask(path, X_Fleet_Key=web.key, **headers)
            assert (answer.status, answer.error["kind"]) == (403, "denied")


async def test_an_origin_that_is_there_twice_must_be_right_twice(home: object) -> None:
    own = f"Origin: http://{HOST}"
    async with served() as web:
        for second, status in (("http://evil.example", 403), (f"http://{HOST}", 200)):
            raw = f"GET / HTTP/1.1\r\nHost: {HOST}\r\n{own}\r\nOrigin: {second}\r\n\r\n"
            assert (await web.raw(raw.encode())).status == status


@pytest.mark.parametrize(
    "method",
    ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT", "get", "BREW"],
)
async def test_only_get_is_answered(home: object, method: str) -> None:
    async with served() as web:
        for path in ("/", "/api/system.hello", "/nowhere"):
            client = await web.client()
            await client.send(
                f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nX-Fleet-Key: {web.key}\r\n"
                "Access-Control-Request-Method: GET\r\n\r\n".encode()
            )
            head = await client.head()
            assert (head.status, head.header("allow")) == (405, "GET")
            assert {name: head.header(name) for name in HEADERS} == HEADERS


# Files


async def test_the_files_of_the_package_are_served_by_their_names(home: object) -> None:
    async with served() as web:
        for file in DIRECTORY.rglob("*"):
            if not file.is_file():
                continue
            name = file.relative_to(DIRECTORY).as_posix()
            answer = await web.ask(f"/static/{name}")
            assert (answer.status, answer.body) == (200, file.read_bytes()), name
            assert answer.header("content-type") == CONTENT_TYPES[file.suffix]
        page = await web.ask("/")
    assert page.body == (DIRECTORY / "index.html").read_bytes()
    assert page.header("content-type") == "text/html; charset=utf-8"


async def test_a_browser_that_has_a_file_gets_it_no_second_time(home: object) -> None:
    async with served() as web:
        client = await web.client()
        etag = (await client.ask("/")).header("etag")
        assert etag is not None
        for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            answer = await client.ask("/", If_None_Match=known)
            assert (answer.status, answer.header("etag")) == (304, etag)
            assert {name: answer.header(name) for name in HEADERS} == HEADERS
        assert (await client.ask("/", If_None_Match='"other"')).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e/server.py",
        "/static//etc/passwd",
        "/static/",
        "/static",
        "//static/index.html",
        "/static/index.html/",
        "/static/index.html%00.js",
        "/static/./index.html",
        "/../etc/passwd",
        "/etc/passwd",
        "/index.html",
        "*",
        "/api",
        "/api/",
        "/api/../key",
        "/events/",
    ],
)
async def test_a_path_that_is_not_on_the_list_is_not_found(home: object, path: str) -> None:
    async with served() as web:
        answer = await web.ask(path, X_Fleet_Key=web.key)
        assert (answer.status, answer.error["kind"]) == (404, "not_found")


# Tokens and keys


async def test_a_token_is_good_for_one_key(home: object) -> None:
    async with served() as web:
        token = web.keys.new_token(trio.current_time())
        first = await web.ask("/key", X_Fleet_Token=token)
        assert first.status == 200
        web.keys.check(first.json["key"])
        for wrong in (token, token[:-1], token.swapcase(), "", "\xe9", first.json["key"]):
            answer = await web.ask("/key", X_Fleet_Token=wrong)
            assert (answer.status, answer.error["kind"]) == (401, "denied")
            assert "fleetctl web" in answer.error["hint"]


async def test_of_many_that_have_a_token_one_gets_the_key(home: object) -> None:
    got: list[int] = []
    async with served() as web:
        token = web.keys.new_token(trio.current_time())

        async def exchange() -> None:
            got.append((await web.ask("/key", X_Fleet_Token=token)).status)

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(exchange)
    assert sorted(got) == [200, *[401] * 9]


def test_a_token_is_good_for_ten_minutes() -> None:
    keys = KeyRing()
    early, late = keys.new_token(100.0), keys.new_token(100.0)
    assert keys.exchange(early, 100.0 + TOKEN_S - 0.001)
    with pytest.raises(Denied, match="10 minutes"):
        keys.exchange(late, 100.0 + TOKEN_S)


def test_the_oldest_key_and_the_oldest_token_give_way() -> None:
    keys = KeyRing()
    got = [keys.exchange(keys.new_token(0.0), 0.0) for _ in range(MOST_KEYS + 1)]
    with pytest.raises(Denied):
        keys.check(got[0])
    for each in got[1:]:
        keys.check(each)
    tokens = [keys.new_token(0.0) for _ in range(security.MOST_TOKENS + 1)]
    with pytest.raises(Denied):
        keys.exchange(tokens[0], 0.0)
    assert keys.exchange(tokens[1], 0.0)
    assert len({*got, *tokens}) == len(got) + len(tokens)
    assert all(len(each) == 43 for each in (*got, *tokens))


async def test_without_the_key_there_is_no_data(home: object) -> None:
    async with served() as web:
        token = web.keys.new_token(trio.current_time())
        for path in ("/api/system.hello", "/api/agent.list", "/api/nothing", "/events"):
            for key in (None, "", token, web.key[:-1], "\xe9"):
                headers = {} if key is None else {"X_Fleet_Key": key}
                answer = await web.ask(path, **headers)
                assert (answer.status, answer.error["kind"]) == (401, "denied")
            twice = get(path, X_Fleet_Key=web.key).replace(b"X-", b"X-Fleet-Key: x\r\nX-", 1)
            assert (await web.raw(twice)).status == 401


async def test_a_key_in_the_address_is_none(home: object) -> None:
    async with served() as web:
        assert (await web.ask(f"/api/system.hello?key={web.key}")).status == 401
        token = web.keys.new_token(trio.current_time())
        assert (await web.ask(f"/key?token={token}")).status == 401


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1"])
async def test_another_user_of_the_computer_is_refused(
    home: object, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """Also one whose socket is open for both families, which the kernel tells elsewhere."""
    from fleetctl.web import peer

    async with served() as web:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET

        async def first_line() -> bytes:
            with trio.socket.socket(family) as client:
                await client.connect((address, web.port))
                await client.send(get("/"))
                return (await client.recv(200)).partition(b"\r\n")[0]

        assert await first_line() == b"HTTP/1.1 200 OK"
        with monkeypatch.context() as patch:
            patch.setattr(peer.os, "getuid", lambda: 4_000_000)
            patch.setattr(peer, "ROOT", 4_000_001)
            assert await first_line() == b"HTTP/1.1 403 Forbidden"
        assert await first_line() == b"HTTP/1.1 200 OK"


# HTTP/1.1


async def test_requests_that_come_together_are_answered_in_their_order(home: object) -> None:
    async with served() as web:
        client = await web.client()
        await client.send(get("/") + get("/nowhere") + get("/static/index.html"))
        assert [(await client.answer()).status for _ in range(3)] == [200, 404, 200]
        for byte in get("/"):
            await client.send(bytes([byte]))
        assert (await client.answer()).status == 200


async def test_http_1_0_gets_one_response(home: object) -> None:
    async with served() as web:
        client = await web.client()
        await client.send(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        answer = await client.answer()
        assert (answer.status, answer.header("connection")) == (200, "close")
        assert await client.rest() == b""


async def test_a_client_that_wants_to_close_is_closed(home: object) -> None:
    async with served() as web:
        client = await web.client()
        answer = await client.ask("/", Connection="close")
        assert (answer.status, answer.header("connection")) == (200, "close")
        assert await client.rest() == b""


@pytest.mark.parametrize(
    "head",
    [
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nExpect: 100-continue\r\n",
    ],
)
@pytest.mark.parametrize("sent", [b"", b"12345", b"x" * 300_000])
async def test_a_body_is_refused_and_not_read_as_a_request(
    home: object, head: str, sent: bytes
) -> None:
    async with served() as web:
        client = await web.client()
        await client.send(f"GET / HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode() + sent)
        answer = await client.answer()
        assert (answer.status, answer.header("connection")) == (413, "close")
        assert await client.rest() == b""


async def test_what_expects_something_without_a_body_is_answered(home: object) -> None:
    async with served() as web:
        client = await web.client()
        assert (await client.ask("/", Expect="100-continue")).status == 200
        assert (await client.ask("/", Upgrade="websocket", Connection="Upgrade")).status == 200
        assert (await client.ask("/", Content_Length="0")).status == 200


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            400,
        ),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 1_000_000, 431),
        (b"x" * 1_000_000, 431),
    ],
)
async def test_what_is_no_request_is_answered_and_closed(
    home: object, raw: bytes, status: int
) -> None:
    async with served() as web:
        client = await web.client()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, raw)
            answer = await client.answer()
            assert (answer.status, answer.header("connection")) == (status, "close")
            assert await client.rest() == b""


# Time


async def test_half_a_request_is_closed_after_ten_seconds(
    home: object, clock: trio.testing.MockClock
) -> None:
    async with served() as web:
        client = await web.client()
        await client.send(b"GET / HTTP/1.1\r\nHo")
        before = trio.current_time()
        answer = await client.answer()
        assert (answer.status, answer.error["kind"]) == (408, "invalid_request")
        assert trio.current_time() - before == pytest.approx(10.0, abs=0.2)
        assert await client.rest() == b""


async def test_bytes_that_trickle_in_make_no_longer_time(
    home: object, clock: trio.testing.MockClock
) -> None:
    async with served() as web:
        client = await web.client()
        before = trio.current_time()

        async def trickle() -> None:
            for byte in get("/", X="x" * 1_000):
                await client.send(bytes([byte]))
                await trio.sleep(1.0)

        with pytest.raises(trio.BrokenResourceError):
            await trickle()
        assert trio.current_time() - before < 14


async def test_a_client_that_asks_nothing_is_closed_after_thirty_seconds(
    home: object, clock: trio.testing.MockClock
) -> None:
    async with served() as web:
        for asked in (False, True):
            client = await web.client()
            if asked:
                assert (await client.ask("/")).status == 200
            before = trio.current_time()
            assert await client.rest() == b""
            assert trio.current_time() - before == pytest.approx(30.0, abs=0.2)


async def test_a_client_that_does_not_read_is_closed_after_ten_seconds(
    home: object, clock: trio.testing.MockClock
) -> None:
    ended: list[float] = []

    async def handle(request: WebRequest, reply: Reply) -> None:
        begun = trio.current_time()
        try:
            if request.path == "/whole":
                await reply.send(Response(200, b"x" * 50_000_000))
            await reply.begin("text/event-stream", ())
            while True:
                await reply.write(b"x" * 1_000)
        finally:
            ended.append(trio.current_time() - begun)

    async with served(handle) as web:
        for path in ("/whole", "/stream"):
            client = await web.client()
            await client.send(get(path))
            await trio.sleep(60.0)
            assert len(await client.rest()) < 50_000_000
    assert ended == [pytest.approx(10.0, abs=0.2)] * 2


async def test_a_client_that_reads_slowly_gets_everything(
    home: object, clock: trio.testing.MockClock
) -> None:
    async def handle(request: WebRequest, reply: Reply) -> None:
        await reply.send(Response(200, b"x" * 30_000_000))

    async with served(handle) as web:
        client = await web.client()
        await client.send(get("/"))
        read = 0
        while read < 30_000_000:
            await trio.sleep(3.0)
            read += len(await client.stream.receive_some(4_000_000))
        assert read > 30_000_000


async def test_a_call_ends_with_the_client_that_wanted_it(home: object) -> None:
    begun, cancelled = trio.Event(), trio.Event()

    async def handle(request: WebRequest, reply: Reply) -> None:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    async with served(handle) as web:
        client = await web.client()
        await client.send(get("/"))
        await begun.wait()
        await client.stream.aclose()
        with trio.fail_after(5.0):
            await cancelled.wait()


# Connections


def waiting(release: trio.Event) -> Callable[[WebRequest, Reply], object]:
    async def handle(request: WebRequest, reply: Reply) -> None:
        if request.path == "/wait":
            await release.wait()
        await reply.send(Response(200))

    return handle


async def test_the_seventeenth_connection_takes_the_place_of_the_longest_idle(home: object) -> None:
    async with served() as web:
        clients = [await web.client() for _ in range(16)]
        for each in clients:
            assert (await each.ask("/")).status == 200
        # The first one was used again, so the second one rests longest.
        assert (await clients[0].ask("/")).status == 200
        newest = await web.client()
        assert (await newest.ask("/")).status == 200
        assert await clients[1].rest() == b""
        for each in (clients[0], *clients[2:]):
            assert (await each.ask("/")).status == 200


async def test_when_all_are_at_work_one_more_is_told(home: object) -> None:
    release = trio.Event()
    async with served(waiting(release), Limits(connections=16)) as web:  # type: ignore[arg-type]
        clients = [await web.client() for _ in range(16)]
        for each in clients:
            await each.send(get("/wait"))
        await trio.testing.wait_all_tasks_blocked(0.05)
        more = await web.client()
        answer = await more.ask("/")
        assert (answer.status, answer.error["kind"]) == (503, "limit")
        assert {name: answer.header(name) for name in HEADERS} == HEADERS
        assert await more.rest() == b""
        release.set()
        assert [(await each.answer()).status for each in clients] == [200] * 16
        assert (await web.ask("/")).status == 200


async def test_a_flood_of_connections_leaves_the_server_answering(home: object) -> None:
    async with served() as web:
        flood: list[Client] = [await web.client() for _ in range(200)]
        for each in flood[:100]:
            await each.stream.send_all(b"GET / HT")
        for each in flood:
            await each.stream.aclose()
        with trio.fail_after(10.0):
            while True:
                try:
                    if (await web.ask("/")).status == 200:
                        break
                except (Ended, trio.BrokenResourceError):
                    pass
                await trio.sleep(0.01)
