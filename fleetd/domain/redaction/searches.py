r"""The searches for secrets in a text, in the order they are made; must not replace anything.

None looks back and forth over an unbounded run: a search that judged a value goes on after it,
and repetitions end at a fixed length or are possessive.
"""

import re
from collections.abc import Callable, Iterator
from itertools import islice

from .names import BEFORE, SPACES, SUFFIX, WORDS, is_gap, is_placeholder, kind_of, lowered
from .token_searches import TOKEN_SEARCHES, Found, Search
from .values import PROMISING, Value, element_at, header_at, is_opaque, is_secret, value_at

_NO_USER = rf"""{SPACES}/@'"<>\\\\"""
_URL = re.compile(
    rf"://(?:[^:\[{_NO_USER}]{{0,255}}:((?:[^{_NO_USER}]{{0,255}}+@){{1,5}})"
    rf"|([^:\[{_NO_USER}]{{16,255}}@))"
)


def in_urls(text: str) -> Iterator[Found]:
    """Find passwords in URLs, and tokens in the place of the user."""
    for found in _URL.finditer(text):
        start, end = found.span(found.lastindex or 0)
        value = text[start : end - 1]
        if value and not is_gap(value) and (found.lastindex == 1 or is_opaque(value)):
            yield start, end - 1, "url"


_SCHEMES = (
    r"(?:(bearer|basic|token|apikey|negotiate|ntlm|ssws|bot)|digest|hawk|oauth|aws4-hmac-sha256)"
    r"[ \t]{1,4}"
)
_SCHEME = re.compile(_SCHEMES, re.IGNORECASE)
_AUTHORIZATION = re.compile(
    r"authorization(?>(?:\\{0,3}[\"']\]?)?[ \t]{0,4}(?:=>|[:=,])[ \t]{0,4})"
    rf"(?:(?={_SCHEMES})|{PROMISING})"
)
_BEARER = re.compile(r"bearer[ \t]{1,4}(?=[\w.~+/-]{16})")
_BASIC = re.compile(r"basic[ \t]{1,4}(?=[\w.~+/-]{16})")
_CREDENTIALS = re.compile(r"[\w.~+/-]{16,}+=*")


def authorizations(text: str) -> Iterator[Found]:
    """Find what follows an Authorization header's scheme; the scheme stays."""
    lower = lowered(text)
    position = 0
    while head := _AUTHORIZATION.search(lower, position):
        position = head.end()
        header = header_at(text, _header(lower, head.start(), "proxy-"), position)
        scheme = _SCHEME.match(text, header.start)
        start = scheme.end() if scheme else header.start
        # Digest and its like are made of several parts.
        whole = scheme and not scheme[1]
        value = header.after(text, start) if whole else value_at(text, start)
        if _authorizes(value, bool(scheme)):
            position = value.end(text)
            yield value.start, position, "authorization"


def _header(lower: str, start: int, prefix: str) -> int:
    """Return where the name of a header begins that may have a prefix."""
    return start - len(prefix) if lower.startswith(prefix, max(0, start - len(prefix))) else start


def _authorizes(value: Value, has_scheme: bool) -> bool:
    if not has_scheme:
        return is_secret("token", value, "loose")
    letters_only = value.text.isalpha() and len(value.text) < 8
    return len(value.text) > 2 and not letters_only and not is_placeholder(value.text, quoted=False)


def bearers(text: str) -> Iterator[Found]:
    """Find what follows Bearer without a header's name."""
    return _schemes(text, _BEARER)


def basics(text: str) -> Iterator[Found]:
    """Find what follows Basic without a header's name."""
    return _schemes(text, _BASIC)


def _schemes(text: str, scheme: re.Pattern[str]) -> Iterator[Found]:
    for head in scheme.finditer(lowered(text)):
        found = _CREDENTIALS.match(text, head.end())
        if found and is_opaque(found[0]):
            yield *found.span(), "authorization"


# What follows is looked at no further than a value is judged, with its quotes and spaces.
_COOKIE = re.compile(
    r"cookie(?>(?:\\{0,3}[\"'])?[ \t]{0,4}(?:(:)|=)[ \t]{0,4}|[ \t]{1,4})(?=[^=\r\n]{0,150}+=)"
)


def cookies(text: str) -> Iterator[Found]:
    """Find the values of Cookie and Set-Cookie headers, and of curl's option."""
    lower = lowered(text)
    position = 0
    while head := _COOKIE.search(lower, position):
        position = head.end()
        option = lower.startswith("--", max(0, head.start() - 2))
        if head[0].endswith((" ", "\t")) and not (option or ":" in head[0] or "=" in head[0]):
            continue
        value = header_at(text, _header(lower, head.start(), "set-"), position)
        sure = value.quoted or head[1]
        if sure and "=" in value.text and not is_gap(value.text.split("=", 1)[1]):
            position = value.end(text)
            yield value.start, position, "cookie"


