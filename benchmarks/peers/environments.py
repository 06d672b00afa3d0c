"""The environments of peers, below ``.bench/``, and their creation; never our environment."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
ROOT = HERE.parents[1]
PLACE = ROOT / ".bench"
INSTALL_S = 300


class Peer(msgspec.Struct, frozen=True):
    """A foreign program: its name in the table, its place, and its command."""

    name: str
    directory: str
    requirements: str | None
    program: str

    @property
    def place(self) -> Path:
        """The directory of its environment."""
        return PLACE / self.directory

    def command(self) -> list[str]:
        """Return the command that starts it."""
        if self.program.endswith(".mjs"):
            return ["node", str(self.place / self.program)]
        own = self.requirements is None
        python = sys.executable if own else str(self.place / "bin" / "python")
        return [python, "-m", f"{__package__}.programs.{self.program}"]

    def missing(self) -> str | None:
        """Return why it cannot be measured here, None when it can."""
        if self.requirements is None or (self.place / _MADE).is_file():
            return None
        failed = self.place / _FAILED
        return failed.read_text() if failed.is_file() else "not installed: `make bench` does that"


LANGGRAPH = Peer(
    "LangGraph SqliteSaver", "langgraph", "requirements-langgraph.txt", "langgraph_saver"
)
DBOS = Peer("DBOS with SQLite", "dbos", "requirements-dbos.txt", "dbos_sqlite")
SWARM_MAIL = Peer("swarm-mail", "swarm-mail", "requirements-swarm-mail.json", "swarm_mail.mjs")
JSONRPCSERVER = Peer("jsonrpcserver over trio", "", None, "jsonrpcserver_trio")
PEERS = (LANGGRAPH, DBOS, SWARM_MAIL, JSONRPCSERVER)

_MADE = ".made"
_FAILED = ".failed"


def make(peer: Peer) -> str | None:
    """Create a peer's environment unless it exists; return the error, else None."""
    if peer.requirements is None:
        return None
    wanted = HERE / peer.requirements
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()
    made = peer.place / _MADE
    if made.is_file() and made.read_text() == digest:
        _lay_program(peer)
        return None
    shutil.rmtree(peer.place, ignore_errors=True)
    peer.place.mkdir(parents=True)
    try:
        if wanted.suffix == ".json":
            _install_node(peer, wanted)
        else:
            _install_python(peer, wanted)
    except (OSError, subprocess.SubprocessError) as error:
        why = _reason(error)
        (peer.place / _FAILED).write_text(why)
        return why
    _lay_program(peer)
    made.write_text(digest)
    return None


def _install_python(peer: Peer, wanted: Path) -> None:
    python = str(peer.place / "bin" / "python")
    _run([sys.executable, "-m", "venv", str(peer.place)])
    how = ["--quiet", "--disable-pip-version-check", "--retries=1"]
    _run([python, "-m", "pip", "install", *how, "--requirement", str(wanted)])


def _install_node(peer: Peer, wanted: Path) -> None:
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            raise FileNotFoundError(f"there is no {tool} here")
    shutil.copyfile(wanted, peer.place / "package.json")
    how = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1"]
    _run(["npm", "install", *how, "--prefix", str(peer.place)])


def _lay_program(peer: Peer) -> None:
    """Copy a module to where it finds its imports: Node searches only beside the file."""
    if peer.program.endswith(".mjs"):
        shutil.copyfile(PROGRAMS / peer.program, peer.place / peer.program)


def _run(command: list[str]) -> None:
    subprocess.run(
        command,
        check=True,
        timeout=INSTALL_S,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def _reason(error: Exception) -> str:
    """Return the line with the reason: npm prints it first, pip last."""
    stderr = error.stderr if isinstance(error, subprocess.CalledProcessError) else None
    lines = [line.strip() for line in (stderr or "").splitlines() if line.strip()] or [str(error)]
    return f"not installed: {lines[0] if lines[0].startswith('npm') else lines[-1]}"
