"""Clients that are slow, silent, greedy, disconnected or too many, for a real daemon.

A round is one kind of trouble. Meanwhile polite clients send requests, and hook clients report.
Afterwards the daemon must have released everything that the trouble used.
"""

import json
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from fleetctl.client import Fleet
from fleetd.protocol.errors import FleetError
from tests.chaos import bad_clients as bad
from tests.chaos.bystanders import Noticed, judge, polite
from tests.chaos.campaign import Campaign, Red, Run
from tests.chaos.hostile import line, request
from tests.chaos.measured_daemon import MB, MeasuredDaemon, dial, measured, shut
from tests.support.hook_client import start as start_hook

SETTINGS = "[limits]\nline_timeout_ms = {line}\nreply_timeout_ms = {reply}\nconnections = {slots}\n"
PATIENCE_S = 30.0
# The memory for 50 clients that never read: their received requests, and 32 MiB of replies.
READERS_MEMORY = 350 * MB
AGAIN = line(request("system.health", {})) + b"\n"
DEFECTS = {
    "no_line_deadline": "import math; from fleetd.server import connection\n"
    "late = lambda *a, **k: old(*a, **{**k, 'timeout_ms': math.inf})\n"
    "old = plant(connection, 'LineReader', late)",
    "no_reply_deadline": "import math; from fleetd.server import connection\n"
    "late = lambda *a, **k: old(*a, **{**k, 'seconds': math.inf})\n"
    "old = plant(connection, 'LineWriter', late)",
    "accept_dies": "from fleetd.server import server\nplant(server, '_TRANSIENT', frozenset())",
    "slot_leak": "from fleetd.server import server\n"
    "async def leaky(self, stream):\n"
    "    await old(self, stream)\n"
    "    self._limit._free._value -= 1\n"
    "old = plant(server.Server, '_serve_peer', leaky)",
}


