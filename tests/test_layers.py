"""What import-linter cannot see: which calls a rule makes, circles, who knows which library."""

import ast
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# What reads clocks, files, threads or the database has no place in a rule.
NOT_IN_DOMAIN = {
    *("trio", "threading", "time", "apsw", "sqlite3", "subprocess", "socket", "shutil"),
    *("tempfile", "pathlib", "io", "glob", "asyncio", "logging"),
}
PURE_OS = {"os.path.normpath", "os.path.join", "os.path.isabs", "os.path.basename"}
PROTOCOL_MAY_IMPORT = {"msgspec"}


class ParsedModule:
    """A source file, its dotted name and what it imports."""

    def __init__(self, root: Path, path: Path) -> None:
        parts = path.relative_to(root).with_suffix("").parts
        self.package = parts[:-1]
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self.text = path.read_text("utf-8")
        self.tree = ast.parse(self.text, str(path))
        self.imports = set(self._imports(root))

    def _imports(self, root: Path) -> Iterator[str]:
        """Yield the dotted names imported anywhere in the file, inside functions too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = self.base(node)
                yield from (f"{base}.{alias.name}" for alias in node.names)

    def base(self, node: ast.ImportFrom) -> str:
        """The dotted name of what an import takes names from."""
        above = self.package[: len(self.package) - node.level + 1] if node.level else ()
        return ".".join((*above, *(node.module or "").split("."))).strip(".")


read = cache(ParsedModule)


def modules(root: Path, *packages: str) -> list[ParsedModule]:
    return [
        read(root, path) for package in packages for path in sorted((root / package).rglob("*.py"))
    ]


def within(name: str, allowed: set[str]) -> bool:
    return any(name == entry or name.startswith(f"{entry}.") for entry in allowed)


def impure_rules(root: Path) -> list[str]:
    found = []
    for module in modules(root, "fleetd/domain"):
        found += [
            f"{module.name} imports {name}"
            for name in sorted(module.imports)
            if within(name, NOT_IN_DOMAIN)
            or (name.startswith("os.") and name not in {"os.path", *PURE_OS})
        ]
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute):
                text = ast.unparse(node)
                pure = any(allowed.startswith(text) for allowed in PURE_OS)
                if text.startswith("os.") and not pure:
                    found.append(f"{module.name} uses {text}")
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "open":
                found.append(f"{module.name} opens a file")
    return found


def foreign_imports_of_protocol(root: Path) -> list[str]:
    import sys

    allowed = set(sys.stdlib_module_names) | PROTOCOL_MAY_IMPORT | {"fleetd.protocol"}
    return [
        f"{module.name} imports {name}"
        for module in modules(root, "fleetd/protocol")
        for name in sorted(module.imports)
        if not within(name, allowed)
    ]


def importers(root: Path, library: str) -> set[str]:
    return {
        module.name
        for module in modules(root, "fleetd", "fleetctl")
        if any(within(name, {library}) for name in module.imports)
    }


def at_import(module: ParsedModule) -> Iterator[ast.ImportFrom]:
    """The imports that happen with a module's own, not later and not for types only."""
    waiting: list[ast.AST] = list(module.tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom):
            yield node
        elif isinstance(node, ast.Try) or (
            isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING"
        ):
            waiting += ast.iter_child_nodes(node)


def circles(root: Path) -> list[str]:
    """Modules that need each other before either is there: which comes first decides."""
    found = {module.name: module for module in modules(root, "fleetd", "fleetctl")}
    needs = {
        name: {
            each if (each := f"{base}.{alias.name}".strip(".")) in found else base
            for node in at_import(module)
            for base in [module.base(node)]
            for alias in node.names
        }
        & found.keys()
        for name, module in found.items()
    }
    # Whoever needs nobody that is left, or whom nobody needs, is taken away; what stays goes round.
    while free := {
        name
        for name, others in needs.items()
        if not others & needs.keys() or name not in set().union(*needs.values())
    }:
        needs = {name: others for name, others in needs.items() if name not in free}
    return [f"{name} needs {sorted(others & needs.keys())}" for name, others in needs.items()]


def badly_kept(root: Path) -> list[str]:
    return [
        f"{module.name} does not say what it is for"
        for module in modules(root, "fleetd", "fleetctl")
        if not ast.get_docstring(module.tree)
    ]


def test_every_module_can_be_the_first_that_is_imported() -> None:
    assert circles(ROOT) == []


def test_the_rules_know_no_clock_no_file_no_thread_and_no_database() -> None:
    assert impure_rules(ROOT) == []


def test_the_protocol_needs_the_standard_library_and_msgspec_only() -> None:
    assert foreign_imports_of_protocol(ROOT) == []


def test_one_file_knows_the_rpc_library() -> None:
    assert importers(ROOT, "jsonrpcserver") == {"fleetd.server.rpc"}


def test_only_the_server_of_tools_knows_the_package_of_its_protocol() -> None:
    found = importers(ROOT, "mcp") | importers(ROOT, "mcp_types") | importers(ROOT, "anyio")
    assert found == {"fleetctl.mcp_server.server"}


def test_only_the_screens_know_the_library_that_draws_them() -> None:
    screens = {f"fleetctl.tui.{name}" for name in ("app", "screens", "widgets")}
    assert importers(ROOT, "textual") == screens
    assert importers(ROOT, "rich") == {"fleetctl.tui.cells", "fleetctl.tui.widgets"}


def test_only_the_store_knows_the_database_library() -> None:
    found = importers(ROOT, "apsw")
    assert found
    assert [name for name in found if not within(name, {"fleetd.store"})] == []


def test_every_module_says_what_it_is_for() -> None:
    assert badly_kept(ROOT) == []


PLANTED = {
    "impure_rules": [
        ("fleetd/domain/bad.py", "import time"),
        ("fleetd/domain/bad.py", "from threading import Lock"),
        ("fleetd/domain/bad.py", "import os\nos.unlink('x')"),
        ("fleetd/domain/bad.py", "from os import rename"),
        ("fleetd/domain/bad.py", "import os.path\nos.path.exists('x')"),
        ("fleetd/domain/bad.py", "open('x')"),
        ("fleetd/domain/bad.py", "import trio.lowlevel"),
    ],
    "foreign_imports_of_protocol": [
        ("fleetd/protocol/bad.py", "import trio"),
        ("fleetd/protocol/requests/bad.py", "from ...host.paths import APP"),
    ],
    "badly_kept": [
        ("fleetd/store/bad.py", "x = 1"),
    ],
}


@pytest.mark.parametrize(
    ("check", "path", "source"),
    [(check, *planted) for check, plants in PLANTED.items() for planted in plants],
)
def test_a_planted_offence_is_found(tmp_path: Path, check: str, path: str, source: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(source)
    found = globals()[check](tmp_path)
    assert len(found) == 1
    assert found[0].startswith(path.removesuffix(".py").replace("/", "."))


def test_what_is_allowed_is_not_called_an_offence(tmp_path: Path) -> None:
    file = tmp_path / "fleetd/domain/good.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        textwrap.dedent('''
            """Pure."""
            import os.path
            from .. import config
            from ..protocol.errors import FleetError
            from .tx import Tx
            here = os.path.normpath("a//b")
        ''')
    )
    for check in PLANTED:
        assert globals()[check](tmp_path) == []
