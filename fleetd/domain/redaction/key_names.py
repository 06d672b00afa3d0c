"""Names that announce a secret, and values that are no secrets."""

import re
from functools import lru_cache

# The end of a telling name, in lower case, as in DB_PASSWORD, x-api-key, clientSecret.
WORDS = r"(?:pass(?:wd|[_-]?(?:word|phrase|code))?|pwd?|secret|token|credentials?|key)"
# "key" announces a secret only after a word for what the key opens.
_OPENING = """
    api access secret private signing encryption auth account master session service license deploy
    subscription storage webhook shared consumer stripe openai anthropic jwt twilio sendgrid mailgun
    datadog sentry algolia firebase supabase cloudflare heroku groq mistral gemini hmac aes cipher
    instrumentation ingestion write admin bot ssh pre-shared
"""
# A shell variable NAME_KEY holds a secret if its value looks like one, except after these.
_OPENING_NOTHING = """
    primary foreign public partition sort cache host registry object bucket row map group order
    routing idempotency dedup
"""
# "pass" is short for a password after these, and where only a separator comes before it.
_SHORTENED_AFTER = """
    db user my admin root smtp mail email redis mysql pg postgres mongo ftp ssh sudo login app key
    store bind proxy wifi auth http ldap imap sql ora rabbit
"""
_COUNTED_BEFORE = """
    first second third last next each one two single multi by render shader opt dry final full num
    max min test tests pre post fast slow lint check
"""
# The characters that \s matches. Inside a set, they are many times faster when written out.
SPACES = r"\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# How many characters before the telling word are read.
BEFORE = 40
SUFFIX = (
    r"(?:[_-]?(?:prod(?:uction)?|dev(?:elopment)?|stag(?:e|ing)|test|live|base|value"
    r"|confirm(?:ation)?|old|new|[0-9]{1,3})){0,2}"
)
# Words that make a name harmless although it ends like a secret's.
_HARMLESS = """
    fencing cancel cancellation next page continuation stop start end pad eos bos unk sep mask max
    min per last first each every public sync resume syntax
"""
# Short for a password, and also parts of other words.
SHORTENED = ("pass", "pw")
_OPENERS, _HARMLESS_BEFORE = tuple(_OPENING.split()), tuple(_HARMLESS.split())
_NO_SECRETS, _PASSES = tuple(_OPENING_NOTHING.split()), tuple(_SHORTENED_AFTER.split())
_COUNTED = tuple(_COUNTED_BEFORE.split())
_SECRET_NAME = re.compile(rf"({WORDS}){SUFFIX}\Z")
_HEADERS = {"authorization": "authorization", "cookie": "cookie", "cookies": "cookie"}

# Substitutes for a missing value: a variable, a mask, an earlier replacement.
_GAPS = r"""\$\w+ | \$\{\w+[:?+-].*
    | \$\([^()]*\)? | \$?\{{1,2}[\w.()!:\ -]*\}{0,2} | %\w+% | %(?:\(\w*\))?[sdr]
    | <[^<>]*>? | [*xX.•_#?-]+ | \[redacted:[a-z0-9-]+\]"""
_FILLERS = """
    change_me change-me changeme replace_me replace-me replaceme example placeholder dummy redacted
    masked hidden
"""
_CODE = "secret token password none null nil undefined true false yes no"
_IN_QUOTES = frozenset(_FILLERS.split())
_WITHOUT_QUOTES = _IN_QUOTES.union(_CODE.split())
_GAP = re.compile(_GAPS, re.VERBOSE | re.IGNORECASE)
_GAPS_BEGIN = "$%<{*xX.•_#?-["
_PATH = re.compile(r"(?:~|\.{1,2})?(?:/[\w.@%:-]+)+/?")
_PART_MAX = 20
# Nobody writes a longer gap.
_GAP_MAX = 100
_MIXED = re.compile(r"(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])")


def kind_of(word: str, before: str) -> str | None:
    """Return the kind of secret that a telling word announces; None when it announces none.

    Both are in lower case; ``before`` is the text in front of the word: next_token is harmless.
    """
    if word.startswith("key"):
        return "key" if _ends(before, _OPENERS, "_-") else None
    if word in SHORTENED:
        return "password" if _shortens_password(before) else None
    if word.startswith("pass") or word == "pwd":
        return "password"
    if _ends(before, _HARMLESS_BEFORE, "_.-"):
        return None
    return "token" if word == "token" else "secret"


def _shortens_password(before: str) -> bool:
    """Return whether "pass" after these characters is short for a password: DB_PASS, not bypass."""
    if before[-1:].isalnum():
        return before.endswith(_PASSES)
    return not (before[-1:] in ("_", "-", ".") and before[:-1].endswith(_COUNTED))


def may_be_key(before: str) -> bool:
    """Return whether NAME_KEY may hold a secret; ``before`` is the text in front of KEY."""
    return before[-1:] == "_" and not before[:-1].endswith(_NO_SECRETS)


def _ends(before: str, words: tuple[str, ...], separators: str) -> bool:
    """Return whether the last word is one of these, with or without a separator after it."""
    return (before[:-1] if before[-1:] in separators else before).endswith(words)


def kind_of_name(name: str) -> str | None:
    """Return the kind of secret that a field of this name holds; None for a harmless name."""
    return _kind_of_ending(name[-100:])


# Fields have few distinct names, which recur.
@lru_cache(maxsize=2_048)
def _kind_of_ending(name: str) -> str | None:
    name = lowered(name)
    if header := _HEADERS.get(name.removeprefix("proxy-").removeprefix("set-")):
        return header
    found = _SECRET_NAME.search(name)
    return (
        kind_of(found[1], name[max(0, found.start() - BEFORE) : found.start()]) if found else None
    )


def lowered(text: str) -> str:
    """Return the text with ASCII letters in lower case, exactly as long as it was."""
    if text.isascii():
        return text.lower()
    # Other characters whose lower case is an ASCII letter; the rest stays, which is much faster.
    text = text.replace("\u0130", "i").replace("\u212a", "k")
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def is_gap(value: str) -> bool:
    """Return whether a value is a variable, a mask or a gap to fill in; a poor password is not."""
    might_be = 0 < len(value) <= _GAP_MAX and value[0] in _GAPS_BEGIN
    return might_be and bool(_GAP.fullmatch(value))


def is_placeholder(value: str, *, quoted: bool) -> bool:
    """Return whether a value is a substitute for a missing one; names of code have no quotes."""
    if len(value) > _GAP_MAX:
        return False
    lower = value.lower()
    filled = lower.startswith(("your_", "your-")) or lower.endswith(("_here", "-here"))
    return filled or lower in (_IN_QUOTES if quoted else _WITHOUT_QUOTES) or is_gap(value)


def is_path(value: str) -> bool:
    """Return whether a value reads as a path; Base64 may hold slashes too."""
    if "/" not in value or not _PATH.fullmatch(value):
        return False
    return not any(len(part) >= _PART_MAX and _MIXED.match(part) for part in value.split("/"))