class Trouble:
    """One daemon, and what a round does to it."""

    def __init__(self, run: Run, gauge: MeasuredDaemon) -> None:
        self.run = run
        self.gauge = gauge
        self.long = run.judged and not run.planted
        self.patience_s = 3.0 if run.planted else PATIENCE_S
        self.slots = 256 if self.long else 16
        with Fleet(gauge.socket) as client:
            text = "x" * 200_000
            for _ in range(10):
                client.call_raw("event.append", {"type": "large_one", "data": {"text": text}})
        self.sockets = gauge.sockets()
        self.descriptors = gauge.descriptors()

    def much(self) -> bytes:
        """Return a request with a reply of 2 MB."""
        return line(request("event.list", {"type": "large_one"})) + b"\n"

    # The kinds of trouble

    def slow_writers(self) -> None:
        """Send nothing or half a line from more clients than there are slots."""
        count = 1_000 if self.long else 40
        with bad.slow_writers(self.gauge, count, self.run.chance) as slow:
            self.served(20)
            ends = time.monotonic() + (6 if self.long else 0.1)
            while time.monotonic() < ends:
                for sock in self.run.chance.sample(slow, 10):
                    bad.push(sock, b" ")
                time.sleep(0.01)
            self.served(20)
        self.run.add("slow writers", count)

    def half_lines_end(self) -> None:
        """Check the timeout for half a line, even while slots are free."""
        with ExitStack() as stack:
            socks = [
                stack.enter_context(dial(self.gauge.socket, self.patience_s)) for _ in range(5)
            ]
            for sock in socks:
                sock.sendall(bad.HALF)
            for sock in socks:
                self.closed_by_itself(sock, "line_timeout_ms")

    def lazy_readers(self) -> None:
        """Check that clients that never read cost bounded memory and lose their connections."""
        count = 50 if self.long else 6
        self.gauge.forget_peak()
        with bad.lazy_readers(self.gauge, count, self.much()):
            self.served(10)
            self.gauge.at_rest(self.sockets + 1, patience_s=self.patience_s)
        peak = self.gauge.peak() / MB
        self.run.worst("MB at most", peak)
        if self.long and self.gauge.peak() > READERS_MEMORY:
            raise Red(f"readers that never read cost {peak:.0f} MB")
        self.run.add("readers that never read", count)

    def vanishing(self) -> None:
        """Close, reset, kill and stop clients with requests in flight."""
        count = 200 if self.long else 20
        for number in range(count):
            sock = dial(self.gauge.socket, self.patience_s)
            push = self.run.chance.choice((AGAIN, self.much() * 3, bad.HALF, b"junk\n"))
            sock.setblocking(False)
            bad.push(sock, push)
            (bad.reset if number % 2 else shut)(sock)
        question = line(request("event.list", {"limit": 1}))
        with bad.process_of_clients(self.gauge, 10, question) as process:
            process.send_signal(signal.SIGSTOP)
            self.served(5)
            process.kill()
        self.served(5)
        self.run.add("clients that vanished", count + 10)

    def many(self) -> None:
        """Connect and disconnect many clients, one after the other."""
        count = 3_000 if self.long else 50
        for _ in range(count):
            with dial(self.gauge.socket, self.patience_s) as sock:
                if self.run.chance.random() < 0.5:
                    sock.sendall(AGAIN)
        self.run.add("connections", count)

    def no_descriptors(self) -> None:
        """Leave the daemon no descriptors: clients wait, files are late, all is caught up."""
        pid, gauge = self.gauge.pid, self.gauge
        old = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        with Fleet(gauge.socket) as client, ExitStack() as stack:
            mission = client.call_raw("mission.create", {"title": "without files"})["id"]
            client.call_raw("mission.start", {"mission_id": mission})
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (gauge.descriptors(), old[1]))
            try:
                late = [stack.enter_context(dial(gauge.socket, self.patience_s)) for _ in range(5)]
                for sock in late:
                    sock.sendall(AGAIN)
                made = client.call_raw(
                    "checkpoint.create", {"mission_id": mission, "wait_for_backup": False}
                )
                cpu = gauge.cpu_ms()
                time.sleep(0.5)
                busy = (gauge.cpu_ms() - cpu) / 500
                client.call_raw("system.health")
            finally:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, old)
            if busy > 0.5:
                raise Red(f"without descriptors the daemon is busy {busy:.0%} of the time")
            for sock in late:
                if b'"result"' not in sock.recv(65_536):
                    raise Red("who waited for a descriptor got no answer")
            self.backed_up(client, made["id"])
        self.run.add("times without descriptors")

    def backed_up(self, client: Fleet, checkpoint: str) -> None:
        """Wait until a checkpoint has its file; raises Red."""
        deadline = time.monotonic() + self.patience_s
        while not client.call_raw("checkpoint.get", {"checkpoint_id": checkpoint}).get(
            "backed_up_at"
        ):
            if time.monotonic() > deadline:
                raise Red(f"the file of {checkpoint} was not made up for")
            time.sleep(0.1)

    def flood(self) -> None:
        """Let one client flood the daemon; a polite client must still get answers in between."""
        ends = time.monotonic() + (3 if self.long else 0.2)
        asked = 0
        append = line(request("event.append", {"type": "flood_event", "data": {}})) + b"\n"
        sock = dial(self.gauge.socket, self.patience_s)
        try:
            while time.monotonic() < ends:
                sock.sendall((AGAIN + append) * 10)
                asked += 20
                got = 0
                while got < 20:
                    got += sock.recv(1 << 18).count(b"\n")
            self.served(3)
        finally:
            shut(sock)
        self.run.add("requests of a flood", asked)

    def lock_waiters(self) -> None:
        """Let clients wait for a lock and disconnect; they must not block others afterwards."""
        count = 64 if self.long else 8
        path = f"/srv/{self.run.round}"
        with Fleet(self.gauge.socket) as client, ExitStack() as stack:
            lock = {"file": path, "timeout_ms": 60_000}
            held = client.call_raw("lock.acquire", lock | {"agent_id": "holder"})
            for number in range(count):
                sock = stack.enter_context(dial(self.gauge.socket, self.patience_s))
                ask = lock | {"agent_id": f"waiter{number}", "wait_ms": 60_000}
                sock.sendall(line(request("lock.acquire", ask)) + b"\n")
            self.served(3, at_most=self.slots - count - 1)
            stack.close()
            self.gauge.at_rest(self.sockets + 1, patience_s=self.patience_s)
            client.call_raw("lock.release", {"lock_id": held["id"], "agent_id": "holder"})
            last = lock | {"agent_id": "last", "wait_ms": 10_000}
            held = client.call_raw("lock.acquire", last)
            client.call_raw("lock.release", {"lock_id": held["id"], "agent_id": "last"})
        self.run.add("lock waiters", count)

    # Checks

    def served(self, count: int, at_most: int = 1_000) -> None:
        """Be a good client so many times, each on a separate connection; raises Red."""
        for _ in range(min(count, at_most)):
            with dial(self.gauge.socket, self.patience_s) as sock:
                try:
                    sock.sendall(AGAIN)
                    answer = sock.recv(65_536)
                except OSError as error:
                    raise Red(f"a good client got no answer: {error!r}") from error
                if b'"ok":true' not in answer:
                    raise Red(f"a good client was answered {answer[:200]!r}")

    def closed_by_itself(self, sock: socket.socket, limit: str) -> None:
        """Wait until the daemon names the exceeded limit and closes; raises Red."""
        said = b""
        try:
            while data := sock.recv(65_536):
                said += data
        except OSError as error:
            raise Red(f"{limit} does not end a connection: {error!r}") from error
        if limit.encode() not in said:
            raise Red(f"{limit} was not said: {said[:200]!r}")


