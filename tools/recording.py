"""``python -m tools.recording``: docs/recovery.svg, the replay of a session in a real terminal.

A shell runs in a pty; the screen after each command is one frame of the drawing. The frames change
by CSS alone. A user who prefers reduced motion sees the frame with the beginning of the briefing.
"""

import tempfile
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path

import pyte

from tests.docs.machine import environment_of
from tests.support.terminal import THEME, Terminal, terminal

PAGE = Path(__file__).resolve().parent.parent / "docs" / "recovery.svg"
COLUMNS, ROWS = 94, 30
PROMPT = "~/project $ "
# The typed commands, and for how many seconds each result is shown.
SESSION = (
    ('fleetctl mission create "Add login" --sortie "The form" --sortie "Its tests"', 1.5),
    ("fleetctl mission start", 1.0),
    ("fleetctl agent start alice", 1.0),
    ("fleetctl lock acquire src/form.py --agent alice", 1.5),
    ('fleetctl agent note alice --last-action "Drew the form" --next-step "Validate it"', 1.5),
    ("fleetctl checkpoint", 2.5),
    ("# alice's context window is full. It is compacted; she forgets it all.", 2.5),
)
LAST = "fleetctl resume --agent alice --yes"
# How long the first and the last lines are shown, and each step of the scrolling between.
READING_S, SCROLLING_S, STEP = 7.0, 0.12, 2
WHOLE_ANSWER = 60
TYPING_S = 1.0
CELL, LINE, MARGIN, BAR = 8.4, 18, 14, 34
Frame = tuple[list[str], float]


def main() -> None:
    """Record the session and write the drawing."""
    frames = list(_played())
    PAGE.write_text(_drawing(frames), "utf-8")
    print(f"{PAGE}: {len(frames)} frames, {PAGE.stat().st_size:,} bytes")


def _played() -> Iterator[Frame]:
    with tempfile.TemporaryDirectory(prefix="fleet-") as directory:
        home = Path(directory).resolve()
        env = environment_of(home) | {"PS1": rf"\[\e[1;34m\]{PROMPT}\[\e[0m\]", "HISTFILE": ""}
        command = ["bash", "--norc", "--noprofile"]
        project = home / "home" / "project"
        with terminal(command, env=env, cwd=project, columns=COLUMNS, rows=ROWS) as it:
            _type(it, "git init -q -b main . && fleetctl daemon start && clear")
            try:
                for line, seconds in SESSION:
                    yield _typed(it, home, line)
                    _type(it, "")
                    yield _rows(it, home), seconds
                yield from _answer(it, home)
            finally:
                _type(it, "fleetctl daemon stop")


def _answer(it: Terminal, home: Path) -> Iterator[Frame]:
    """Yield the output of the last command, scrolled down step by step."""
    _type(it, "clear")
    yield _typed(it, home, LAST)
    it.resize(COLUMNS, WHOLE_ANSWER)
    _type(it, "")
    rows = _rows(it, home)
    end = max(n for n, row in enumerate(rows) if row) + 1
    for first in range(0, end - ROWS + STEP, STEP):
        still = first == 0 or first + STEP > end - ROWS + 1
        yield rows[first : first + ROWS], READING_S if still else SCROLLING_S


def _typed(it: Terminal, home: Path, line: str) -> Frame:
    """Type a line, and return the screen before Enter."""
    _press(it, line)
    return _rows(it, home), TYPING_S


def _type(it: Terminal, line: str) -> None:
    """Type a line, or press Enter after it, and wait for the next prompt."""
    if line:
        it.until(PROMPT.strip())
        _press(it, line)
    it.press("enter")
    it.until(
        lambda text: text.rstrip().endswith(f"\n{PROMPT.strip()}") or text.strip() == PROMPT.strip()
    )


def _press(it: Terminal, line: str) -> None:
    """Press a line's keys; wait until they show, so that no old prompt counts as the next one."""
    it.press(line)
    it.until(lambda text: line.split()[-1] in text.rstrip().splitlines()[-1])


def _rows(it: Terminal, home: Path) -> list[str]:
    """Return the screen's rows as SVG."""
    return [_row(it.screen, row, home) for row in range(it.screen.lines)]


def _row(screen: pyte.Screen, row: int, home: Path) -> str:
    cells = [screen.buffer[row][column] for column in range(screen.columns)]
    drawn = ""
    for style, run in groupby(cells, key=lambda cell: (cell.fg, cell.bold)):
        text = "".join(cell.data for cell in run)
        drawn += _run(text, *style)
    return drawn.replace(str(home / "home"), "/home/alice").rstrip()


def _run(text: str, colour: str, bold: bool) -> str:
    escaped = escape(text, quote=False)
    names = " ".join(filter(None, [f"c-{colour}" if colour != "default" else "", "b" * bold]))
    return f'<tspan class="{names}">{escaped}</tspan>' if names and text.strip() else escaped


def _drawing(frames: list[Frame]) -> str:
    width, height = round(COLUMNS * CELL + 2 * MARGIN), ROWS * LINE + BAR + MARGIN
    whole = sum(seconds for _, seconds in frames)
    rules, groups, at = [], [], 0.0
    best = next(n for n, (_, seconds) in enumerate(frames) if seconds == READING_S)
    for number, (rows, seconds) in enumerate(frames):
        begin, end = 100 * at / whole, 100 * (at + seconds) / whole
        rules.append(_keyframes(number, begin, end))
        groups.append(_group(number, rows, still=number == best))
        at += seconds
    style = STYLE.replace("FRAMES", "\n".join(rules)).replace("WHOLE", f"{whole:g}s")
    dots = "".join(
        f'<circle cx="{MARGIN + 8 + 20 * n}" cy="17" r="6" fill="{colour}"/>'
        for n, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{LABEL}">\n<style>{style}</style>\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="{_hex(THEME.background_color)}"/>'
        f"{dots}\n" + "\n".join(groups) + "\n</svg>\n"
    )


def _keyframes(number: int, begin: float, end: float) -> str:
    hidden, shown = "{visibility:hidden}", "{visibility:visible}"
    before = f"0%{hidden}" if begin else ""
    after = f"{end:.2f}%{hidden}" if end < 100 else ""
    steps = f"{before}{begin:.2f}%{shown}{after}"
    return f"@keyframes k{number}{{{steps}}}.f{number}{{animation-name:k{number}}}"


def _group(number: int, rows: list[str], *, still: bool) -> str:
    lines = "".join(
        f'<text x="{MARGIN}" y="{BAR + LINE * n + 14}">{row}</text>'
        for n, row in enumerate(rows)
        if row
    )
    return f'<g class="f f{number}{" still" * still}">{lines}</g>'


def _hex(colour: tuple[int, int, int]) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)


def _colours() -> str:
    names = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")
    ansi = [THEME.ansi_colors[number] for number in range(16)]
    plain = {f"c-{name}": ansi[n] for n, name in enumerate(names)}
    bright = {f"c-bright{name}": ansi[n + 8] for n, name in enumerate(names)}
    return "".join(f".{name}{{fill:{_hex(colour)}}}" for name, colour in (plain | bright).items())


LABEL = "A mission is made, its agent forgets everything, and fleetctl resume brings it back"
STYLE = f"""
text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
fill:{_hex(THEME.foreground_color)};white-space:pre}}
.b{{font-weight:bold}}{_colours()}
.f{{visibility:hidden}}.still{{visibility:visible}}
@media (prefers-reduced-motion: no-preference){{
.f{{animation:WHOLE step-end infinite}}
FRAMES
}}
"""

if __name__ == "__main__":
    main()
