"""Channels for real: a bus, an HTTP server and commands of this computer."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from fleetctl.notify.channels import Apprise, Command, Webhook
from fleetctl.notify.desktop import DBusDesktop, MacDesktop, desktop
from fleetctl.notify.message import message_of
from fleetctl.notify.options import NotifyOptions
from fleetctl.notify.outbox import Outbox, Undelivered
from fleetctl.notify.urls import checked_webhook, shown
from fleetd.protocol.errors import InvalidParams, InvalidState
from tests.support.notify import FakeBus, FakeHook, ThousandEvents, deaf, message, until

WAIT_S = 30.0
# Apprise loads modules that newer Pythons deprecate.
ignores_its_imports = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def bus(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBus]:
    pytest.importorskip("jeepney")
    with FakeBus(home / "bus").running() as found:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", found.address)
        yield found


@pytest.fixture
def hook() -> Iterator[FakeHook]:
    with FakeHook().running() as found:
        yield found


# What people read


def test_a_message_says_who_where_and_what():
    found = message(
        needs="limit", cwd="/home/me/app", branch="main", text="5 h", reset_at="17:00 UTC"
    )
    assert found.title == "alice: reached a limit"
    assert found.body == "app (main)\n5 h\nuntil 17:00 UTC"
    assert found.id == "alice/limit/2026-01-05T12:00:00.000Z"
    assert found.open == "cd /home/me/app"


def test_control_characters_and_long_texts_stay_out_of_a_message():
    found = message(
        agent="a\x1b[2Jlice",
        cwd="/x/\x07app\u202e",
        text="\x1b]0;title\x07rm\nof\u200b it " + 300 * "x",
        mission="m\x00" + 300 * "y",
    )
    for each in (found.title, found.body.replace("\n", ""), found.text, found.cwd, found.mission):
        assert each is not None
        assert each.isprintable()
    assert len(found.text or "") <= 200
    assert len(found.mission or "") <= 100


@pytest.mark.parametrize(
    ("reset_at", "wanted"),
    [("2026-01-05T17:00:00.000Z", "Mon 17:00"), ("5 \x1bpm", "5 pm"), (500 * "x", 99 * "x" + "…")],
)
def test_a_reset_is_told_by_the_clock_on_the_wall(
    monkeypatch: pytest.MonkeyPatch, reset_at: str, wanted: str
):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert message(needs="limit", reset_at=reset_at).body == f"until {wanted}"
    monkeypatch.undo()
    time.tzset()


# The desktop


async def test_the_desktop_shows_a_message_without_markup(bus: FakeBus):
    await desktop().send(message(cwd="/x/<b>app", text='<img src="http://x/">&amp;'))
    ((app, replaces, icon, title, body, actions, hints, expires),) = bus.shown
    assert (app, replaces, icon, title) == ("fleetd", 0, "", "alice: needs permission")
    assert body == '&lt;b&gt;app\n&lt;img src="http://x/"&gt;&amp;amp;'
    assert (actions, hints, expires) == ([], {"urgency": ("y", 1)}, -1)


async def test_a_notification_server_that_refuses_is_an_error(bus: FakeBus):
    bus.refuses = True
    with pytest.raises(Undelivered, match="no notification server"):
        await DBusDesktop().send(message())


@pytest.mark.parametrize("address", ["unix:path=/nowhere/bus", ""])
async def test_a_missing_desktop_is_an_error(
    home: Path, monkeypatch: pytest.MonkeyPatch, address: str
):
    pytest.importorskip("jeepney")
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    with pytest.raises(Undelivered, match="this session has no"):
        await DBusDesktop().send(message())


def test_a_session_without_a_bus_has_no_desktop(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "nothing"))
    with pytest.raises(InvalidState, match="No desktop notifications here: this session has no D"):
        NotifyOptions().reachable()
    left, told = NotifyOptions(desktop=True, command=["true"]).reachable()
    assert left == NotifyOptions(command=["true"])
    assert told == "No desktop notifications here: this session has no D-Bus."
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/x")
    assert NotifyOptions().reachable() == (NotifyOptions(), "")


async def test_the_bus_of_the_runtime_directory_is_found(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("jeepney")
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    with FakeBus(home / "run" / "bus").running() as found:
        await DBusDesktop().send(message())
    assert len(found.shown) == 1


async def test_macos_gets_the_texts_as_arguments(home: Path, monkeypatch: pytest.MonkeyPatch):
    program = home / "osascript"
    program.write_text(f'#!/bin/sh\nprintf "%s|" "$3" "$4" > {home}/told\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{home}:{os.environ['PATH']}")
    await MacDesktop().send(message(text='" & (do shell script "id") & "'))
    told = 'alice: needs permission|" & (do shell script "id") & "|'
    assert (home / "told").read_text() == told
    program.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(Undelivered, match="status 3"):
        await MacDesktop().send(message())


# Commands


async def test_a_command_gets_the_message_as_json(home: Path):
    await Command(f"cat > {home}/told").send(message(text="$(id) `id`", cwd="/x"))
    told = json.loads((home / "told").read_text())
    assert told["agent"] == "alice"
    assert told["needs"] == "permission"
    assert told["text"] == "$(id) `id`"
    assert told["open"] == "cd /x"


async def test_a_command_that_reads_nothing_is_none_the_worse(home: Path):
    await Command("true").send(message())


async def test_a_command_that_fails_says_so(home: Path):
    with pytest.raises(Undelivered, match="exit status 4"):
        await Command("exit 4").send(message())


async def test_a_command_that_hangs_is_killed_with_what_it_started(home: Path):
    pids = home / "pids"
    command = f"sleep 300 & echo $! >> {pids}; echo $$ >> {pids}; wait"
    with pytest.raises(Undelivered, match="killed after"):
        await Command(command, limit_s=0.5).send(message())
    found = [int(each) for each in pids.read_text().split()]
    assert len(found) == 2
    with trio.fail_after(WAIT_S):
        await until(lambda: not any(map(_runs, found)))


def _runs(pid: int) -> bool:
    """Return whether a process runs; one that nobody has waited for runs no more."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return Path("/proc/self").exists() is False


