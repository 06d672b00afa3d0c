"""What every test may use: a fleet in this process, a daemon in its own, and clients of it."""

import io
import logging
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import coverage
import pytest

from fleetctl.client import sync as fleetctl_client
from fleetd.domain.core.context import BatchSizes
from fleetd.domain.redaction.redact import redact
from fleetd.host import trace
from fleetd.store.sqlite import page_checksums
from tests.support import shared_store
from tests.support.fleet import Fleet, opened
from tests.support.homes import daemon_in, entered
from tests.support.processes import Daemon, agent_process

# Whoever writes into a database without it leaves pages that look damaged; below all from here on.
page_checksums.available()

# Whoever runs the tests in the background has SIGINT ignored, and so would every child.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Measuring doubles the time of a test. What these run others measure too.
UNMEASURED = {
    *("access", "benchmarks", "chaos", "docs", "journeys", "property", "upgrades", "web"),
    *("test_any_plan.py", "test_demo.py", "test_files_converge.py", "test_hooks_text.py"),
    *("test_layers.py", "test_legacy_property.py", "test_offline_restore.py"),
    "test_redaction_of_real_text.py",
}
# A process is measured from its first import on, which takes longer than most of what is asked of
# it. Some code runs only in processes that these start.
MEASURED_CHILDREN = {
    *("daemon", "mcp", "test_attention.py", "test_backup_restore.py", "test_completions.py"),
    *("test_demo.py", "test_guard.py", "test_hook_client.py"),
}

# Of these, how the program itself starts is part of what is tested.
COLD = {"daemon", "upgrades", "test_files.py"}

if shared_store.SERVER:

    def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what is about SQLite's own file."""
        left_out = [item for item in items if item.get_closest_marker("sqlite_only")]
        items[:] = [item for item in items if not item.get_closest_marker("sqlite_only")]
        config.hook.pytest_deselected(items=left_out)

    @pytest.fixture(autouse=True)
    def _stores() -> Iterator[None]:
        """Give back what was opened once all that may use it has ended."""
        yield
        shared_store.release()


def _below_here(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return request.path.relative_to(Path(__file__).parent).parts


@pytest.fixture(autouse=True, scope="module")
def _unmeasured(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run some tests, and start most processes, without the measuring of coverage."""
    parts = _below_here(request)
    measuring = coverage.Coverage.current() if UNMEASURED.intersection(parts) else None
    with pytest.MonkeyPatch.context() as patch:
        if not MEASURED_CHILDREN.intersection(parts):
            patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        if measuring is not None:
            measuring.stop()
        yield
        if measuring is not None:
            measuring.start()


@pytest.fixture
def batches() -> BatchSizes:
    """Return how large the batches of ``fleet`` are; tests put small ones in its place."""
    return BatchSizes()


@pytest.fixture
async def fleet(tmp_path: Path, batches: BatchSizes) -> AsyncIterator[Fleet]:
    """Open an engine on real files, with a clock that the test sets."""
    async with opened(tmp_path, batches=batches) as running:
        yield running


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a home directory where nothing is; the current directory is a project in it."""
    with entered(monkeypatch) as directory:
        yield directory


@pytest.fixture
def daemon(home: Path, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """Run a daemon; it must end with status 0."""
    with daemon_in(home, warm=not COLD.intersection(_below_here(request))) as running:
        yield running


@pytest.fixture
def connect(daemon: Daemon) -> Iterator[Callable[[], fleetctl_client.Fleet]]:
    """Return a function that opens one more connection to the daemon."""
    clients: list[fleetctl_client.Fleet] = []

    def client() -> fleetctl_client.Fleet:
        clients.append(fleetctl_client.Fleet(daemon.socket))
        return clients[-1]

    yield client
    for each in clients:
        each.close()


@pytest.fixture
def mortal() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Return a function that starts a process which may be killed; none outlives the test."""
    processes: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        processes.append(agent_process())
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    """Return what the log of this process writes, from INFO on."""
    root = logging.getLogger()
    before, level, raising = root.handlers[:], root.level, logging.raiseExceptions
    own_level = logging.getLogger("fleetd").level
    stream = io.StringIO()
    trace.configure("INFO", redact, stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)
    logging.getLogger("fleetd").setLevel(own_level)
    logging.raiseExceptions = raising
