"""The extra ``mcp``: whether it is installed, and which command installs it."""

import importlib.util
import json
import shlex
import sys
from importlib import metadata
from pathlib import Path

PACKAGE = "fleetd"


def is_installed() -> bool:
    """Return whether the server can run."""
    return importlib.util.find_spec("mcp") is not None


def hint() -> str:
    """Return what to do if the server cannot run."""
    return f"Install it with: {install_command()}"


def installer(prefix: Path) -> str:
    """Return the installer of fleetctl: ``uv tool``, ``pipx``, ``uv pip`` or ``pip``."""
    if (prefix / "uv-receipt.toml").is_file():
        return "uv tool"
    if (prefix / "pipx_metadata.json").is_file():
        return "pipx"
    return "uv pip" if importlib.util.find_spec("pip") is None else "pip"


def install_command(prefix: Path | None = None, wanted: str | None = None) -> str:
    """Return the command that installs the extra, with the installer of fleetctl itself.

    ``wanted`` is the requirement of another extra.
    """
    prefix = Path(sys.prefix) if prefix is None else prefix
    wanted = shlex.quote(wanted or requirement())
    by = installer(prefix)
    if by == "uv tool":
        return f"uv tool install --with {wanted} {shlex.quote(_source(prefix))}"
    if by == "pipx":
        return f"pipx inject {shlex.quote(prefix.name)} {wanted}"
    python = shlex.quote(sys.executable or "python3")
    if by == "uv pip":
        return f"uv pip install --python {python} {wanted}"
    return f"{python} -m pip install {wanted}"


def requirement(extra: str = "mcp", package: str = "mcp", otherwise: str = "mcp>=2.3") -> str:
    """Return what fleetd's own metadata asks for under an extra, ``otherwise`` in a checkout."""
    try:
        known = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:  # it runs from a checkout
        known = []
    for each in known:
        name, _, marker = each.partition(";")
        of_extra = f'extra == "{extra}"' in marker.replace("'", '"')
        if of_extra and name.strip().startswith(package):
            return name.strip().replace(" ", "")
    return otherwise


def _source(prefix: Path) -> str:
    """Return where a uv tool was installed from: a directory, a wheel, or its name."""
    # Imported here: most users of this module never need it.
    import tomllib

    try:
        receipt = tomllib.loads((prefix / "uv-receipt.toml").read_text("utf-8"))
        wanted = receipt["tool"]["requirements"]
        own = next(each for each in wanted if each.get("name") == PACKAGE)
    except (OSError, ValueError, KeyError, TypeError, StopIteration, AttributeError):
        return _came_from() or PACKAGE
    for key in ("directory", "editable", "path", "url", "git"):
        if isinstance(own.get(key), str):
            where: str = own[key]
            return f"git+{where}" if key == "git" else where
    return _came_from() or f"{PACKAGE}{own.get('specifier', '')}"


def _came_from() -> str:
    """Return the URL that fleetd was installed from; empty where its installer did not write it.

    An installer would look up the name alone on a package index, which does not have fleetd.
    """
    try:
        origin = json.loads(metadata.distribution(PACKAGE).read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return ""
    url = origin.get("url") if isinstance(origin, dict) else None
    return url if isinstance(url, str) else ""
