"""Tokens of well-known services and private keys: their shapes, and the searches for them.

The facts (how a token begins, which characters follow, how many) are from gitleaks
(config/gitleaks.toml, https://github.com/gitleaks/gitleaks, MIT licence) and from the services'
documentation. The expressions are our own, and none backtracks. Most require fewer characters than
a whole token has, because output that a harness cut off still shows most of a secret.
"""

import re
import string
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .key_names import BEFORE, lowered

ALNUM = "0-9A-Za-z"
URL_SAFE = "0-9A-Za-z_-"
DOTTED = "0-9A-Za-z_.-"
BASE64 = "0-9A-Za-z+/=_-"
HEX = "0-9A-Fa-f"
Found = tuple[int, int, str]
_KEY_MAX = 65_536


class Shape(NamedTuple):
    """One shape of a token of ``kind``.

    ``pattern`` matches from ``needle`` on, with which it begins; ``before`` matches the part of the
    token in front of it. If the needle is common in other text, ``within`` is a text that each
    token contains.
    """

    kind: str
    needle: str
    pattern: re.Pattern[str]
    before: re.Pattern[str] | None = None
    within: str = ""


# kind, characters after the prefix, their least number, prefixes.
_PREFIXED = (
    ("github", ALNUM + "_", 20, "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_"),
    ("gitlab", DOTTED, 20, "glpat- gldt- glcbt- glptt- glft- glsoat- glrt- glimt- glagent- gloas-"),
    ("gitlab", DOTTED, 20, "glffct- GR1348941"),
    ("google", URL_SAFE, 30, "AIza 1//0"),
    ("google", DOTTED, 20, "GOCSPX- ya29."),
    ("slack", DOTTED, 10, "xoxa- xoxb- xoxe- xoxe.xox xoxo- xoxp- xoxr- xoxs- xapp-"),
    ("slack", ALNUM + "/", 20, "hooks.slack.com/services/ hooks.slack.com/workflows/"),
    ("slack", ALNUM + "/", 20, "hooks.slack.com/triggers/"),
    ("stripe", ALNUM, 10, "sk_test_ sk_live_ sk_prod_ rk_test_ rk_live_ rk_prod_"),
    ("stripe", BASE64, 20, "whsec_"),
    ("openai", URL_SAFE, 20, "sk-proj- sk-svcacct- sk-admin- sk-None-"),
    ("anthropic", URL_SAFE, 20, "sk-ant-"),
    ("openrouter", URL_SAFE, 20, "sk-or-v1-"),
    ("npm", ALNUM, 20, "npm_"),
    ("pypi", URL_SAFE, 30, "pypi-AgE"),
    ("huggingface", ALNUM, 25, "hf_ api_org_"),
    ("groq", ALNUM, 30, "gsk_"),
    ("xai", ALNUM, 40, "xai-"),
    ("perplexity", ALNUM, 30, "pplx-"),
    ("replicate", ALNUM, 30, "r8_"),
    ("digitalocean", HEX, 32, "doo_v1_ dop_v1_ dor_v1_"),
    ("docker", URL_SAFE, 20, "dckr_pat_ dckr_oat_"),
    ("shopify", HEX, 20, "shpat_ shpca_ shppa_ shpss_"),
    ("square", URL_SAFE, 22, "sq0atp- sq0csp-"),
    ("databricks", HEX, 32, "dapi"),
    ("doppler", DOTTED, 20, "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit."),
    ("grafana", BASE64, 30, "glc_ glsa_"),
    ("vault", URL_SAFE, 24, "hvs. hvb. hvr."),
    ("planetscale", DOTTED, 30, "pscale_tkn_ pscale_oauth_ pscale_pw_"),
    ("pulumi", HEX, 40, "pul-"),
    ("rubygems", HEX, 30, "rubygems_"),
    ("sentry", BASE64, 30, "sntrys_ sntryu_"),
    ("supabase", URL_SAFE, 20, "sbp_ sb_secret_"),
    ("postman", URL_SAFE, 30, "PMAK-"),
    ("linear", ALNUM, 30, "lin_api_"),
    ("notion", ALNUM, 40, "ntn_ secret_"),
    ("heroku", URL_SAFE, 40, "HRKU-"),
    ("atlassian", BASE64, 40, "ATATT3 ATCTT3"),
    ("newrelic", ALNUM, 20, "NRAK-"),
    ("brevo", URL_SAFE, 40, "xkeysib-"),
    ("dynatrace", DOTTED, 40, "dt0c01."),
    ("tailscale", URL_SAFE, 20, "tskey-"),
    ("figma", URL_SAFE, 30, "figd_"),
    ("fly", BASE64, 40, "fo1_ fm1a_ fm1r_ fm2_"),
    ("clojars", ALNUM, 40, "CLOJARS_"),
    ("artifactory", ALNUM, 50, "AKCp cmVmd"),
    ("alibaba", ALNUM, 20, "LTAI"),
    ("1password", BASE64, 100, "ops_eyJ"),
    ("age", ALNUM, 40, "AGE-SECRET-KEY-1"),
    ("openshift", URL_SAFE, 40, "sha256~"),
    ("typeform", BASE64, 40, "tfp_"),
)