# Webhooks


async def test_a_webhook_gets_the_message_as_json(hook: FakeHook):
    await Webhook(hook.url).send(message(text="é"))
    (told,) = hook.got
    assert (told["title"], told["text"]) == ("alice: needs permission", "é")
    assert hook.paths == ["/hook/SECRET?key=SECRET"]
    (headers,) = hook.headers
    assert headers["Content-Type"] == "application/json"
    assert headers["Idempotency-Key"] == told["id"]
    assert "Authorization" not in headers


async def test_a_user_in_the_url_is_sent_as_one(hook: FakeHook):
    await Webhook(hook.url.replace("//", "//me:p%40ss@")).send(message())
    (headers,) = hook.headers
    assert headers["Authorization"] == "Basic bWU6cEBzcw=="


@pytest.mark.parametrize(
    ("status", "refused"),
    [(302, True), (404, True), (408, False), (429, False), (500, False), (503, False)],
)
async def test_an_answer_that_is_no_success_is_an_error(hook: FakeHook, status: int, refused: bool):
    hook.answer = lambda _: status
    with pytest.raises(Undelivered, match=f"status {status}") as caught:
        await Webhook(hook.url).send(message())
    assert caught.value.refused is refused
    assert hook.asked == 1  # no redirect is followed


async def test_a_webhook_where_nobody_listens_is_an_error_without_the_url():
    with pytest.raises(Undelivered) as caught:
        await Webhook("http://127.0.0.1:1/SECRET").send(message())
    assert str(caught.value) == "Connection refused"


async def test_a_webhook_that_answers_nothing_can_be_given_up(hook: FakeHook):
    with deaf() as url:
        webhook = Webhook(url)
        for _ in range(5):
            with trio.move_on_after(0.05) as waiting:
                await webhook.send(message())
            assert waiting.cancelled_caught


