"""``fleetctl web`` as people run it: links, a second one, places, signals, the service."""

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from fleetctl.web import running
from fleetctl.web.place import Place
from tests.support.processes import Daemon, Result
from tests.support.web import Client, Link, WebProcess, get, web_processes

from .managers import SYSTEMCTL, Managers

ANALYZE = shutil.which("systemd-analyze")
# As for the unit of fleetd itself.
EXPOSURE = 65

Run = Callable[..., Result]
Start = Callable[..., WebProcess]


@pytest.fixture
def web(home: Path) -> Iterator[Start]:
    with web_processes(home) as start:
        yield start


@pytest.fixture
def private(home: Path) -> Path:
    return home / "run" / "d-web.sock"


def ended(web: WebProcess) -> int:
    return web.process.wait(20)


# Links


def test_the_link_leads_to_the_page_and_to_the_data(daemon: Daemon, web: Start) -> None:
    link = web("--port", "0").link()
    page = link.ask("/")
    assert (page.status, page.header("content-type")) == (200, "text/html; charset=utf-8")
    key = link.key()
    assert link.ask("/key", X_Fleet_Token=link.token).status == 401
    hello = link.ask("/api/system.hello", X_Fleet_Key=key)
    assert (hello.status, hello.json["name"]) == (200, "fleetd")


def test_without_a_daemon_the_page_is_there_and_says_what_to_do(home: Path, web: Start) -> None:
    link = web("--port", "0").link()
    assert link.ask("/").status == 200
    key = link.key()
    for path in ("/api/agent.list", "/events"):
        answer = link.ask(path, X_Fleet_Key=key)
        assert (answer.status, answer.error["kind"]) == (503, "unavailable")
        assert "fleetd is not running" in answer.error["message"]
        assert "fleetctl" in answer.error["hint"]


def test_json_is_one_document_and_it_runs_on(home: Path, web: Start) -> None:
    running_one = web("--port", "0", "--json")
    lines = []
    while not lines or lines[-1] != "}\n":
        lines.append(running_one.line())
    document = json.loads("".join(lines))
    assert document["pid"] == running_one.process.pid
    assert document["started"] is True
    link = Link.of(document["url"])
    assert document["ssh"] == f"ssh -L {link.port}:127.0.0.1:{link.port} HOST"
    assert link.ask("/").status == 200


def test_a_second_one_prints_a_new_link_of_the_first(home: Path, web: Start, run: Run) -> None:
    first = web("--port", "0").link()
    for words in ((), ("--port", "1"), ("--json",)):
        again = run("web", *words)
        assert (again.status, again.err) == (0, "")
        second = Link.of(again.json["url"] if "--json" in words else again.out)
        assert second.port == first.port
        assert second.token != first.token
        assert second.key()
    assert first.key()


def test_of_several_that_start_at_once_one_serves(home: Path, web: Start) -> None:
    every = [web("--port", "0") for _ in range(5)]
    links = [each.link() for each in every]
    assert len({link.port for link in links}) == 1
    assert all(link.key() for link in links)
    # Those that print a link of another one have ended with it.
    assert sorted(each.process.poll() is None for each in every if settled(each)) in (
        [True],
        [False] * 4 + [True],
    )


def settled(web: WebProcess) -> bool:
    """Return whether a process has ended, or is the one that serves."""
    try:
        return web.process.wait(0.5) == 0
    except subprocess.TimeoutExpired:
        return True


def test_the_private_socket_is_for_this_user_only_and_goes_with_the_server(
    home: Path, web: Start, private: Path
) -> None:
    server = web("--port", "0")
    assert server.link().token
    info = private.lstat()
    assert stat.S_ISSOCK(info.st_mode)
    assert stat.S_IMODE(info.st_mode) == 0o600
    assert stat.S_IMODE(private.with_suffix(".lock").stat().st_mode) == 0o600
    server.process.send_signal(signal.SIGTERM)
    assert ended(server) == 0
    assert not private.exists()
    assert running.ask(private) is None


def test_a_socket_of_one_that_was_killed_is_replaced(home: Path, web: Start, private: Path) -> None:
    killed = web("--port", "0")
    first = killed.link()
    killed.process.kill()
    assert ended(killed) == -signal.SIGKILL
    assert private.exists()
    second = web("--port", "0").link()
    assert second.key()
    assert second.token != first.token


