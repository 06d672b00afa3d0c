"""Secrets on command lines: options, settings and pipes of well-known programs."""

import re
from collections.abc import Iterator, Sequence

from .key_names import is_gap, is_path
from .tokens import Found, Search, after_each
from .values import value_at

# Only this many characters of a command are scanned.
_COMMAND_MAX = 400
# Programs, and the text before the secret on their command lines: an option,
_OPTIONS: tuple[tuple[str, str], ...] = (
    ("sshpass", "-p ?"),
    ("unzip zip sqlcmd bcp osql tsql mosquitto_pub mosquitto_sub ipmitool", "-P ?"),
    (
        "docker podman nerdctl buildah skopeo helm oras crane az cf oc",
        "login (?:(?! login ).)*?-p ",
    ),
    ("mongo mongosh mongodump mongorestore mongoexport mongoimport mongostat cqlsh", "-p "),
    ("cypher-shell beeline rdesktop twine ncftpput ncftpget useradd usermod", "-p "),
    ("mysql mysqldump mysqladmin mysqlimport mysqlshow mysqlcheck mysqlsh", r"-p(?=\S)"),
    ("mariadb mariadb-dump mariadb-admin 7z 7za 7zr 7zz rar unrar", r"-h?p(?=\S)"),
    ("redis-cli valkey-cli", "-a "),
    ("ldapsearch ldapadd ldapmodify ldapdelete ldappasswd ldapwhoami", "-w ?"),
    ("openssl", r"-pass(?:in|out|wd)? ['\"]?pass:"),
    ("openssl", "-[kK] "),
    ("keytool jarsigner apksigner", "--?[a-z-]*pass (?:pass:)?"),
    ("plink pscp putty psftp", "-pw "),
    ("smbclient rpcclient mount.cifs", r"(?:-U|--user)[ =]?[^\s%]+%"),
    ("lftp", r"-u ?[^\s,]+,"),
    ("curl", r"(?:-u|--user)[ =]?['\"]?[^\s:'\"$<{]+:"),
    ("http https xh ab", r"(?:-a|-A|--auth)[ =]['\"]?[^\s:'\"]+:"),
    ("gpg gpg2 zip cryptsetup svn clickhouse-client", "--pass(?:phrase|word)[ =]"),
    ("curl wget influx argocd mysql psql", r"--?(?:http-|ftp-|proxy-)?pass(?:word|wd)?[ =]"),
    ("htpasswd", r"-(?=\w*b)(?!\w*n)\w+ (?:-\w+ )*\S+ \S+ "),
    ("htpasswd", r"-(?=\w*b)(?=\w*n)\w+ (?:-\w+ )*\S+ "),
    ("dotnet nuget", "(?:-k|-ApiKey|--api-key) "),
    ("gh", "secret set (?:(?! secret ).)*?(?:-b|--body)[ =]"),
    ("doctl", "(?:-t|--access-token)[ =]"),
    ("snmpwalk snmpget snmpset", "-[AX] "),
)
# or their own words; a text without the needle has no such command.
_ARGUMENTS: tuple[tuple[str, str, str], ...] = (
    ("login", "vault", "login (?:token=)?(?!-)"),
    ("pass", "rabbitmqctl", r"change_password \S+ "),
    ("@", "sqlplus", r"['\"]?\w+/(?=[^\s/@'\"])"),
    ("token", "poetry", r"config (?:--\S+ )*pypi-token\.\S+ "),
    ("basic", "poetry", r"config (?:--\S+ )*http-basic\.\S+ \S+ "),
    ("basic", "composer", r"config (?:(?! config ).)*?http-basic\.\S+ \S+ "),
    ("auth", "b2", r"(?:account )?authorize\S* \S+ "),
    ("/p:", "xfreerdp", "/p:"),
    ("pass", "cmdkey", "/pass:"),
)
_SPACE = r"[ \t]+"
# A blank of a pattern, outside of a set, stands for any number of them.
_BLANK = re.compile(r" \??(?![^\[]*\])")


def _pattern(before: str) -> re.Pattern[str]:
    spaced = _BLANK.sub(lambda blank: _SPACE if blank[0] == " " else r"[ \t]*", before)
    return re.compile(rf"(?<=[ \t]){spaced}")


_WITH_OPTIONS: dict[str, list[re.Pattern[str]]] = {}
for _programs, _before in _OPTIONS:
    for _program in _programs.split():
        _WITH_OPTIONS.setdefault(_program, []).append(_pattern(_before))
_END = re.compile(r"[\n;|]|&&|\\n|\Z")
# Characters that may surround the name of a program, as in $(mysql or '/usr/bin/mysql.
_SEPARATORS = str.maketrans(dict.fromkeys("$(`'\"\\/;|&\t", " "))
# A line is scanned in pieces, so that a long one costs no more than many short ones.
_PIECE = 2_000
# A text with more commands than this consists of them: scanning all would keep the daemon busy.
COMMANDS_MAX = 5_000
# An option or a number where the secret would be, or a path: there is none.
_NO_VALUE = re.compile(r"-|[0-9]{1,5}(?![^\s'\"])")


