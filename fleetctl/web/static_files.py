"""Static files: the page from the package, read once, served from a fixed table."""

import hashlib
from pathlib import Path
from typing import NamedTuple

from .messages import Response, WebRequest

DIRECTORY = Path(__file__).with_name("static")
CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}


class StaticFile(NamedTuple):
    """A file as it was when the server started."""

    data: bytes
    content_type: str
    etag: str


def read_all(directory: Path = DIRECTORY) -> dict[str, StaticFile]:
    """Return the files by their paths: ``/`` for the page, ``/static/NAME`` for all.

    Any other path is no file, whatever dots and slashes it contains. A file of unknown type is left
    out.
    """
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.suffix in CONTENT_TYPES and path.is_file():
            data = path.read_bytes()
            etag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
            name = path.relative_to(directory).as_posix()
            found[f"/static/{name}"] = StaticFile(data, CONTENT_TYPES[path.suffix], etag)
    found["/"] = found["/static/index.html"]
    return found


def respond(file: StaticFile, request: WebRequest) -> Response:
    """Return a file, or 304 to a browser that has this version of it."""
    headers = (("Cache-Control", "no-cache"), ("ETag", file.etag))
    known = ",".join(request.values("if-none-match")).split(",")
    if any(each.strip().removeprefix("W/") in (file.etag, "*") for each in known):
        return Response(304, headers=headers)
    return Response(200, file.data, file.content_type, headers)