# A prefix of few characters, or of letters alone, is also part of ordinary words.
_SHORT = 4


def _shape(
    kind: str,
    needle: str,
    rest: str,
    *,
    before: tuple[str, int, int] | None = None,
    alone: bool = False,
    within: str = "",
) -> Shape:
    """Return a shape; ``before`` is characters with their least and greatest number.

    The lookbehind comes after the needle: an expression that begins with fixed characters is many
    times faster. ``alone`` says that the token does not begin within a word; the ``\\n`` of JSON
    inside a text is no letter of a word.
    """
    fixed = re.escape(needle)
    checks, ahead = "", None
    if alone:
        checks = rf"(?:(?<![\w-]{fixed})|(?<=\\[nrt]{fixed}))"
    if before:
        characters, least, greatest = before
        checks = rf"(?<=[{characters}]{{{least}}}{fixed})"
        ahead = re.compile(rf"[{characters}]{{{least},{greatest}}}\Z")
    return Shape(kind, needle, re.compile(fixed + checks + rest), ahead, within)


SHAPES: tuple[Shape, ...] = (
    *(
        _shape(
            kind,
            prefix,
            rf"[{characters}]{{{least},}}+",
            alone=len(prefix) < _SHORT or prefix[-1].isalnum(),
        )
        for kind, characters, least, prefixes in _PREFIXED
        for prefix in prefixes.split()
    ),
    _shape("openai", "sk-", rf"[{ALNUM}]{{20,}}+", alone=True),
    *(
        _shape("aws", prefix, rf"[A-Z2-7]{{16}}(?![{ALNUM}])", alone=True)
        for prefix in ("AKIA", "ASIA", "ABIA", "ACCA")
    ),
    _shape("sendgrid", "SG.", rf"[{URL_SAFE}]{{16,64}}+\.[{URL_SAFE}]{{16,}}+"),
    _shape("twilio", "SK", rf"[0-9a-f]{{32}}(?![{ALNUM}])", alone=True),
    _shape("telegram", ":A", rf"[{URL_SAFE}]{{33,}}+", before=("0-9", 5, 16)),
    _shape("discord", "/webhooks/", rf"[0-9]{{15,20}}+/[{URL_SAFE}]{{40,}}+"),
    _shape("terraform", ".atlasv1.", rf"[{BASE64}]{{40,}}+", before=(ALNUM, 14, 14)),
    # The header of a JWT is JSON, which begins with {" and so with eyJ in Base64, as any JSON does.
    _shape(
        "jwt",
        "eyJ",
        rf"[{URL_SAFE}]{{8,}}+\.[{URL_SAFE}]{{10,}}+(?:\.[{BASE64}]*+){{0,3}}",
        alone=True,
        within=".",
    ),
)

# A Discord token has no fixed beginning: the search looks for its last parts first.
DISCORD = re.compile(rf"\.[{URL_SAFE}]{{6}}\.[{URL_SAFE}]{{27,}}+")
DISCORD_BEFORE = re.compile(rf"[MNO][{URL_SAFE}]{{22,28}}\Z")

# No token is shorter, and none has other characters; the backslash is for JSON's \\n before it.
LEAST = min(
    len(prefix) + least for _, _, least, prefixes in _PREFIXED for prefix in prefixes.split()
)
CHARACTERS = rf".:~\\{BASE64}"


class Search(NamedTuple):
    """A search, useful in texts that contain one of its needles (in lower case).

    ``find`` yields the begin, end and kind of secrets, from left to right. ``sign`` is a further
    condition where the needle alone is too common. With ``in_long_words``, needle (in its own case)
    and sign are searched in the text's ``long_words`` only.
    """

    needles: tuple[str, ...]
    find: Callable[[str], Iterator[Found]]
    sign: Callable[[str], object] | None = None
    in_long_words: bool = False


Judge = Callable[[str, str, re.Match[str]], Found | None]


def after_each(
    head: re.Pattern[str], judge: Judge, *, any_case: bool = False, skip: bool = False
) -> Callable[[str], Iterator[Found]]:
    """Return a search that judges what follows each ``head``.

    ``judge`` gets the text, the text that was searched, and the match. ``any_case`` searches in
    lower case. The search continues after the head: what was found may hold the next one (in a
    netrc an entry without a password ends where the next entry begins). With ``skip`` it continues
    after what was found: use it where that may hold words that look like a head.
    """

    def find(text: str) -> Iterator[Found]:
        searched, position = lowered(text) if any_case else text, 0
        while match := head.search(searched, position):
            position = match.end()
            if found := judge(text, searched, match):
                if skip:
                    position = max(position, found[1])
                yield found

    return find