def options(text: str) -> Iterator[Found]:
    """Find the secrets that programs take as options: sshpass -p value."""
    at, left = text.find(" -"), COMMANDS_MAX
    while at >= 0:
        start = max(text.rfind("\n", max(0, at - _COMMAND_MAX), at) + 1, at - _COMMAND_MAX, 0)
        stop = text.find("\n", at, at + _PIECE)
        stop = min(at + _PIECE, len(text)) if stop < 0 else stop
        words = text[start:stop].translate(_SEPARATORS).split()
        if not _WITH_OPTIONS.keys().isdisjoint(words):
            left -= sum(map(_WITH_OPTIONS.__contains__, words))
            if left < 0:
                yield start, len(text), "not-scanned"
                return
            yield from _in_line(text, start, stop, words)
        at = text.find(" -", stop)


def _in_line(text: str, start: int, stop: int, words: list[str]) -> Iterator[Found]:
    position = start
    for word in words:
        begin = text.find(word, position, stop)
        if begin < 0:  # it is part of what was found
            continue
        position = begin + len(word)
        patterns = _WITH_OPTIONS.get(word)
        if patterns and (found := _in_command(text, position, patterns)):
            yield found
            position = found[1]


def _arguments(needle: str, program: str, before: str) -> Search:
    """Return a search for the secrets that a program takes as arguments: vault login value."""
    pattern = [_pattern(before)]

    def find(text: str) -> Iterator[Found]:
        at, left = text.find(f"{program} "), COMMANDS_MAX
        while at >= 0:
            left -= 1
            if left < 0:
                yield at, len(text), "not-scanned"
                return
            alone = at == 0 or not (text[at - 1].isalnum() or text[at - 1] in "_-.")
            if alone and (found := _in_command(text, at + len(program), pattern)):
                yield found
                at = found[1] - 1
            at = text.find(f"{program} ", at + 1)

    return Search((needle,), find, lambda text: program in text)


def _in_command(text: str, begin: int, patterns: Sequence[re.Pattern[str]]) -> Found | None:
    """Return the secret of a command after the name of its program."""
    end = _END.search(text, begin, begin + _COMMAND_MAX)
    stop = end.start() if end else begin
    for pattern in patterns:
        head = pattern.search(text, begin, stop)
        if head and (found := _argument(text, head.end())):
            return found
    return None


def _argument(text: str, position: int) -> Found | None:
    value = value_at(text, position, to_space=True)
    word = value.text
    if not value.quoted and (len(word) < 3 or _NO_VALUE.match(word) or is_path(word)):
        return None
    return None if not word or is_gap(word) else (value.start, value.end(text), "password")


_NETRC = re.compile(
    r"(?:machine\s+\S{1,200}|default)\s+login\s+\S{1,200}\s+(?:account\s+\S{1,200}\s+)?password\s+"
)


_PIPED_INTO = re.compile(
    r"\|[ \t]*+(?:sudo[ \t]++(?:-\w++[ \t]++)*+)?"
    r"(?:chpasswd|passwd\b|sudo[ \t]+(?:-\w+[ \t]+){0,5}-\w*S\b"
    r"|[^\n|]{1,200}--(?:password-stdin|with-token))"
)
_ECHO = re.compile(
    r"(?<![\w-])(?:echo|printf)[ \t]+(?:-\w+[ \t]+)?(?:['\"]?[\w.-]{1,60}:)?(?=[^\n|]{1,300}\Z)"
)
_HERE_STRING = re.compile(r"(?:sudo[ \t]+-S|--password-stdin)\b[^\n|<]{0,200}<<<[ \t]*")


def _piped(text: str, _: str, into: re.Match[str]) -> Found | None:
    first = max(0, into.start() - _COMMAND_MAX)
    echo = _ECHO.search(text[first : into.start()])
    return _argument(text, first + echo.end()) if echo else None


def _next_argument(text: str, _: str, head: re.Match[str]) -> Found | None:
    return _argument(text, head.end())


_in_pipes = after_each(_PIPED_INTO, _piped)
_in_here_strings = after_each(_HERE_STRING, _next_argument)


def piped(text: str) -> Iterator[Found]:
    """Find the input of programs that ask for a password: echo value | sudo -S."""
    yield from _in_pipes(text)
    if "<<<" in text:
        yield from _in_here_strings(text)


def _may_be_piped(text: str) -> bool:
    return ("|" in text and bool(_PIPED_INTO.search(text))) or "<<<" in text


COMMAND_SEARCHES: tuple[Search, ...] = (
    Search((" -",), options, lambda text: next(options(text), None)),
    *(_arguments(*row) for row in _ARGUMENTS),
    Search(
        ("pass",),
        after_each(_NETRC, _next_argument),
        lambda text: "login" in text and _NETRC.search(text),
    ),
    Search(("pass", "token", " -"), piped, _may_be_piped),
)
