r"""The searches for secrets in a text, in the order they are made.

None looks back and forth over an unbounded run: a search that judged a value goes on after it,
and repetitions end at a fixed length or are possessive.
"""

import re
from collections.abc import Iterator

from .assignments import BEGINNINGS, named
from .command_lines import COMMAND_SEARCHES
from .encoded import ENCODED
from .key_names import SPACES, is_gap, is_path, is_placeholder, kind_of_name, lowered
from .tokens import TOKEN_SEARCHES, Found, Search
from .values import PROMISING, Value, header_at, is_opaque, is_secret, value_at

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


# The word may be part of a name: _auth, HTTP_AUTH, and docker's "auth".
_AUTH = re.compile(
    r"(?:(?<=_)|(?<=[\"'])|^)auth(?:\\{0,3}[\"'])?[ \t]{0,4}[=:][ \t]{0,4}(?=\S)", re.MULTILINE
)
_PSK = re.compile(r"(?<![a-z])psk(?:\\{0,3}[\"'])?[ \t]{0,4}[=:][ \t]{0,4}(?=\S)")
_MODES = re.compile(
    r"basic|digest|plain|login|none|true|false|on|off|yes|no|oauth2?|ntlm|negotiate|bearer|jwt"
    r"|token|peer|md5|trust|scram\S*|cram\S*|x?oauth2?|required|optional|enabled|disabled|[0-9]+",
    re.IGNORECASE,
)


def auths(text: str) -> Iterator[Found]:
    """Find credentials of names that end with auth."""
    return _credentials(text, _AUTH)


def pre_shared_keys(text: str) -> Iterator[Found]:
    """Find the pre-shared keys of wireless networks and tunnels."""
    return _credentials(text, _PSK)


def _credentials(text: str, name: re.Pattern[str]) -> Iterator[Found]:
    lower = lowered(text)
    position = 0
    while head := name.search(lower, position):
        position = head.end()
        value = value_at(text, position, to_space=True)
        word = value.text
        sure = name is _PSK or text[head.start() : head.start() + 4].isupper()
        if len(word) < 6 or _MODES.fullmatch(word) or is_placeholder(word, quoted=True):
            continue
        if "(" not in word and not is_path(word) and (sure or _is_encoded(word)):
            position = value.end(text)
            yield value.start, position, "password"


def _is_encoded(word: str) -> bool:
    return " " not in word and (is_opaque(word) or (len(word) >= 8 and word.endswith("=")))


_IDENTIFIED = re.compile(
    r"identified[ \t\r\n]{1,5}(?:with[ \t]{1,5}[\w\"'`]{1,60}[ \t\r\n]{1,5})?(?:by|as)[ \t]{1,5}"
    r"(?:password[ \t]{1,5})?"
)
_OF_USER = re.compile(r"\b(?:user|role|grant|login)\b[^;\n]{0,200}\Z")


def identified(text: str) -> Iterator[Found]:
    """Find the passwords of SQL: IDENTIFIED BY 'value'."""
    lower = lowered(text)
    position = 0
    while head := _IDENTIFIED.search(lower, position):
        position = head.end()
        value = value_at(text, position, to_space=True)
        sure = value.quoted or _OF_USER.search(lower[max(0, head.start() - 250) : head.start()])
        if sure and len(value.text) >= 3 and not is_placeholder(value.text, quoted=True):
            position = value.end(text)
            yield value.start, position, "password"


_INSERT = re.compile(
    r"insert[ \t]+into[ \t]+[\w.\"`]{1,80}[ \t]*\(([^()]{1,500})\)\s*values\s*\(([^()]{1,2000})\)",
    re.IGNORECASE,
)
_LITERAL = re.compile(r"[ \t]*(?:N?'((?:[^'\\]|\\.|'')*)'|[^,']+)(?:,|\Z)")


def inserted(text: str) -> Iterator[Found]:
    """Find the values of telling columns: INSERT INTO t (name, api_key) VALUES ('ci', '...')."""
    for found in _INSERT.finditer(text):
        literals = _LITERAL.finditer(found[2])
        for column, literal in zip(found[1].split(","), literals, strict=False):
            kind = kind_of_name(column.strip(' \t\r\n"`'))
            value = literal[1]
            if kind and value and len(value) >= 3 and not is_placeholder(value, quoted=True):
                yield found.start(2) + literal.start(1), found.start(2) + literal.end(1), kind


