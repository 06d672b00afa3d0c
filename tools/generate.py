"""``make generate``: write the files that are generated from the code; must not know any content.

A generator returns texts by their paths in the repository. It is deterministic, so that a test can
compare its output with the checked-in files.
"""

import argparse
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

Generator = Callable[[], Mapping[str, str]]


def _made_by(module: str) -> Generator:
    """Return the generator of a module, which is imported after earlier generators have written."""
    return lambda: dict(importlib.import_module(f".{module}", __package__).files())


# By name, to run only one of them; the client's tables come first, because others import them.
GENERATORS: dict[str, Generator] = {
    "client": _made_by("client_methods"),
    "completions": _made_by("completions"),
    "commands": _made_by("commands"),
    "manual": _made_by("manual"),
    "events": _made_by("events_page"),
    "hooks": _made_by("hooks_page"),
    "mcp": _made_by("mcp_page"),
    "reference": _made_by("reference"),
    "schemas": _made_by("schemas"),
    "web": _made_by("web_events"),
}
HOW_TO_RENEW = "run: make generate"


def outdated(name: str, root: Path = ROOT) -> dict[str, str]:
    """Return the outdated files of a generator, with the text they should have.

    A missing file is outdated too.
    """
    made = GENERATORS[name]()
    return {path: text for path, text in made.items() if _text(root / path) != text}


def _text(file: Path) -> str | None:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what is outdated, or only name it; return the exit status."""
    parser = argparse.ArgumentParser(prog="tools.generate", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which (default: all)")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when outdated")
    options = parser.parse_args(arguments)
    stale = False
    for name in options.names or GENERATORS:
        for path, text in outdated(name).items():
            stale = True
            print(path)
            if not options.check:
                (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
                (ROOT / path).write_text(text, "utf-8")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