@pytest.mark.parametrize(
    "url",
    [
        *("http://example.com/SECRET", "http://127.0.0.1.example.com/SECRET", "ftp://localhost/"),
        *("SECRET", "", "https://", "https:///SECRET", "http://[::2]/", "http://10.0.0.1/"),
        *("https://example.com:SECRET/", "https://exa mple.com/", "https://example.com/\x07SECRET"),
        *("https://example.com/\nSECRET", "https://exämple.com/", "http://localhost@example.com/"),
    ],
)
def test_a_url_that_is_no_webhook_is_refused_without_being_shown(url: str):
    with pytest.raises(InvalidParams) as caught:
        checked_webhook(url)
    assert "SECRET" not in str(caught.value) + (caught.value.hint or "")


@pytest.mark.parametrize(
    "url",
    ["https://example.com", "http://localhost:8/", "http://127.9.9.9/", "http://[::1]:80/x?y"],
)
def test_https_and_this_computer_are_webhooks(url: str):
    assert checked_webhook(url)


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("https://me:SECRET@example.com:80/SECRET?SECRET", "https://example.com/…"),
        ("ntfy://SECRET", "ntfy://…"),
        ("SECRET", "…"),
        ("https://[SECRET", "…"),
    ],
)
def test_of_a_url_only_what_is_no_secret_is_shown(url: str, wanted: str):
    assert shown(url) == wanted


# All of them


async def test_a_bus_a_webhook_and_a_command_get_each_state_of_a_thousand_events_once(
    bus: FakeBus, hook: FakeHook, home: Path, nursery: trio.Nursery
):
    """The states come in virtual time; what is due is sent for real. Now and then a try fails."""
    hook.answer = lambda count: 503 if count == 100 else 200
    events, said = ThousandEvents(), list[str]()
    channels = [
        DBusDesktop(),
        Webhook(hook.url),
        Command(f"cat >> {home}/told"),
    ]
    boxes = [Outbox(each, said.append) for each in channels]
    for box in boxes:
        nursery.start_soon(box.run)
    told = 0
    with trio.fail_after(10 * WAIT_S):
        for found in events.told():
            for each in map(message_of, found):
                told += 1
                for box in boxes:
                    box.put(each)
            # An outbox has room for 100.
            await until(lambda least=told - 50: min(each.sent for each in boxes) >= least)
        await until(lambda: min(each.sent for each in boxes) == told)
    wanted = sorted("/".join(key) for key in events.wanted)
    assert [(each.sent, each.dropped) for each in boxes] == [(len(wanted), 0)] * 3
    assert sorted(each["id"] for each in hook.got) == wanted
    lines = (home / "told").read_text().splitlines()
    assert sorted(json.loads(each)["id"] for each in lines) == wanted
    assert len(bus.shown) == len(wanted)
    assert not any("dropped" in each or "SECRET" in each for each in said)


# Apprise


@ignores_its_imports
async def test_apprise_tells_its_service(hook: FakeHook):
    pytest.importorskip("apprise")
    url = hook.url.replace("http", "json")
    await Apprise(url).send(message(text="<b>"))
    (told,) = hook.got
    assert told["title"] == "alice: needs permission"
    assert told["message"] == "<b>"


@ignores_its_imports
async def test_a_service_that_fails_is_an_error(hook: FakeHook, capfd: pytest.CaptureFixture[str]):
    pytest.importorskip("apprise")
    hook.answer = lambda _: 500
    with pytest.raises(Undelivered):
        await Apprise(hook.url.replace("http", "json")).send(message())
    assert "SECRET" not in "".join(capfd.readouterr())


@ignores_its_imports
def test_a_url_that_apprise_does_not_know_is_refused(capfd: pytest.CaptureFixture[str]):
    pytest.importorskip("apprise")
    with pytest.raises(InvalidParams):
        Apprise("nobody://SECRET")
    assert "SECRET" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("package", ["apprise", "jeepney"])
def test_a_package_that_is_missing_is_named(package: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(InvalidState, match=f"needs? the package {package}"):
        Apprise("json://localhost") if package == "apprise" else desktop()
