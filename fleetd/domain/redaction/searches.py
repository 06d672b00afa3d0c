r"""The searches for secrets in a text, in the order they are made.

None backtracks over an unbounded run: a search continues after a value that it judged, and
repetitions end at a fixed length or are possessive.
"""

import base64
import binascii
import re
from collections.abc import Iterator

from .assignments import BEGINNINGS, named
from .command_lines import COMMAND_SEARCHES
from .key_names import SPACES, is_gap, is_path, is_placeholder, kind_of_name
from .tokens import TOKEN_BEGINNING, TOKEN_SEARCHES, Found, Search, after_each
from .values import PROMISING, Value, header_at, is_opaque, is_secret, value_at

_NO_USER = rf"""{SPACES}/@'"<>\\\\"""
_URL = re.compile(
    rf"://(?:[^:\[{_NO_USER}]{{0,255}}:((?:[^{_NO_USER}]{{0,255}}+@){{1,5}})"
    rf"|([^:\[{_NO_USER}]{{16,255}}@))"
)


def _in_url(text: str, lower: str, found: re.Match[str]) -> Found | None:
    """Return the password of a URL, or the token in place of its user."""
    start, end = found.span(found.lastindex or 0)
    value = text[start : end - 1]
    secret = value and not is_gap(value) and (found.lastindex == 1 or is_opaque(value))
    return (start, end - 1, "url") if secret else None


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


def _authorization(text: str, lower: str, head: re.Match[str]) -> Found | None:
    """Return the credentials after an Authorization header's scheme; the scheme stays."""
    header = header_at(text, _header(lower, head.start(), "proxy-"), head.end())
    scheme = _SCHEME.match(text, header.start)
    start = scheme.end() if scheme else header.start
    # Digest and similar schemes have several parts.
    whole = scheme and not scheme[1]
    value = header.after(text, start) if whole else value_at(text, start)
    secret = _authorizes(value, bool(scheme))
    return (value.start, value.end(text), "authorization") if secret else None


def _header(lower: str, start: int, prefix: str) -> int:
    """Return the beginning of a header's name, which may have a prefix."""
    return start - len(prefix) if lower.startswith(prefix, max(0, start - len(prefix))) else start


def _authorizes(value: Value, has_scheme: bool) -> bool:
    if not has_scheme:
        return is_secret("token", value, "loose")
    letters_only = value.text.isalpha() and len(value.text) < 8
    return len(value.text) > 2 and not letters_only and not is_placeholder(value.text, quoted=False)


def _credentials(text: str, lower: str, head: re.Match[str]) -> Found | None:
    """Return the credentials after Bearer or Basic without a header's name."""
    found = _CREDENTIALS.match(text, head.end())
    return (*found.span(), "authorization") if found and is_opaque(found[0]) else None


# The lookahead is as long as the judged part of a value, with its quotes and spaces.
_COOKIE = re.compile(
    r"cookie(?>(?:\\{0,3}[\"'])?[ \t]{0,4}(?:(:)|=)[ \t]{0,4}|[ \t]{1,4})(?=[^=\r\n]{0,150}+=)"
)


def _cookie(text: str, lower: str, head: re.Match[str]) -> Found | None:
    """Return the value of a Cookie or Set-Cookie header, or of curl's option."""
    option = lower.startswith("--", max(0, head.start() - 2))
    if head[0].endswith((" ", "\t")) and not (option or ":" in head[0] or "=" in head[0]):
        return None
    value = header_at(text, _header(lower, head.start(), "set-"), head.end())
    sure = (value.quoted or head[1]) and "=" in value.text
    gap = sure and is_gap(value.text.split("=", 1)[1])
    return (value.start, value.end(text), "cookie") if sure and not gap else None


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


def _key_of_auth(text: str, lower: str, head: re.Match[str]) -> Found | None:
    """Return the credentials of a name that ends with auth, or a pre-shared key."""
    value = value_at(text, head.end(), to_space=True)
    word = value.text
    if len(word) < 6 or _MODES.fullmatch(word) or is_placeholder(word, quoted=True):
        return None
    sure = head.re is _PSK or text[head.start() : head.start() + 4].isupper()
    secret = "(" not in word and not is_path(word) and (sure or _is_encoded(word))
    return (value.start, value.end(text), "password") if secret else None


def _is_encoded(word: str) -> bool:
    return " " not in word and (is_opaque(word) or (len(word) >= 8 and word.endswith("=")))


_IDENTIFIED = re.compile(
    r"identified[ \t\r\n]{1,5}(?:with[ \t]{1,5}[\w\"'`]{1,60}[ \t\r\n]{1,5})?(?:by|as)[ \t]{1,5}"
    r"(?:password[ \t]{1,5})?"
)
_OF_USER = re.compile(r"\b(?:user|role|grant|login)\b[^;\n]{0,200}\Z")


def _identified(text: str, lower: str, head: re.Match[str]) -> Found | None:
    """Return the password of SQL: IDENTIFIED BY 'value'."""
    value = value_at(text, head.end(), to_space=True)
    sure = value.quoted or _OF_USER.search(lower[max(0, head.start() - 250) : head.start()])
    return _password(text, value) if sure else None


def _password(text: str, value: Value) -> Found | None:
    gap = len(value.text) < 3 or is_placeholder(value.text, quoted=True)
    return None if gap else (value.start, value.end(text), "password")