def test_one_that_hangs_is_named(
    home: Path, web: Start, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = web("--port", "0")
    assert server.link().token
    monkeypatch.setattr(running, "START_S", 0.2)
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        result = run("web")
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    assert result.status == 1
    assert f"(pid {server.process.pid})" in result.err
    assert "Hint:" in result.err


def test_a_directory_that_others_may_write_to_is_refused(home: Path, run: Run) -> None:
    (home / "run").chmod(0o777)
    result = run("web", "--port", "0")
    assert result.status == 1
    assert "others may write" in result.err
    assert "FLEET_SOCKET" in result.err


def test_a_lock_that_cannot_be_had_is_named(home: Path, run: Run, private: Path) -> None:
    private.with_suffix(".lock").mkdir()
    result = run("web", "--port", "0")
    assert result.status == 1
    assert f"The lock file {private.with_suffix('.lock')} cannot be opened" in result.err


def test_a_socket_with_too_long_a_name_is_refused(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "d" * (104 - len(str(home / "run"))) + ".s"
    monkeypatch.setenv("FLEET_SOCKET", str(home / "run" / name))
    result = run("web", "--port", "0")
    assert result.status == 1
    assert "Set FLEET_SOCKET to a shorter path" in result.err


def test_each_daemon_has_a_server_of_its_own(
    home: Path, web: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = web("--port", "0").link()
    monkeypatch.setenv("FLEET_SOCKET", str(home / "run" / "other.sock"))
    second = web("--port", "0").link()
    assert second.port != first.port


# Where it listens


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "192.0.2.1", "example.com", "127.0.0.1.example.com", "127.0.0.2"]
)
@pytest.mark.parametrize("words", [(), ("run",), ("install", "--dry-run")])
def test_an_address_that_others_reach_is_refused_with_the_line_for_ssh(
    home: Path, run: Run, host: str, words: tuple[str, ...]
) -> None:
    result = run("web", *words, "--host", host)
    assert (result.status, result.out) == (2, "")
    assert "ssh -L 8722:127.0.0.1:8722 HOST" in result.err


def test_a_port_that_is_taken_is_named_with_what_to_do(home: Path, run: Run, private: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("web", "--port", str(port))
    assert result.status == 1
    assert f"Port {port} of 127.0.0.1 cannot be used" in result.err
    assert "--port 0" in result.err
    assert not private.exists()


@pytest.mark.parametrize(
    "words", [("--service", "--open"), ("run", "--json"), ("run", "--open"), ("walk",)]
)
def test_words_that_do_not_go_together_are_refused(
    home: Path, run: Run, words: tuple[str, ...], private: Path
) -> None:
    result = run("web", *words)
    assert result.status == 2
    assert not private.exists()


@pytest.mark.parametrize("port", ["-1", "65536", "http", ""])
def test_a_port_that_is_none_is_a_usage_error(home: Path, run: Run, port: str) -> None:
    assert run("web", "--port", port).status == 2


def test_it_listens_on_loopback_and_nowhere_else(home: Path, web: Start) -> None:
    for host, address in (("127.0.0.1", "0100007F"), ("localhost", "0100007F")):
        server = web("--port", "0", "--host", host)
        port = server.link().port
        rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")]
        assert listening == [f"{address}:{port:04X}"]
        server.end()


@pytest.mark.skipif(not socket.has_ipv6, reason="this Python has no IPv6")
def test_it_listens_on_ipv6(home: Path, web: Start) -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
    line = web("--port", "0", "--host", "::1").line()
    assert line.startswith("Fleet is at http://[::1]:")
    port = int(line.split("]:")[1].split("/")[0])

    async def ask() -> int:
        async with await trio.open_tcp_stream("::1", port) as stream:
            return (
                await (await Client(stream).send(get("/", host=f"[::1]:{port}"))).answer()
            ).status

    assert trio.run(ask) == 200


def test_a_socket_instead_of_a_port(home: Path, web: Start) -> None:
    path = home / "page.sock"
    server = web("--socket", str(path))
    line = server.line()
    assert line.startswith("Fleet is at http://127.0.0.1:8722/#token=")
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    wait_until(lambda: f"ssh -L 8722:{path} HOST" in server.err)

    async def ask() -> tuple[int, int]:
        async with await trio.open_unix_socket(str(path)) as stream:
            client = Client(stream)
            page = await client.ask("/")
            token = line.strip().partition("#token=")[2]
            return page.status, (await client.ask("/key", X_Fleet_Token=token)).status

    assert trio.run(ask) == (200, 200)
    server.process.terminate()
    assert ended(server) == 0
    assert not path.exists()


@pytest.mark.parametrize("which", ["page", "private"])
def test_something_else_in_the_place_of_a_socket_stays(
    home: Path, run: Run, private: Path, which: str
) -> None:
    path = home / "page.sock" if which == "page" else private
    path.write_text("mine")
    words = ("--socket", str(path)) if which == "page" else ("--port", "0")
    result = run("web", *words)
    assert result.status == 1
    assert str(path) in result.err
    assert path.read_text() == "mine"


def test_a_socket_that_others_could_open_is_refused(
    home: Path, run: Run, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a file system that keeps no permissions.
    monkeypatch.setattr(running, "PRIVATE", 0o640)
    result = run("web", "--port", "0")
    assert result.status == 1
    assert "does not keep permissions" in result.err
    assert not private.exists()


# The end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_at_once_and_cleanly(
    daemon: Daemon, web: Start, private: Path, number: signal.Signals
) -> None:
    before = signal.getsignal(number)
    if before is signal.SIG_IGN:  # as below nohup, where the server would leave it so
        signal.signal(number, signal.SIG_DFL)
    server = web("--port", "0")
    signal.signal(number, before)
    link = server.link()

    async def follow_until_the_end() -> tuple[float, bytes]:
        async with await trio.open_tcp_stream("127.0.0.1", link.port) as stream:
            client = Client(stream)
            key = (await client.ask("/key", X_Fleet_Token=link.token)).json["key"]
            await client.send(get("/events", X_Fleet_Key=key))
            assert (await client.head()).status == 200
            assert b"begin" in await client.chunk()
            half = await trio.open_tcp_stream("127.0.0.1", link.port)
            await half.send_all(b"GET / HT")
            begun = time.monotonic()
            server.process.send_signal(number)
            with trio.fail_after(20):
                rest = await client.rest()
            await half.aclose()
            return time.monotonic() - begun, rest

    took, _ = trio.run(follow_until_the_end)
    assert ended(server) == 0
    assert took < 2.0
    assert server.err == ""
    assert not private.exists()


def test_a_signal_that_was_switched_off_stays_so(home: Path, web: Start) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        server = web("--port", "0")
        link = server.link()
    finally:
        signal.signal(signal.SIGHUP, before)
    server.process.send_signal(signal.SIGHUP)
    assert link.ask("/").status == 200


# The service


def test_in_a_service_no_link_is_printed(home: Path, web: Start, run: Run, private: Path) -> None:
    server = web("run", "--port", "0")
    wait_until(lambda: "Fleet is at" in server.err)
    assert "token" not in server.err
    found = Link.of(run("web").out)
    assert found.key()
    shown = run("web", "status", "--json").json
    assert shown["running"] is True
    assert shown["url"] == f"http://127.0.0.1:{found.port}/"
    assert shown["pid"] == server.process.pid
    server.process.terminate()
    assert ended(server) == 0
    assert server.process.stdout is not None
    assert server.process.stdout.read() == ""
    assert run("web", "status").status == 1


def test_a_service_waits_while_another_one_runs(home: Path, web: Start, private: Path) -> None:
    by_hand = web("--port", "0")
    first = by_hand.link()
    service = web("run", "--port", "0")
    wait_until(lambda: f"(pid {by_hand.process.pid})" in service.err)
    assert first.ask("/").status == 200
    by_hand.process.terminate()
    assert ended(by_hand) == 0
    wait_until(lambda: "Fleet is at" in service.err)
    found = running.ask(private)
    assert found is not None
    assert (found.pid, found.service) == (service.process.pid, True)


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for another process, of which nobody tells."""
    until = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until
        threading.Event().wait(0.02)


@pytest.fixture
def managers(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managers]:
    found = Managers(home)
    found.have("systemctl", SYSTEMCTL)
    monkeypatch.setenv("PATH", found.path)
    yield found
    if (file := found.place / "web.pid").exists():
        os.kill(int(file.read_text()), signal.SIGKILL)


@pytest.fixture
def unit(home: Path) -> Path:
    return home / "config" / "systemd" / "user" / "fleet-web.service"


@pytest.mark.parametrize("words", [("--service",), ("install",)])
def test_the_service_is_installed_shown_and_removed(
    home: Path, managers: Managers, unit: Path, run: Run, done: Run, words: tuple[str, ...]
) -> None:
    assert run("web", *words).status == 2  # nobody can be asked
    assert not unit.exists()
    installed = done("web", *words, "--port", "0", "--yes")
    assert "fleetctl web prints a link" in installed.out
    link = Link.of(done("web").out)
    assert link.key()
    assert managers.calls("systemctl")[-4:] == [
        "--user daemon-reload",
        "--user enable fleet-web.service",
        "--user reset-failed fleet-web.service",
        "--user restart fleet-web.service",
    ]
    text = unit.read_text()
    assert "-P -m fleetctl web run --host 127.0.0.1 --port 0\n" in text
    assert f"Environment=FLEET_SOCKET={home}/run/d.sock\n" in text
    assert f"ReadWritePaths=-{home}/run\n" in text
    assert "token" not in text
    shown = done("web", "status", "--json")
    assert shown.json["service"]["running"] is True
    assert shown.json["url"] == f"http://127.0.0.1:{link.port}/"
    journal = (managers.place / "journal").read_text()
    assert "Fleet is at" in journal
    assert "token" not in journal
    assert done("web", "uninstall", "--dry-run").out.endswith("Nothing was removed.\n")
    assert unit.exists()
    done("web", "uninstall", "--yes")
    assert not unit.exists()
    assert run("web", "status").status == 1
    assert "--user disable --now fleet-web.service" in managers.calls("systemctl")
    assert "not installed" in done("web", "uninstall").out


def test_a_dry_run_shows_the_unit_and_writes_nothing(
    home: Path, managers: Managers, unit: Path, done: Run
) -> None:
    socket_path = home / "a place" / "page.sock"
    shown = done("web", "install", "--dry-run", "--socket", str(socket_path)).out
    assert f"+ExecStart={sys.executable}" in shown or "+ExecStart=" in shown
    assert f'web run --socket "{socket_path}" --port 8722' in shown
    assert f'"{socket_path.parent}"' in shown
    assert "[DRY RUN]" in shown
    assert not unit.exists()


def test_the_service_that_waits_says_so(managers: Managers, web: Start, done: Run) -> None:
    by_hand = web("--port", "0")
    assert by_hand.link().token
    installed = done("web", "install", "--port", "0", "--yes")
    assert f"waits until your fleetctl web (pid {by_hand.process.pid}) ends" in installed.out
    done("web", "uninstall", "--yes")


def test_without_a_manager_that_runs_it_begins_at_the_next_login(
    managers: Managers, unit: Path, done: Run
) -> None:
    (managers.place / "away").touch()
    installed = done("web", "install", "--yes")
    link = unit.parent / "default.target.wants" / unit.name
    assert link.is_symlink()
    assert "Until then, run: fleetctl web" in installed.out
    done("web", "uninstall", "--yes")
    assert not link.parent.exists()


def test_uninstall_of_everything_takes_the_service_out(
    managers: Managers, unit: Path, done: Run
) -> None:
    done("web", "install", "--port", "0", "--yes")
    assert "web server" in done("uninstall", "--dry-run").out
    done("uninstall", "--yes")
    assert not unit.exists()


def test_a_machine_without_systemd_is_told_what_to_do(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetctl.service.systemd.is_here", lambda: False)
    result = run("web", "install", "--yes")
    assert result.status == 1
    assert "Start fleetctl web with your session" in result.err


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("which", ["source", "port", "socket"])
def test_systemd_finds_nothing_wrong_with_the_unit(home: Path, which: str) -> None:
    from fleetctl.service.spec import this_spec
    from fleetctl.service.web_unit import UNIT, rendered

    path = Path(__file__).parents[2] / "systemd" / UNIT.name
    if which != "source":
        path = home / UNIT.name
        place = Place(socket=home / "a 100% place" / "$page.sock") if which == "socket" else Place()
        path.write_text(rendered(this_spec(), place))
    verify = [str(ANALYZE), "verify", "--user", str(path)]
    security = [str(ANALYZE), "security", "--user", "--offline=yes", "--no-pager"]
    for words in (verify, [*security, f"--threshold={EXPOSURE}", str(path)]):
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout[-300:] + done.stderr
        assert "Unknown" not in done.stderr


# Browsers


def test_the_link_is_opened_in_a_browser(
    home: Path, web: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, opened = home / "browser", home / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    server = web("--port", "0", "--open")
    printed = server.line()
    wait_until(lambda: opened.exists() and opened.read_text().endswith("\n"))
    assert opened.read_text().strip() == printed.split()[-1]
    again = subprocess.run(
        [sys.executable, "-m", "fleetctl", "web", "--open"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert opened.read_text().splitlines()[1] == again.stdout.split()[-1]


def test_without_a_screen_no_browser_is_tried(
    home: Path, web: Start, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert web("--port", "0").link().token
    monkeypatch.setattr(sys, "platform", "linux")
    result = run("web", "--open")
    assert result.status == 0
    assert Link.of(result.out).token
    assert "Open the link yourself" in result.err


def test_over_ssh_the_command_for_the_other_computer_is_printed(
    home: Path, web: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 50000 192.0.2.2 22")
    server = web("--port", "0")
    link = server.link()
    wait_until(lambda: "HOST" in server.err)
    assert f"ssh -L {link.port}:127.0.0.1:{link.port} HOST" in server.err