_OF_TOKENS = re.compile(f"[{CHARACTERS}]")
_MASK = bytes(ord("a" if _OF_TOKENS.match(chr(code)) else " ") for code in range(256))
_LONG = b"a" * LEAST


def long_words(text: str) -> str:
    """Return the words of a text that are long enough for a token, each once."""
    raw = text.encode("utf-8", "surrogatepass")
    mask = raw.translate(_MASK)
    words: dict[bytes, None] = {}  # an output often repeats the same path
    end = 0
    while (start := mask.find(_LONG, end)) >= 0:
        end = mask.find(b" ", start + LEAST)
        end = len(raw) if end < 0 else end
        words[raw[start:end]] = None
    return b" ".join(words).decode("ascii")


def any_of(words: Iterable[str]) -> str:
    """Return an expression for any of these words that shares their beginnings.

    It reads each character of a text once, while an alternation tries every word.
    """
    by_first: dict[str, list[str]] = {}
    for word in sorted(words):
        by_first.setdefault(word[:1], []).append(word[1:])
    if "" in by_first:  # a word ends here, so the rest is irrelevant
        return ""
    branches = [re.escape(first) + any_of(rest) for first, rest in by_first.items()]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


_BEGIN = re.compile(r"-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# The characters of a key and between its lines, however they are quoted.
_IN_KEYS = string.ascii_letters + string.digits + "+/=" + string.whitespace + "\"'>|,\\"
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{32}")
_CUT_OFF = re.compile(
    r"(?:(?:\\[nr]|[\s\"'+>|,])*+(?:[A-Z][\w-]{2,30}: [^\r\n\\]{0,100}|[A-Za-z0-9+/=]{16,}+))*+"
    r"(?:(?:\\[nr]|[\s\"'+>|,])*+[A-Za-z0-9+/=]{1,15}(?=\Z|[\r\n\"'\\]))?"
)


def private_keys(text: str) -> Iterator[Found]:
    """Find private key blocks, including those whose end is missing."""
    position = 0
    while begin := _BEGIN.search(text, position):
        dashes = text.find("-----", begin.end())
        end = _END.match(text, dashes) if 0 <= dashes < begin.end() + _KEY_MAX else None
        last = end or _CUT_OFF.match(text, begin.end())
        position = last.end() if last else begin.end()
        yield begin.start(), position, "private-key"


def key_tail(text: str) -> Iterator[Found]:
    """Find a private key whose beginning is missing, as only the end of long outputs is kept."""
    end = _END.search(text)
    if end is None or _BEGIN.search(text, 0, end.start()) is not None:
        return
    start = len(text[: end.start()].rstrip(_IN_KEYS))
    if _KEY_LINE.search(text, start, end.start()) is not None:
        yield start, end.end(), "private-key"


_BREAK = r"(?:(?:\\{1,2}r)?\\{1,2}n|\r?\n)"
_PUTTY = re.compile(
    rf"Private-Lines: \d{{1,4}}{_BREAK}(?:[A-Za-z0-9+/=]{{1,80}}(?:{_BREAK}|\Z)){{1,400}}"
    r"(?:Private-(?:MAC|Hash): [0-9a-f]{1,80})?"
)


def _shaped(shape: Shape) -> Search:
    def find(text: str) -> Iterator[Found]:
        first = text.find(shape.needle)
        for found in shape.pattern.finditer(text, first) if first >= 0 else ():
            start = _before(text, found.start(), shape.before) if shape.before else found.start()
            if start is not None:
                yield start, found.end(), shape.kind

    sign = (lambda words: shape.within in words) if shape.within else None
    return Search((shape.needle,), find, sign, in_long_words=True)


def _before(text: str, at: int, pattern: re.Pattern[str]) -> int | None:
    """Return where a token begins whose second part is at ``at``; None if it is no token."""
    first = max(0, at - BEFORE)
    found = pattern.search(text[first:at])
    return first + found.start() if found else None


def _discord(text: str, _: str, found: re.Match[str]) -> Found | None:
    start = _before(text, found.start(), DISCORD_BEFORE)
    return None if start is None else (start, found.end(), "discord")


TOKEN_SEARCHES: tuple[Search, ...] = (
    Search(("-----begin",), private_keys),
    Search(("-----end",), key_tail),
    Search(
        ("key",),
        after_each(_PUTTY, lambda _, __, found: (*found.span(), "private-key")),
        lambda text: "Private-Lines" in text,
    ),
    *map(_shaped, SHAPES),
    Search((".",), after_each(DISCORD, _discord), DISCORD.search, in_long_words=True),
)

# One search for the beginnings of all tokens: hardly any text has one.
TOKEN_BEGINNING = re.compile(any_of(shape.needle for shape in SHAPES))
