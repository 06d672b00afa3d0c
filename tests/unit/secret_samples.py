"""Made-up secrets, put together here so that no file of this repository holds one."""

import base64
import hashlib
import json
from collections.abc import Callable


def _letters(length: int, seed: str, alphabet: str) -> str:
    digest = b"".join(hashlib.sha256(f"{seed}{n}".encode()).digest() for n in range(length))
    return "".join(alphabet[byte % len(alphabet)] for byte in digest[:length])


LOWER = "abcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789"
HEX = DIGITS + "abcdef"
ALNUM = LOWER + LOWER.upper() + DIGITS
BASE32 = LOWER.upper() + "234567"


def mixed(length: int, alphabet: str = ALNUM) -> str:
    return _letters(length, "sample", alphabet)


def _segment(data: dict[str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


JWT = ".".join([_segment({"alg": "HS256", "typ": "JWT"}), _segment({"sub": "me"}), mixed(43)])

# kind of the replacement and a whole token, by service.
TOKENS: list[tuple[str, str]] = [
    *(("github", prefix + "_" + mixed(36)) for prefix in ("ghp", "gho", "ghu", "ghs", "ghr")),
    ("github", "github" + "_pat_" + mixed(82)),
    *(("gitlab", "gl" + kind + "-" + mixed(20)) for kind in ("pat", "dt", "rt", "ptt", "cbt")),
    *(("aws", prefix + mixed(16, BASE32)) for prefix in ("AK" + "IA", "AS" + "IA")),
    ("google", "AI" + "za" + mixed(35)),
    ("google", "ya" + "29." + mixed(60)),
    ("google", "GOC" + "SPX-" + mixed(28)),
    ("slack", "xo" + "xb-" + mixed(11, DIGITS) + "-" + mixed(12, DIGITS) + "-" + mixed(24)),
    ("slack", "xa" + "pp-1-A" + mixed(10, DIGITS) + "-" + mixed(30)),
    ("stripe", "sk" + "_live_" + mixed(24)),
    ("stripe", "rk" + "_test_" + mixed(24)),
    ("openai", "sk" + "-proj-" + mixed(74)),
    ("openai", "sk" + "-" + mixed(48)),
    ("anthropic", "sk" + "-ant-api03-" + mixed(93) + "AA"),
    ("npm", "np" + "m_" + mixed(36)),
    ("pypi", "py" + "pi-AgEIcHlwaS5vcmc" + mixed(80)),
    ("huggingface", "h" + "f_" + mixed(34)),
    ("sendgrid", "S" + "G." + mixed(22) + "." + mixed(43)),
    ("twilio", "S" + "K" + mixed(32, HEX)),
    ("discord", "M" + mixed(23) + "." + mixed(6) + "." + mixed(38)),
    ("telegram", mixed(9, "123456789") + ":" + "AA" + mixed(33)),
    ("digitalocean", "do" + "p_v1_" + mixed(64, HEX)),
    ("docker", "dckr" + "_pat_" + mixed(27)),
    ("shopify", "shp" + "at_" + mixed(32, HEX)),
    ("vault", "hv" + "s." + mixed(95)),
    ("terraform", mixed(14) + ".atlas" + "v1." + mixed(64)),
    ("jwt", JWT),
]

HUNTER = "hun" + "ter2"
LONG = mixed(40)


def pem(kind: str, *, cut_off: bool = False) -> str:
    lines = [f"-----BEGIN {kind}" + " KEY-----", *(mixed(64) for _ in range(5)), mixed(20) + "=="]
    return "\n".join(lines if cut_off else [*lines, f"-----END {kind}" + " KEY-----"])


# What has no shape of its own: how it is written down, what of it must not be left, its kind.
WRITTEN: list[tuple[str, Callable[[str], str], str, str]] = [
    ("bearer", lambda s: f"Authorization: Bearer {s}", LONG, "authorization"),
    ("basic", lambda s: f"-H 'Authorization: Basic {s}' https://x.example", LONG, "authorization"),
    ("json header", lambda s: f'{{"Authorization": "Bearer {s}"}}', LONG, "authorization"),
    ("proxy", lambda s: f"Proxy-Authorization: Basic {s}", LONG, "authorization"),
    ("digest", lambda s: f'Authorization: Digest response="{s}"', LONG, "authorization"),
    ("bearer alone", lambda s: f"sent bearer {s} and got 401", LONG, "authorization"),
    ("url", lambda s: f"git clone https://me:{s}@example.org/a.git", HUNTER, "url"),
    ("dsn", lambda s: f"postgres://app:{s}@db:5432/app", "p@" + HUNTER, "url"),
    ("token in url", lambda s: f"https://{s}@example.org/a.git", LONG, "url"),
    ("query", lambda s: f"GET /x?access_token={s}&page=2", LONG, "token"),
    ("cookie", lambda s: f"Cookie: theme=dark; sid={s}", LONG, "cookie"),
    ("set-cookie", lambda s: f"Set-Cookie: sid={s}; Path=/; HttpOnly", LONG, "cookie"),
    ("curl cookie", lambda s: f"curl -H 'Cookie: sid=\"{s}\"' https://x.example", LONG, "cookie"),
    ("shell", lambda s: f"export DB_PASSWORD={s}; run", HUNTER, "password"),
    ("shell word", lambda s: f"PASSWORD={s} ./run", "correct" + "horse", "password"),
    ("shell quoted", lambda s: f"PGPASSWORD='{s}' psql", "a b'c"[:3] + HUNTER, "password"),
    ("dotenv", lambda s: f"STRIPE_API_KEY={s}\nDEBUG=1", LONG, "key"),
    ("libpq", lambda s: f"host=db password={s} dbname=app", "letme" + "in", "password"),
    ("json", lambda s: f'{{"password": "{s}"}}', HUNTER, "password"),
    ("json in json", lambda s: f'"{{\\"client_secret\\": \\"{s}\\"}}"', LONG, "secret"),
    ("yaml", lambda s: f"db:\n  password: {s}\n", HUNTER, "password"),
    ("python", lambda s: f'API_KEY: str = "{s}"', LONG, "key"),
    ("environ", lambda s: f'os.environ["GITHUB_TOKEN"] = "{s}"', LONG, "token"),
    ("camel", lambda s: f"clientSecret: '{s}',", LONG, "secret"),
    ("option", lambda s: f"mysql --password {s} app", HUNTER, "password"),
    ("option =", lambda s: f"tool --api-key={s}", LONG, "key"),
    ("curl user", lambda s: f"curl -u me:{s} https://x.example", HUNTER, "password"),
    ("xml", lambda s: f"<db><password>{s}</password></db>", HUNTER, "password"),
    ("header", lambda s: f"X-Api-Key: {s}", LONG, "key"),
    ("aws secret", lambda s: f"aws_secret_access_key = {s}", mixed(30) + "/" + mixed(9), "key"),
]
