"""Secrets are replaced wherever they stand in a text, and what only looks like one stays."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetd.domain.redaction.assignments import CANDIDATES_MAX, NAMES_MAX
from fleetd.domain.redaction.redact import CUT, FOUND_MAX, SCANNED_MAX, redact, redact_data
from fleetd.domain.redaction.searches import SEARCHES
from fleetd.domain.redaction.tokens import SHAPES
from tests.unit.secret_samples import HUNTER, LONG, TOKENS, WRITTEN, mixed, pem

SURROUNDINGS = ["{}", "a {} b", "'{}'", '"{}"', "x={},", "({})", "line\\n{}\\n", "\n{}\n", "`{}`."]


@pytest.mark.parametrize("around", SURROUNDINGS)
@pytest.mark.parametrize(("kind", "token"), TOKENS)
def test_a_token_of_a_known_shape_is_replaced_anywhere(kind: str, token: str, around: str) -> None:
    found = redact(around.format(token))
    assert found == around.format(f"[redacted:{kind}]")
    assert redact(found) == found


@pytest.mark.parametrize(("write", "secret", "kind"), [w[1:] for w in WRITTEN], ids=lambda w: "")
def test_a_secret_is_replaced_by_how_it_is_written(
    write: Callable[[str], str], secret: str, kind: str
) -> None:
    found = redact(f"first\n{write(secret)}\nlast")
    assert secret not in found
    assert f"[redacted:{kind}]" in found
    assert found.startswith("first\n")
    assert found.endswith("\nlast")
    assert redact(found) == found


def test_what_surrounds_a_secret_stays_readable() -> None:
    assert redact(f"postgres://app:{HUNTER}@db/x") == "postgres://app:[redacted:url]@db/x"
    assert redact(f"export TOKEN={LONG}; run") == "export TOKEN=[redacted:token]; run"
    assert redact(f'{{"password": "{HUNTER}", "a": 1}}') == (
        '{"password": "[redacted:password]", "a": 1}'
    )


@pytest.mark.parametrize("kind", ["RSA PRIVATE", "OPENSSH PRIVATE", "EC PRIVATE", "PRIVATE"])
@pytest.mark.parametrize("written", ["plain", "escaped", "indented"])
@pytest.mark.parametrize("cut_off", [False, True])
def test_a_private_key_is_replaced_whole(kind: str, written: str, cut_off: bool) -> None:
    change = {"plain": "\n", "escaped": "\\n", "indented": "\n    "}[written]
    block = pem(kind, cut_off=cut_off).replace("\n", change)
    assert redact(f"before\n{block}") == "before\n[redacted:private-key]"


def test_after_a_key_that_was_cut_off_the_rest_of_the_text_stays() -> None:
    found = redact(pem("PRIVATE", cut_off=True) + "\n\nThen the test failed.\n" + pem("PUBLIC"))
    assert found.startswith("[redacted:private-key]")
    assert found.endswith("Then the test failed.\n" + pem("PUBLIC"))


def test_the_end_of_a_private_key_is_replaced_where_its_beginning_was_cut_off() -> None:
    lines = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmU/abcdef+0123456789AB=\n" * 9
    ending = "-----END OPENSSH PRIVATE KEY-----\nfailed"
    assert redact(f"Exit code 1: {lines}{ending}") == "Exit code 1:[redacted:private-key]\nfailed"
    block = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{lines}{ending}"
    assert redact(f"{lines}{ending}\n{block}") == (
        "[redacted:private-key]\nfailed\n[redacted:private-key]\nfailed"
    )
    words = "Look for the line -----END PRIVATE KEY----- and stop"
    assert redact(words) == words


READABLE = [
    "password=$PASSWORD",
    'password="${PASSWORD}"',
    "token: str",
    "def login(user: str, password: str, token: str | None = None) -> None:",
    "API_KEY=<your key>",
    "API_KEY=your-api-key-here",
    'TOKEN = os.environ["TOKEN"]',
    'key = os.environ["API_KEY"]',
    "token = get_token(request)",
    "self.token = token",
    "password=config.password",
    "password=None",
    "token=%s",
    'f"Bearer {token}"',
    "Authorization: Bearer $TOKEN",
    "Authorization: Bearer <token>",
    "https://$USER:$PASSWORD@example.org",
    "https://<user>:<password>@example.org",
    "git@github.com:owner/name.git",
    "http://localhost:8080/a@b",
    "commit 244e7c5f8b8a9b7a6d5c4b3a2f1e0d9c8b7a6f5e",
    "550e8400-e29b-41d4-a716-446655440000",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6",
    "/home/me/src/token/password.py",
    "TOKEN_FILE=/run/secrets/github_token",
    "PWD=/home/me/a-directory-with-a-long-name",
    "fencing_token: 42",
    "max_tokens=4096, input_tokens: 12345",
    "next_token=abc12345",
    "msn-1a2b3c4d srt-12ab34cd chk-00ff00ff",
    "--password is deprecated, use --password-file",
    "password: required",
    "The token expired, the secret is that nobody knew. Key: value",
    "docker run -u 1000:1000 image",
    "a basic understanding of the bearer of this letter",
    "Cookie: yes",
    "-----BEGIN PUBLIC KEY-----",
    "task-force-of-twenty-people-and-more disk-usage-of-the-machine-2024-01",
]


@pytest.mark.parametrize("text", READABLE)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert redact(text) is text


def test_data_is_cleaned_by_its_keys_too() -> None:
    data = {
        "env": {"API_KEY": HUNTER, "HOME": "/home/me", "DB_PASSWORD": 123456},
        "args": ["--password", HUNTER, "--verbose"],
        "vars": [{"name": "GITHUB_TOKEN", "value": HUNTER}],
        "headers": {"Authorization": "Bearer x1", "Cookie": "a", "Accept": "*/*"},
        "credentials": {"user": "me"},
        "usage": {"input_tokens": 5, "token": 7},
        "password": "$PASSWORD",
        "ok": True,
        LONG: [f"password={HUNTER}"],
    }
    assert redact_data(data) == {
        "env": {
            "API_KEY": "[redacted:key]",
            "HOME": "/home/me",
            "DB_PASSWORD": "[redacted:password]",
        },
        "args": ["--password", "[redacted:password]", "--verbose"],
        "vars": [{"name": "GITHUB_TOKEN", "value": "[redacted:token]"}],
        "headers": {
            "Authorization": "[redacted:authorization]",
            "Cookie": "[redacted:cookie]",
            "Accept": "*/*",
        },
        "credentials": {"user": "[redacted:secret]"},
        "usage": {"input_tokens": 5, "token": 7},
        "password": "$PASSWORD",
        "ok": True,
        LONG: ["password=[redacted:password]"],
    }


def test_data_without_secrets_is_the_same_object() -> None:
    data = {"command": "pytest -q", "exit_code": 0, "files": ["a.py"], "more": {"a": None}}
    assert redact_data(data) is data


def test_keys_that_become_one_lose_no_value() -> None:
    one, two = (kind + mixed(36) for kind in ("gh" + "p_", "gh" + "o_"))
    assert redact_data({one: 1, two: 2}) == {"[redacted:github]": 1, "[redacted:github]#2": 2}


def test_what_is_too_long_to_be_scanned_is_not_kept() -> None:
    text = "a " * (SCANNED_MAX // 2) + TOKENS[0][1]
    assert redact(text) == "a " * (SCANNED_MAX // 2) + CUT
    assert redact_data({"text": text})["text"].endswith(CUT)


PIECES = st.one_of(
    st.text(max_size=20),
    st.sampled_from([token for _, token in TOKENS]),
    st.sampled_from([write(secret) for _, write, secret, _ in WRITTEN]),
    st.sampled_from([needle for search in SEARCHES for needle in search.needles]),
    st.sampled_from(["=", ": ", '"', "'", "\\", "\n", "\\n", "@", "[redacted:x]", " ", "{", "--"]),
)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.lists(PIECES, max_size=8).map("".join))
def test_what_was_redacted_stays_the_same(text: str) -> None:
    found = redact(text)
    assert redact(found) == found


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.text(alphabet="abcdefghijkl \n.,;", max_size=200))
def test_a_text_without_a_candidate_is_not_touched(text: str) -> None:
    assert redact(text) is text


SECRETS = st.sampled_from([token for _, token in TOKENS])
AROUND = st.text(max_size=30).filter(lambda s: not s or not (s[-1].isalnum() or s[-1] in "_-"))


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(AROUND, SECRETS, st.text(alphabet=" \n\"',;)]}", max_size=10))
def test_a_token_survives_in_no_surrounding(before: str, token: str, after: str) -> None:
    assert token not in redact(before + token + after)
    held: Any = redact_data([{"x": [before + token + after]}, token, {token: 1}])
    assert token not in repr(held)


HOSTILE = [
    *(
        "password:",
        "password='",
        'password="',
        "token = ",
        "token=//",
        "token=a.",
        "key={",
        "key=$(",
    ),
    *("authorization: ", "Authorization: 'Bearer ", "cookie: ", "'cookie: ", "bearer a", "basic "),
    *("eyJ", "eyJaaaaaaaa.", "\\neyJ", "-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "-----"),
    *("://a:", "://", "://a:b@", "@:", "--a-a-password ", "<password>", "<a:", "-u a:", ":A"),
    *("M" * 24 + ".", "0", "a", " ", "\\", "'", "[redacted:", "sk-", "secret_", "token: a[b] = "),
]
EVERYTHING = " ".join(dict.fromkeys(shape.needle for shape in SHAPES))
EVERYTHING += " ".join(needle for search in SEARCHES for needle in search.needles)


def cost(text: str) -> float:
    begun = time.process_time()
    redact(text)
    return time.process_time() - begun


@pytest.mark.parametrize("seed", HOSTILE)
def test_the_work_grows_with_the_length_and_no_faster(seed: str) -> None:
    """Eight times the text takes about eight times the work; looking back would take 64 times."""
    short, long = ((seed * size)[:size] + EVERYTHING for size in (12_500, 100_000))
    floor = 0.004
    least = [min(cost(text) for _ in range(3)) for text in (short, long)]
    assert least[1] < 24 * max(floor, least[0])


def test_a_megabyte_costs_little_more_than_a_pass_in_python() -> None:
    text = ("The quick brown fox jumps over the lazy dog. " * 25_000)[:1_000_000]
    begun = time.process_time()
    assert sum(character == "q" for character in text)
    one_pass = time.process_time() - begun
    assert min(cost(text + EVERYTHING) for _ in range(2)) < 10 * one_pass


@pytest.mark.parametrize(("one", "most"), [("key=", NAMES_MAX), ("token: of_7 ", CANDIDATES_MAX)])
def test_a_flood_of_telling_names_is_cut_short(one: str, most: int) -> None:
    """Each costs a look at what follows, so a megabyte of them took half a second."""
    few, many = one * most, one * (most + 1)

    assert redact(few) == few
    assert redact(many) == few + CUT
    assert redact(few + CUT) == few + CUT


def test_a_flood_of_secrets_is_cut_short_and_keeps_none() -> None:
    one = "password='correct horse" + "7x" * 4 + "' "
    text = "before " + one * 5_000 + "after"

    cleaned = redact(text)

    assert cleaned.startswith("before password=")
    assert cleaned.endswith("[redacted:not-scanned]")
    assert cleaned.count("[redacted:password]") == FOUND_MAX
    assert "correct horse" not in cleaned
    assert redact(cleaned) == cleaned


# Each of these took from two seconds to hours, or more than its length: a repeated command without
# an end of line, a section of an INI file that is longer than a screen, secrets in disguise.
FLOODS = {
    "commands": "vault login ",
    "commands with options": "curl -u ",
    "short commands": "7z -p ",
    "arguments": "htpasswd -b ",
    "pipes": "| sudo -a ",
    "a long section": " password = abcdefg\n" + "x\n" * 60,
    "disguised": "gh\u200bp_" + "a1B2c3D4e5" * 4 + " ",
    "disguised passwords": "\u200b".join("password=hunter22 "),
    "keys": "psk=",
    "statements": "identified by ",
    "words before a name": "a" * 190 + " password ",
}


@pytest.mark.parametrize("what", FLOODS)
def test_a_megabyte_of_what_looks_like_secrets_takes_no_more_for_each_of_them(what: str) -> None:
    """Eight times the text takes at most about eight times the work."""
    short, long = (
        "[section]\nuser " + (FLOODS[what] * size)[:size] for size in (125_000, 1_000_000)
    )
    floor = 0.02
    least = [min(cost(text) for _ in range(2)) for text in (short, long)]
    assert least[1] < 24 * max(floor, least[0])


def test_a_long_section_of_an_ini_file_ends_where_it_ends() -> None:
    """Each line could be read in two ways, so from 41 lines on it took hours."""
    long = "[mysqld]\n" + "key_buffer = 16M\n" * 60
    for lines in (long, long.replace("\n", "\r\n")):
        assert redact(f"{lines} password = abcdefg\n") == f"{lines} password = abcdefg\n"
    short = "[client]\nuser = me\n"
    assert redact(f"{long}{short} password = abcdefg\n").endswith("[redacted:password]\n")


@pytest.mark.parametrize(
    "text",
    [
        "psk='two words'\n_auth=Zm9vOmJhcg==\n",
        "sudo -S ls <<< hunter22\necho hunter33 | sudo -S ls\n",
        "psk=hunter22psk=hunter33psk=hunter44\n",
    ],
)
def test_secrets_that_are_found_out_of_their_order_double_nothing(text: str) -> None:
    cleaned = redact(text)
    assert "hunter" not in cleaned
    assert cleaned.count("\n") == text.count("\n")
    assert cleaned.count("[redacted:") <= 3
    assert redact(cleaned) == cleaned


def test_of_a_program_that_stands_twice_on_a_line_both_commands_are_looked_at() -> None:
    line = "mysql --version && mysql -u root -phunter22"
    assert redact(line) == "mysql --version && mysql -u root -p[redacted:password]"


def test_however_many_kinds_of_secrets_are_disguised_none_is_left() -> None:
    prefixes = ("ghp_", "glpat-", "npm_", "hf_", "gsk_", "r8_", "dapi", "shpat_", "sbp_", "figd_")
    tokens = [prefix + "a1b2c3d4e5" * 5 for prefix in prefixes]
    text = "\n".join(f"{token[0]}\u200b{token[1:]}" for token in tokens)
    cleaned = redact(text)
    assert cleaned.count("[redacted:") == len(tokens)
    assert "a1b2" not in cleaned


def test_an_entry_of_a_netrc_without_a_password_hides_none_of_the_next() -> None:
    text = (
        "machine a.example login alice password\n"
        "machine b.example login bob password Tr0ub4dor-xyz\n"
    )
    assert "Tr0ub4dor" not in redact(text)
    assert "Tr0ub4dor" not in redact("docker login --password-stdin <<< sudo -S <<< Tr0ub4dor-xyz")
