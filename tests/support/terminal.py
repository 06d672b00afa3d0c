"""A real terminal for a program: a pty, and the screen that a user would see."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Any

import pyte
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PATIENCE_S = 30.0
PAUSE_S = 0.05
KEYS = {
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "enter": "\r",
    "escape": "\x1b",
    "tab": "\t",
    "backspace": "\x7f",
    "ctrl+c": "\x03",
}
# A drawing is self-contained: it loads no external fonts.
DRAWING = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
THEME = TerminalTheme(
    (24, 26, 31),
    (214, 217, 223),
    [
        *((40, 44, 52), (224, 108, 117), (152, 195, 121), (229, 192, 123)),
        *((97, 175, 239), (198, 120, 221), (86, 182, 194), (171, 178, 191)),
    ],
    [
        *((92, 99, 112), (232, 131, 138), (170, 210, 142), (240, 207, 145)),
        *((130, 195, 245), (213, 148, 232), (110, 200, 210), (230, 233, 240)),
    ],
)


class Terminal:
    """A program and the screen it writes to."""

    def __init__(self, columns: int, rows: int, process: "subprocess.Popen[bytes]", fd: int):
        self.screen = pyte.Screen(columns, rows)
        self.process = process
        # The output of the program with its times, for a replay.
        self.written: list[tuple[float, bytes]] = []
        self._stream = pyte.ByteStream(self.screen)
        self._fd = fd
        self._started = time.monotonic()

    def lines(self) -> list[str]:
        """Return the lines on the screen, without trailing spaces."""
        return [line.rstrip() for line in self.screen.display]

    def text(self) -> str:
        """Return the content of the screen as one text."""
        return "\n".join(self.lines())

    def press(self, *keys: str) -> None:
        """Press keys by name (``down``, ``enter``, ``ctrl+c``) or letter."""
        for key in keys:
            os.write(self._fd, KEYS.get(key, key).encode())

    def resize(self, columns: int, rows: int) -> None:
        """Resize the terminal, as a user does who drags its corner."""
        self.screen.resize(rows, columns)
        _set_size(self._fd, columns, rows)
        self.process.send_signal(signal.SIGWINCH)

    def until(self, seen: str | Callable[[str], Any], *, seconds: float = PATIENCE_S) -> str:
        """Wait until the screen shows a text or satisfies a function; return its text."""
        deadline = time.monotonic() + seconds
        while not (seen in self.text() if isinstance(seen, str) else seen(self.text())):
            left = deadline - time.monotonic()
            assert left > 0, f"not seen: {seen!r}; the screen shows:\n{self.text()}"
            ended = self._read(min(left, PAUSE_S))
            shown = seen in self.text() if isinstance(seen, str) else seen(self.text())
            assert shown or not ended, f"ended before {seen!r} was seen:\n{self.text()}"
        return self.text()

    def rest(self, seconds: float = PATIENCE_S) -> int:
        """Read on until the program ends; return its exit status."""
        deadline = time.monotonic() + seconds
        while not self._read(PAUSE_S):
            assert time.monotonic() < deadline, f"it goes on; the screen shows:\n{self.text()}"
        return self.process.wait(timeout=max(0.1, deadline - time.monotonic()))

    def drawing(self, title: str) -> str:
        """Return the content of the screen as SVG."""
        console = Console(
            width=self.screen.columns,
            file=StringIO(),
            record=True,
            force_terminal=True,
            color_system="truecolor",
        )
        for row in range(self.screen.lines):
            console.print(self._painted(row), no_wrap=True, overflow="crop")
        return console.export_svg(title=title, theme=THEME, code_format=DRAWING, unique_id="screen")

    def _painted(self, row: int) -> Text:
        text = Text()
        cells = [self.screen.buffer[row][column] for column in range(self.screen.columns)]
        # Merge neighbours of the same style: a drawing of 200 columns is a quarter as large.
        for style, alike in groupby(cells, key=_style):
            text.append("".join(cell.data for cell in alike), style)
        return text

    def _read(self, seconds: float) -> bool:
        """Read new output; return whether the program closed the terminal."""
        if not select.select([self._fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._fd, 65_536)
        except OSError:  # on Linux: the other side is closed
            return True
        self.written.append((time.monotonic() - self._started, data))
        self._stream.feed(data)
        return not data


def _style(cell: pyte.screens.Char) -> Style:
    return Style(
        color=_colour(cell.fg),
        bgcolor=_colour(cell.bg),
        bold=cell.bold,
        italic=cell.italics,
        underline=cell.underscore,
        reverse=cell.reverse,
        strike=cell.strikethrough,
    )


def _colour(name: str) -> str:
    """Return rich's name of a colour from pyte's, which calls yellow brown."""
    if len(name) == 6 and all(digit in "0123456789abcdef" for digit in name.lower()):
        return f"#{name}"
    bright = name.startswith("bright")
    plain = name.removeprefix("bright").replace("brown", "yellow")
    return f"bright_{plain}" if bright else plain


def _set_size(fd: int, columns: int, rows: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextmanager
def terminal(
    command: Sequence[str], *, env: dict[str, str], cwd: Path, columns: int = 80, rows: int = 24
) -> Iterator[Terminal]:
    """Run a program in a terminal of this size; end it when the block ends."""
    ours, theirs = pty.openpty()
    try:
        _set_size(theirs, columns, rows)
        process = subprocess.Popen(
            command,
            env={"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8", **env},
            cwd=cwd,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
    finally:
        os.close(theirs)
    try:
        yield Terminal(columns, rows, process, ours)
    finally:
        _end(process)
        os.close(ours)


def _take_terminal() -> None:
    """Make the terminal the process's own; Ctrl+C ends it, however the tests are run."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