_LOGIN = re.compile(
    r"(?:auth ?= ?\(|\.(?:login|auth|sign_?in|authenticate)\(|(?:Credentials?|BasicAuth\w*)\()"
    r"[\"'][^\"'\r\n]{1,100}[\"'][ \t]{0,3},[ \t]{0,3}(?=[\"'])"
)
_REQUIREPASS = re.compile(r"requirepass[ \t]+(?=\S)")
_SECURE_STRING = re.compile(r"SecureString[ \t]+(?:-String[ \t]+)?(?=[\"'])")


def logins(text: str) -> Iterator[Found]:
    """Find the password beside a user's name: login("me", "value")."""
    return _after(text, _LOGIN)


def secure_strings(text: str) -> Iterator[Found]:
    """Find what PowerShell makes a secure string of."""
    return _after(text, _SECURE_STRING)


def redis_settings(text: str) -> Iterator[Found]:
    """Find the passwords of Redis' configuration: requirepass value."""
    return _after(text, _REQUIREPASS)


def _after(text: str, before: re.Pattern[str]) -> Iterator[Found]:
    position = 0
    while head := before.search(text, position):
        position = head.end()
        value = value_at(text, position, to_space=True)
        if len(value.text) >= 3 and not is_placeholder(value.text, quoted=True):
            position = value.end(text)
            yield value.start, position, "password"


_ORACLE = re.compile(r"jdbc:oracle:(?:thin|oci):[\w.$#-]{1,60}/([^\s/@\"']{2,200})@")


def oracle_urls(text: str) -> Iterator[Found]:
    """Find the passwords of Oracle's JDBC addresses: thin:user/value@host."""
    for found in _ORACLE.finditer(text):
        if not is_gap(found[1]):
            yield *found.span(1), "url"


_SIGNATURE = re.compile(
    r"(?:[?&;]|%3f|%26|u0026)[a-z0-9_.-]{0,40}?(?:sig|signature)(?:=|%3d|\\u003d)"
)
_SIGNED = re.compile(r"(?:%(?!26)|[^&#\s\"'`<>\\%]){16,2000}")


def signatures(text: str) -> Iterator[Found]:
    """Find the signature of an address that gives access to whoever has it: ?sig=value."""
    for head in _SIGNATURE.finditer(lowered(text)):
        value = _SIGNED.match(text, head.end())
        if value and is_opaque(value[0]):
            yield *value.span(), "token"


_JWK = re.compile(r"\\{0,3}\"(?:d|p|q|dp|dq|qi|k)\\{0,3}\"\s{0,3}:\s{0,3}\\{0,3}\"([\w-]{20,4000})")


def json_web_keys(text: str) -> Iterator[Found]:
    """Find the private members of JSON Web Keys."""
    for found in _JWK.finditer(text):
        yield *found.span(1), "private-key"


def _is_signed(text: str) -> bool:
    return any(sign in text for sign in ("sig=", "ature=", "%3D", "%3d", "u003"))


SEARCHES: tuple[Search, ...] = (
    *TOKEN_SEARCHES,
    ENCODED,
    Search(("@",), in_urls, lambda text: "://" in text),
    Search(("auth",), authorizations),
    Search(("bearer",), bearers),
    Search(("basic",), basics),
    Search(("cookie",), cookies),
    Search(("sig",), signatures, _is_signed),
    Search(BEGINNINGS, named),
    Search(('"kty',), json_web_keys),
    Search(("auth",), auths),
    Search(("psk",), pre_shared_keys),
    Search(("identified",), identified),
    Search(BEGINNINGS, inserted, lambda text: "INSERT" in text or "insert" in text),
    Search(("auth", "login", "credential"), logins, lambda text: "(" in text),
    Search((" -",), secure_strings, lambda text: "SecureString" in text),
    Search(("@",), oracle_urls, lambda text: "jdbc:" in text),
    Search(("pass",), redis_settings, lambda text: "requirepass" in text),
    *COMMAND_SEARCHES,
)
