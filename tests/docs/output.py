"""Whether a command printed what a page shows; what differs from run to run is left open.

``...`` stands for any number of lines, or for the rest of one. Ids, times, sizes, durations, pids
and versions may differ; an id that the page shows stands for the one that came in its place from
then on, as for a person who types what they saw.
"""

import re

ID = re.compile(r"\b(?:msn|srt|chk|lck|msg|rcv|nte|sub)-[0-9a-f]{8}\b|\bcp_\d{8}T\d{9}Z_\d+\b")
_LOOSE = (
    (r"(?P<id>\b(?:msn|srt|chk|lck|msg|rcv|nte|sub)-[0-9a-f]{8}\b|\bcp_\d{8}T\d{9}Z_\d+\b)", ""),
    (
        r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)",
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z",
    ),
    (r"(?P<ago>just now|\d+ (?:s|min|h|days?) ago)", r"(?:just now|\d+ (?:s|min|h|days?) ago)"),
    (r"(?P<digest>\b[0-9a-f]{64}\b)", r"[0-9a-f]{64}"),
    (r"(?P<size>\b[\d.,]+ (?:B|kB|MB|GB|KiB|MiB)(?!\w))", r"[\d.,]+ (?:B|kB|MB|GB|KiB|MiB)"),
    (r"(?P<duration>\b[\d.]+ ?(?:ms|s)(?!\w))", r"[\d.]+ ?(?:ms|s)"),
    (r"(?P<pid>pid \d+)", r"pid \d+"),
    (r"(?P<version>fleetd \d+\.\d+\.\d+)", r"fleetd \d+\.\d+\.\d+"),
    (r"(?P<home>/home/alice\b)", ""),
    (r"(?P<dots>\.\.\.|…)", ".*"),
    (r"(?P<space> +)", " +"),
)
_PIECE = re.compile("|".join(seen for seen, _ in _LOOSE))
_OPEN = {re.findall(r"<(\w+)>", seen)[0]: wanted for seen, wanted in _LOOSE}


class Shown:
    """What a page has shown so far: which real id stands for which printed one."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._real: dict[str, str] = {}

    def typed(self, text: str) -> str:
        """Return a command with the ids that the page showed replaced by the real ones."""
        return ID.sub(lambda found: self._real.get(found[0], found[0]), text)

    def compare(self, expected: str, printed: str) -> str:
        """Return what is wrong with the output, or nothing; take over the ids in it."""
        groups: dict[str, str] = {}
        lines = [self._pattern(line.rstrip(), groups) for line in expected.splitlines()]
        clean = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
        found = re.fullmatch("".join(lines), clean)
        if not found:
            return f"the page shows:\n{expected}\nbut this was printed:\n{clean}"
        self._real |= {shown: found[group] for shown, group in groups.items()}
        return ""

    def _pattern(self, line: str, groups: dict[str, str]) -> str:
        if line.strip() in ("...", "…"):
            return r"(?:.*\n)*?"
        made, end = "", 0
        for piece in _PIECE.finditer(line):
            made += re.escape(line[end : piece.start()]) + self._loosely(piece, groups)
            end = piece.end()
        return made + re.escape(line[end:]) + r"\n"

    def _loosely(self, piece: re.Match[str], groups: dict[str, str]) -> str:
        kind, text = str(piece.lastgroup), piece[0]
        if kind == "home":
            return re.escape(self._home)
        if kind != "id":
            return _OPEN[kind]
        if text in self._real:
            return re.escape(self._real[text])
        if text in groups:
            return f"(?P={groups[text]})"
        groups[text] = f"id{len(groups)}"
        return f"(?P<{groups[text]}>{ID.pattern})"