KINDS: tuple[Callable[[Trouble], None], ...] = (
    Trouble.half_lines_end,
    Trouble.no_descriptors,
    Trouble.slow_writers,
    Trouble.lazy_readers,
    Trouble.vanishing,
    Trouble.many,
    Trouble.flood,
    Trouble.lock_waiters,
)


def run(run: Run) -> None:
    """Make one kind of trouble in each round, and check what remains of it."""
    bad.allow_descriptors(2_000)
    long = run.judged and not run.planted
    settings = SETTINGS.format(
        line=5_000 if long else 200, reply=10_000 if long else 200, slots=256 if long else 16
    )
    with run.home() as (home, env):
        defect = DEFECTS.get(run.planted or "", "")
        with measured(home, env, settings=settings, defect=defect) as gauge:
            trouble = Trouble(run, gauge)
            for number in run.rounds():
                kind = KINDS[number % len(KINDS)]
                try:
                    _one(trouble, kind, env)
                except (Red, FleetError) as broken:
                    raise Red(f"{kind.__name__}: {broken}") from broken
            gauge.daemon.stop()


def _one(trouble: Trouble, kind: Callable[[Trouble], None], env: dict[str, str]) -> None:
    run, gauge = trouble.run, trouble.gauge
    with _beside(trouble, kind, env) as noticed:
        kind(trouble)
    for each in noticed:
        judge(run, each, "a polite client")
    gauge.at_rest(trouble.sockets, patience_s=trouble.patience_s)
    trouble.served(trouble.slots + 2)
    gauge.at_rest(trouble.sockets, patience_s=trouble.patience_s)
    gauge.well()


@contextmanager
def _beside(
    trouble: Trouble, kind: Callable[[Trouble], None], env: dict[str, str]
) -> Iterator[list[Noticed]]:
    """Run polite clients and a hook client during the block, in the long form."""
    if not trouble.long or kind is Trouble.no_descriptors:
        yield []
        return
    payload = json.dumps({"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "p"})
    with polite(trouble.gauge.socket) as one, polite(trouble.gauge.socket, manner="again") as two:
        hooks = [start_hook("claude", env=env) for _ in range(5)]
        time.sleep(0.3)
        trouble.sockets += 2
        try:
            yield [one, two]
            for hook in hooks:
                hook.communicate(payload.encode(), timeout=60)
                if hook.returncode:
                    raise Red(f"a hook client ended with {hook.returncode}")
        finally:
            trouble.sockets -= 2
            for hook in hooks:
                hook.kill()
                hook.communicate()


CAMPAIGN = Campaign(
    name="clients",
    what="slow, silent, greedy, vanishing and too many clients, and no descriptors left",
    unit="rounds",
    run=run,
    short=len(KINDS),
    long=4 * len(KINDS),
    planted={"no_line_deadline": 1, "no_reply_deadline": 4, "accept_dies": 2, "slot_leak": 1},
)
