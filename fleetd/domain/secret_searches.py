r"""The searches for secrets in a text, in the order they are made; must not replace anything.

None looks back and forth over an unbounded run: a search that judged a value goes on after it,
and repetitions end at a fixed length or are possessive.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .secret_values import Value, element_at, header_at, is_opaque, is_secret, value_at
from .telling_names import BEFORE, SUFFIX, WORDS, is_gap, is_placeholder, kind_of, lowered
from .token_shapes import DISCORD, DISCORD_BEFORE, SHAPES, Shape

Found = tuple[int, int, str]
_KEY_MAX = 65_536


class Search(NamedTuple):
    """A search, worth making in texts that hold one of its needles (compared in lower case).

    ``find`` yields where secrets begin and end, and their kind, from left to right. ``sign`` is
    what else has to be there, where the needle alone is too common.
    """

    needles: tuple[str, ...]
    find: Callable[[str], Iterator[Found]]
    sign: re.Pattern[str] | None = None


_BEGIN = re.compile(r"-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_CUT_OFF = re.compile(
    r"(?:(?:\\[nr]|[\s\"'+>|,])*+(?:[A-Z][\w-]{2,30}: [^\r\n\\]{0,100}|[A-Za-z0-9+/=]{16,}+))*+"
    r"(?:(?:\\[nr]|[\s\"'+>|,])*+[A-Za-z0-9+/=]{1,15}(?=\Z|[\r\n\"'\\]))?"
)


def private_keys(text: str) -> Iterator[Found]:
    """Find private key blocks, also those whose end is missing."""
    position = 0
    while begin := _BEGIN.search(text, position):
        dashes = text.find("-----", begin.end())
        end = _END.match(text, dashes) if 0 <= dashes < begin.end() + _KEY_MAX else None
        last = end or _CUT_OFF.match(text, begin.end())
        position = last.end() if last else begin.end()
        yield begin.start(), position, "private-key"


def _shaped(shape: Shape) -> Search:
    def find(text: str) -> Iterator[Found]:
        position = 0
        while (at := text.find(shape.needle, position)) >= 0:
            position = at + len(shape.needle)
            start = _start(text, at, shape)
            found = shape.pattern.match(text, at) if start is not None else None
            if found and start is not None:
                position = found.end()
                yield start, position, shape.kind

    return Search((shape.needle.lower(),), find)


def _start(text: str, at: int, shape: Shape) -> int | None:
    """Return where a token begins whose needle is at a position; None when it cannot be one."""
    if shape.alone and _within_word(text, at):
        return None
    return at if shape.before is None else _before(text, at, shape.before)


def _before(text: str, at: int, pattern: re.Pattern[str]) -> int | None:
    first = max(0, at - BEFORE)
    found = pattern.search(text[first:at])
    return first + found.start() if found else None


def _within_word(text: str, at: int) -> bool:
    if at == 0 or not (text[at - 1].isalnum() or text[at - 1] in "_-"):
        return False
    # The \n of JSON inside a text is no letter of a word.
    return not (text[at - 1] in "nrt" and text[at - 2 : at - 1] == "\\")


def discord(text: str) -> Iterator[Found]:
    """Find the tokens of Discord's bots."""
    for found in DISCORD.finditer(text):
        start = _before(text, found.start(), DISCORD_BEFORE)
        if start is not None:
            yield start, found.end(), "discord"


_URL = re.compile(
    r"""://(?:[^\s/:@'"<>\\\[]{0,255}:((?:[^\s/@'"<>\\]{0,255}+@){1,5})|([^\s/:@'"<>\\\[]{16,255}@))"""
)


def in_urls(text: str) -> Iterator[Found]:
    """Find passwords in URLs, and tokens in the place of the user."""
    for found in _URL.finditer(text):
        group = 1 if found[1] else 2
        start, end = found.start(group), found.end(group) - 1
        value = text[start:end]
        if value and not is_gap(value) and (group == 1 or is_opaque(value)):
            yield start, end, "url"


_AUTHORIZATION = re.compile(r"authorization(?:\\{0,3}[\"']\]?)?[ \t]{0,4}(?:=>|[:=,])[ \t]{0,4}")
_SCHEME = re.compile(
    r"(?:(bearer|basic|token|apikey|negotiate|ntlm|ssws|bot)|digest|hawk|oauth|aws4-hmac-sha256)"
    r"[ \t]{1,4}",
    re.IGNORECASE,
)
_BEARER = re.compile(r"bearer[ \t]{1,4}")
_BASIC = re.compile(r"basic[ \t]{1,4}")
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


_COOKIE = re.compile(r"cookie(?:\\{0,3}[\"'])?[ \t]{0,4}(?:(:)|=)[ \t]{0,4}|cookie[ \t]{1,4}")


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


_HEAD = re.compile(
    rf"({WORDS}){SUFFIX}(\\{{0,3}}[\"'`]\]?)?([ \t]{{0,4}})(?:(=>|:=|={{1,3}})|:)([ \t]{{0,4}})"
    # A type between the name and its value: token: str | None = "..."
    r"(?(4)|(?:[a-z_][\w.\[\]|]{0,38}(?: \| none)? = )?)"
)


def assignments(text: str) -> Iterator[Found]:
    """Find the values of telling names: NAME=value, name = "value", "name": "value"."""
    lower = lowered(text)
    position = 0
    while head := _HEAD.search(lower, position):
        position = head.end()
        kind = _kind(lower, head)
        if kind is None:
            continue
        style = _style(head, shouted=text[head.start(1) : head.end(1)].isupper())
        value = value_at(text, position, shell=style == "shell")
        if is_secret(kind, value, style):
            position = value.end(text)
            yield value.start, position, kind


def _kind(lower: str, head: re.Match[str]) -> str | None:
    return kind_of(head[1], lower[max(0, head.start(1) - BEFORE) : head.start(1)])


def _style(head: re.Match[str], *, shouted: bool) -> str:
    if head[4] != "=" or head[2] or head[3] or head[5]:
        return "loose"
    return "shell" if shouted else "tight"


_FLAG = re.compile(rf"--(?:[a-z0-9]{{1,20}}-){{0,4}}({WORDS})[ \t]{{1,4}}(?!-)")
_ELEMENT = re.compile(rf"<[\w.:-]{{0,40}}?({WORDS}){SUFFIX}>(?=[^<>\r\n]{{1,1000}}+</)")
_USER = re.compile(r"-(?:u|-user)[ \t=]{1,3}[\"']?[^\s:\"'$<{]{1,100}+:([^\s\"']{1,200}+)")
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
        before = text[max(0, found.start() - _COMMAND_MAX) : found.start()]
        if before[-1:].isspace() and "curl" in before.rpartition("\n")[2] and not is_gap(found[1]):
            yield *found.span(1), "password"


_TELLING = ("pass", "pwd", "secret", "token", "credential", "key")

SEARCHES: tuple[Search, ...] = (
    Search(("-----begin",), private_keys),
    *map(_shaped, SHAPES),
    Search((".",), discord, DISCORD),
    Search(("://",), in_urls),
    Search(("authorization",), authorizations),
    Search(("bearer",), bearers),
    Search(("basic",), basics),
    Search(("cookie",), cookies),
    Search(_TELLING, assignments),
    Search(("--",), flags),
    Search(("</",), elements),
    Search(("curl",), curl_users),
)