_HEAD = (
    # Of these words those for passwords end with d or e.
    rf"({WORDS})(?>(?P<password>(?<=[de]))?"
    rf"{SUFFIX}(?:\\{{0,3}}[\"'`]\]?)?[ \t]{{0,4}}(?:(?P<sign>=>|:=|={{1,3}})|:)"
    # A type between the name and its value: token: str | None = "..."
    r"[ \t]{0,4}(?(sign)|(?:[a-z_][\w.\[\]|]{0,38}+(?: \| none)?+ = )?))"
)
# Where nothing stands around the = of NAME=value, less is asked of the value.
_TIGHT = "(?<=[a-z0-9]=)"
_ASSIGNMENT = re.compile(rf"{_HEAD}(?:{PROMISING}|(?(password){_TIGHT}|(?!)))")
_SHELL_TOO = re.compile(rf"{_HEAD}(?:{PROMISING}|{_TIGHT})")
# A text with more telling names than this is made of them, and so is one with more that stand
# before what could be a secret: to look at them all would keep the daemon busy.
NAMES_MAX, TOLD_MAX = 10_000, 5_000
_NAMES = re.compile(WORDS)
_SHOUTED = re.compile(r"(?:PASS|PWD|SECRET|TOKEN|CREDENTIAL|KEY)[\w-]{0,40}=")


def assignments(text: str) -> Iterator[Found]:
    """Find the values of telling names: NAME=value, name = "value", "name": "value"."""
    lower = lowered(text)
    search = (_SHELL_TOO if _SHOUTED.search(text) else _ASSIGNMENT).search
    position, told, last = 0, 0, _enough(lower)
    while head := search(lower, position, last):
        told += 1
        if told > TOLD_MAX:
            last = head.start()
            break
        position = head.end()
        kind = _kind(lower, head)
        if kind is None:
            continue
        style = _style(head, text)
        value = value_at(text, position, shell=style == "shell")
        if is_secret(kind, value, style):
            position = value.end(text)
            yield value.start, position, kind
    if max(last, position) < len(text):
        yield max(last, position), len(text), "not-scanned"


def _enough(lower: str) -> int:
    """Return where a text has so many names that the rest is not looked at; else its length."""
    if len(lower) < NAMES_MAX:
        return len(lower)
    name = next(islice(_NAMES.finditer(lower), NAMES_MAX, None), None)
    return name.start() if name else len(lower)


def _assigns(text: str) -> bool:
    return "=" in text or ":" in text


def _kind(lower: str, head: re.Match[str]) -> str | None:
    return kind_of(head[1], lower[max(0, head.start(1) - BEFORE) : head.start(1)])


def _style(head: re.Match[str], text: str) -> str:
    end = head.end()
    if text[end - 1] != "=" or not text[end - 2].isalnum():
        return "loose"
    return "shell" if text[head.start(1) : head.end(1)].isupper() else "tight"


_FLAG = re.compile(rf"--(?:[a-z0-9]{{1,20}}-){{0,4}}({WORDS})[ \t]{{1,4}}(?!-)")
_ELEMENT = re.compile(rf"<[\w.:-]{{0,40}}?({WORDS}){SUFFIX}>(?=[^<>\r\n]{{1,1000}}+</)")
_USER = re.compile(
    rf"-(?<=\s-)(?:u|-user)[ \t=]{{1,3}}[\"']?"
    rf"[^:\"'$<{{{SPACES}]{{1,100}}+:([^\"'{SPACES}]{{1,200}}+)"
)
_COMMAND_MAX = 300


def flags(text: str) -> Iterator[Found]:
    """Find the values of telling options: --password value."""
    return _told_by(text, _FLAG, value_at)


def elements(text: str) -> Iterator[Found]:
    """Find the content of XML elements with telling names."""
    return _told_by(text, _ELEMENT, element_at)


def _told_by(text: str, name: re.Pattern[str], at: Callable[[str, int], Value]) -> Iterator[Found]:
    lower = lowered(text)
    position = 0
    while head := name.search(lower, position):
        position = head.end()
        value, kind = at(text, position), _kind(lower, head)
        if kind and is_secret(kind, value, "loose"):
            position = value.end(text)
            yield value.start, position, kind


def curl_users(text: str) -> Iterator[Found]:
    """Find the passwords of curl's option for a user."""
    for found in _USER.finditer(text):
        start = found.start()
        first = max(0, start - _COMMAND_MAX)
        line = max(first, text.rfind("\n", first, start) + 1)
        if text.find("curl", line, start) >= 0 and not is_gap(found[1]):
            yield *found.span(1), "password"


_TELLING = ("pass", "pwd", "secret", "token", "credential", "key")

SEARCHES: tuple[Search, ...] = (
    *TOKEN_SEARCHES,
    Search(("://",), in_urls),
    Search(("authorization",), authorizations),
    Search(("bearer",), bearers),
    Search(("basic",), basics),
    Search(("cookie",), cookies),
    Search(_TELLING, assignments, _assigns),
    Search(("--",), flags),
    Search(("</",), elements),
    Search(("curl",), curl_users),
)
