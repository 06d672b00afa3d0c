"""The hook client: sends a CLI's event to fleetd, else to the spool; imports C modules only."""

import _signal  # type: ignore[import-not-found]
import _socket
import posix
import pwd
import sys
import time
from _json import encode_basestring, scanstring

WAIT_S, COMPACTION_WAIT_S, LAST_S = 0.9, 4.0, 1.0
LINE_BYTES, STDIN_BYTES, SPOOL_BYTES, SPOOL_FILES = 1 << 24, 1 << 25, 16_000_000, 1_000
ENV = """FLEET_AGENT_ID FLEET_MISSION_ID COPILOT_CLI CURSOR_VERSION FACTORY_PROJECT_DIR
GEMINI_SESSION_ID GROK_HOOK_EVENT QWEN_PROJECT_DIR"""
FRAME = """{"jsonrpc":"2.0","method":"hook.deliver","params":{"delivery_id":"%s","harness":%s,\
"args":[%s],"env":{%s},"begun_us":%d,"payload":%s},"id":1}\n"""


def main(words: list[str]) -> None:
    """Deliver the event from stdin and end the process."""
    begun_us, event, words = time.monotonic_ns() // 1_000, bytearray(), words or ["generic"]
    name = f"{time.time_ns() // 1_000_000:013}-{posix.urandom(16).hex()}"
    try:
        try:
            for number in (_signal.SIGALRM, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGINT):
                _signal.signal(number, _signal.default_int_handler)  # raises, whatever goes on
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGALRM,))
            _signal.setitimer(_signal.ITIMER_REAL, WAIT_S)
            while chunk := posix.read(0, 1 << 16):
                # Unread data would block its writer.
                event += chunk if len(event) < STDIN_BYTES else b""
                head = {*words, *event[:4_096].decode(errors="replace").split('"')}
                if len(event) == len(chunk) and head & {"PreCompact", "preCompact", "PreCompress"}:
                    _signal.setitimer(_signal.ITIMER_REAL, COMPACTION_WAIT_S)
            if len(event) < LINE_BYTES:
                return exchange(frame(name, words, begun_us, event))
            leave(name, words, begun_us, event)
        except BaseException:  # noqa: BLE001 - timeout, signal or no daemon: spool it
            leave(name, words, begun_us, event)
    except BaseException:  # noqa: BLE001 - another signal before leave() blocked it
        leave(name, words, begun_us, event)
    finally:
        posix._exit(0)  # noqa: SLF001


def leave(name: str, words: list[str], begun_us: int, event: bytearray) -> None:
    """Spool the event; only the last alarm can interrupt it."""
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals() - {_signal.SIGALRM})
    _signal.setitimer(_signal.ITIMER_REAL, LAST_S)
    if "no-spool" not in words:
        spool(name, frame(name, words, begun_us, event))


def frame(name: str, words: list[str], begun_us: int, event: bytearray) -> bytes:
    """Return the line for the daemon; the payload is a string in it, whatever its format."""
    known = {k: posix.environ.get(k.encode(), b"").decode(errors="replace") for k in ENV.split()}
    env = ",".join(f'"{k}":{encode_basestring(v)}' for k, v in known.items() if v)
    text, harness, *args = map(encode_basestring, (event.decode(errors="replace"), *words))
    values = name[-32:], harness, ",".join(args), env, begun_us, text
    return (FRAME % values).encode(errors="replace")


def exchange(line: bytes) -> None:
    """Send the line and print the daemon's answer; raises if it fails or the daemon is foreign."""
    (sock := _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)).connect(places()[0])
    peer = sock.getsockopt(*((0, 1, 76) if sys.platform == "darwin" else (1, 17, 12)))  # PEERCRED
    if int.from_bytes(peer[4:8], sys.byteorder) != posix.getuid() or len(line) > LINE_BYTES:
        raise PermissionError
    sock.sendall(line)
    sock.shutdown(_socket.SHUT_WR)  # so that the daemon closes when it has answered
    reply = b""
    while reply[-1:] != b"\n" and (more := sock.recv(1 << 16)):  # without waiting for the close
        reply += more
    text = reply.decode()
    answer = scanstring(text, text.index('"stdout":"') + 10)[0]
    if answer and sys.stdout:  # if it is closed, descriptor 1 is the socket
        posix.write(1, answer.encode(errors="replace"))


def places() -> tuple[bytes, bytes]:
    """Return the paths of the socket and the spool, as ``fleetd.host.paths`` does."""
    env = {name: value for name, value in posix.environ.items() if value[:1] == b"/"}
    home = env.get(b"HOME") or pwd.getpwuid(posix.getuid()).pw_dir.encode()
    below = b"/Library/Application Support" if sys.platform == "darwin" else b"/.local/state"
    state, user = env.get(b"XDG_STATE_HOME") or home + below, b"/run/user/%d" % posix.getuid()
    run = env.get(b"XDG_RUNTIME_DIR") or (user if posix.access(user, posix.W_OK) else state)
    sock = posix.environ.get(b"FLEET_SOCKET") or run + b"/fleet/fleetd.sock"
    user, slash, rest = sock.partition(b"/")
    own = pwd.getpwuid(posix.getuid()) if user[:1] == b"~" else None
    homes = {b"~": home, b"~" + own.pw_name.encode(): own.pw_dir.encode()} if own else {}
    return homes.get(user, user) + slash + rest, state + b"/fleet/spool"


def spool(name: str, line: bytes) -> None:
    """Spool the line without a sync: a power cut ends agents too, and nobody waits."""
    posix.umask(0o077)
    for part in (b"/", *filter(None, places()[1].split(b"/"))):
        try:  # noqa: SIM105
            posix.mkdir(part)
        except OSError:  # it is there already, as a rule
            pass
        posix.chdir(part)
    try:
        with open(name + ".part", "xb") as file:  # noqa: PTH123
            file.write(line)
        posix.rename(name + ".part", name + ".json")
    except BaseException:  # noqa: BLE001 - half a file is useless and takes others' room
        posix.unlink(name + ".part")
    files = size = 0
    for each in sorted(posix.listdir("."), reverse=True):
        files, size = files + 1, size + posix.lstat(each).st_size
        if not each.startswith(name) and (files > SPOOL_FILES or size > SPOOL_BYTES):
            posix.unlink(each)
