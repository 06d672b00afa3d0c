"""What the remotes of a project's clones have in common, as a name; must not look anything up.

Two machines call one project by different URLs. The name is the host and the path, so that they
agree: ``github.com/Acme/Widget``.
"""

import posixpath
import re

# Ways to one and the same place: by which of them it is reached says nothing about the project.
_SCHEMES = {"http", "https", "ssh", "git", "git+ssh", "ssh+git", "git+https", "git+http"}
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)")
# As scp has it: no slash before the colon, and no scheme.
_SCP = re.compile(r"(?:[^/@:\[\]]*@)?(\[[^]/]+\]|[^/:@\[\]]+):(?!//)(.+)")
_HELPER = re.compile(r"[A-Za-z0-9]+::")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::([0-9]*))?")
# Each is some scheme's default, and many a host has SSH on that of another.
_USUAL_PORTS = {"", "22", "80", "443", "9418"}
# Where the same host is reached when a firewall lets only port 443 through.
_OTHER_NAMES = {
    "ssh.github.com": "github.com",
    "altssh.gitlab.com": "gitlab.com",
    "altssh.bitbucket.org": "bitbucket.org",
}
_HERE = re.compile(r"localhost(\..*)?|127\..*|0\.0\.0\.0|\[::1?\]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def shared_name(url: str) -> str | None:
    """Return the name that all clones of a project share, None for a URL that means one machine.

    The latter are paths, ``file://``, this very host, and what only a program of the user's can
    read (``ext::…``). Of a scheme that is not Git's own the name says which it is. Users, passwords
    and queries are left out: they are the caller's, and no part of the project.
    """
    url = url.strip()
    if _CONTROL.search(url) or _HELPER.match(url):
        return None
    if (found := _URL.fullmatch(url.split("?")[0].split("#")[0])) is not None:
        scheme, where, path = found[1].lower(), found[2].rpartition("@")[2], found[3]
    elif (short := _SCP.fullmatch(url)) is not None:
        scheme, where, path = "ssh", short[1], short[2]
        if where.startswith("[") and where.count(":") < 2:  # [user@host:port], no IPv6
            where = where[1:-1].rpartition("@")[2]
    else:
        return None
    host, inside = _host(where), _path(path)
    if scheme == "file" or host is None or inside is None:
        return None
    return f"{host}/{inside}" if scheme in _SCHEMES else f"{scheme}://{host}/{inside}"


def _host(where: str) -> str | None:
    """Return a host in lower case, with its port unless that says nothing; None for this one."""
    found = _HOST.fullmatch(where.lower())
    if found is None:
        return None
    host = found[1].rstrip(".")
    if not host or _HERE.fullmatch(host):
        return None
    port = "" if found[2] in {None, *_USUAL_PORTS} else f":{found[2]}"
    return (host if port else _OTHER_NAMES.get(host, host)) + port


def _path(path: str) -> str | None:
    """Return a path without what its spellings differ in; None for the root."""
    before = None
    while path != before:  # what is left of "..git" is a dot
        before = path
        path = posixpath.normpath(f"/{path.lstrip('/')}").removesuffix(".git")
    return path.lstrip("/") or None