_INSERT = re.compile(
    r"insert[ \t]+into[ \t]+[\w.\"`]{1,80}[ \t]*\(([^()]{1,500})\)\s*values\s*\(([^()]{1,2000})\)",
    re.IGNORECASE,
)
_LITERAL = re.compile(r"[ \t]*(?:N?'((?:[^'\\]|\\.|'')*)'|[^,']+)(?:,|\Z)")


def inserted(text: str) -> Iterator[Found]:
    """Find the values of telling columns: INSERT INTO t (name, api_key) VALUES ('ci', '...')."""
    for found in _INSERT.finditer(text):
        for column, literal in zip(found[1].split(","), _LITERAL.finditer(found[2]), strict=False):
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


def _next_word(text: str, lower: str, head: re.Match[str]) -> Found | None:
    return _password(text, value_at(text, head.end(), to_space=True))


_ORACLE = re.compile(r"jdbc:oracle:(?:thin|oci):[\w.$#-]{1,60}/([^\s/@\"']{2,200})@")


def _oracle_password(text: str, lower: str, found: re.Match[str]) -> Found | None:
    """Return the password of Oracle's JDBC addresses: thin:user/value@host."""
    return None if is_gap(found[1]) else (*found.span(1), "url")


_SIGNATURE = re.compile(
    r"(?:[?&;]|%3f|%26|u0026)[a-z0-9_.-]{0,40}?(?:sig|signature)(?:=|%3d|\\u003d)"
)
_SIGNED = re.compile(r"(?:%(?!26)|[^&#\s\"'`<>\\%]){16,2000}")


def _signature(text: str, lower: str, head: re.Match[str]) -> Found | None:
    """Return the signature of an address that gives access to any holder: ?sig=value."""
    value = _SIGNED.match(text, head.end())
    return (*value.span(), "token") if value and is_opaque(value[0]) else None


_JWK = re.compile(r"\\{0,3}\"(?:d|p|q|dp|dq|qi|k)\\{0,3}\"\s{0,3}:\s{0,3}\\{0,3}\"([\w-]{20,4000})")


def _is_signed(text: str) -> bool:
    return any(sign in text for sign in ("sig=", "ature=", "%3D", "%3d", "u003"))


# A token wrapped in Base64 is no shorter than this; a path may look like one.
_ENCODED = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{28,}+={0,2}")


def _encoded(text: str) -> Iterator[Found]:
    """Find Base64 that holds a token of a known shape, or a private key."""
    for word in _ENCODED.finditer(text):
        inner = _decoded(word[0].rstrip("="))
        if inner and (TOKEN_BEGINNING.search(inner) or "-----BEGIN" in inner):
            for search in TOKEN_SEARCHES:
                found = next(search.find(inner), None)
                if found:
                    yield *word.span(), found[2]
                    break


def _decoded(word: str) -> str:
    """Return the text that Base64 holds; empty where it holds none, such as a digest."""
    whole = word[: len(word) - (len(word) % 4 == 1)]
    whole += "=" * (-len(whole) % 4)
    try:
        raw = base64.b64decode(whole, altchars=b"-_" if "-" in word or "_" in word else None)
    except (binascii.Error, ValueError):
        return ""
    return raw.decode("ascii") if raw.isascii() else ""


_IN_BASE64 = bytes(
    ord("a" if re.match(r"[A-Za-z0-9+/_-]", chr(code)) else " ") for code in range(256)
)


def _holds_encoded(words: str) -> bool:
    long = b"a" * 28 in words.encode("ascii").translate(_IN_BASE64)
    return long and next(_encoded(words), None) is not None


SEARCHES: tuple[Search, ...] = (
    *TOKEN_SEARCHES,
    Search(("",), _encoded, _holds_encoded, in_long_words=True),
    Search(("@",), after_each(_URL, _in_url), lambda text: "://" in text),
    Search(("auth",), after_each(_AUTHORIZATION, _authorization, any_case=True, skip=True)),
    Search(("bearer",), after_each(_BEARER, _credentials, any_case=True)),
    Search(("basic",), after_each(_BASIC, _credentials, any_case=True)),
    Search(("cookie",), after_each(_COOKIE, _cookie, any_case=True, skip=True)),
    Search(("sig",), after_each(_SIGNATURE, _signature, any_case=True), _is_signed),
    Search(BEGINNINGS, named),
    Search(('"kty',), after_each(_JWK, lambda _, __, found: (*found.span(1), "private-key"))),
    Search(("auth",), after_each(_AUTH, _key_of_auth, any_case=True, skip=True)),
    Search(("psk",), after_each(_PSK, _key_of_auth, any_case=True, skip=True)),
    Search(("identified",), after_each(_IDENTIFIED, _identified, any_case=True, skip=True)),
    Search(BEGINNINGS, inserted, lambda text: "INSERT" in text or "insert" in text),
    # login("me", "value"); PowerShell's secure strings; Redis' configuration.
    Search(
        ("auth", "login", "credential"),
        after_each(_LOGIN, _next_word, skip=True),
        lambda text: "(" in text,
    ),
    Search(
        (" -",),
        after_each(_SECURE_STRING, _next_word, skip=True),
        lambda text: "SecureString" in text,
    ),
    Search(("@",), after_each(_ORACLE, _oracle_password), lambda text: "jdbc:" in text),
    Search(
        ("pass",),
        after_each(_REQUIREPASS, _next_word, skip=True),
        lambda text: "requirepass" in text,
    ),
    *COMMAND_SEARCHES,
)
