"""``fleetctl usage``: tokens and their cost, budgets, and the line that attention has for them."""

import re
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fleetctl.args import UsageError
from fleetctl.client.models import PlainRecord
from fleetctl.commands.usage import amount_of, local_zone
from fleetctl.output.prices import PriceTable, dollars
from tests.cli.test_attention import hook
from tests.support.processes import Daemon, Result
from tests.support.transcripts import TranscriptFile, claude_line

Done = Callable[..., Result]


def session(done: Done, home: Path, name: str, *lines: dict[str, Any]) -> None:
    """Begin a session with a transcript, of today."""
    file = TranscriptFile(home / f"{name}.jsonl")
    hook(
        done, name, "UserPromptSubmit", home, prompt=f"Task {name}", transcript_path=str(file.path)
    )
    file.add(*lines)


def now_line(number: int, **usage: Any) -> dict[str, Any]:
    import time

    return claude_line(number, round(time.time() * 1_000) - 60_000 + number, **usage)


def of_model(line: dict[str, Any], model: str) -> dict[str, Any]:
    line["message"]["model"] = model
    return line


def test_nothing_was_taken(daemon: Daemon, done: Done) -> None:
    assert done("usage").out == "No usage found.\n"
    assert done("usage", "--json").json["groups"] == []


def test_tokens_and_cost_by_agent_and_in_total(daemon: Daemon, done: Done, home: Path) -> None:
    session(done, home, "s-1", now_line(1), now_line(1), now_line(2))
    session(done, home, "s-2", now_line(3))
    told = done("usage").out.splitlines()
    cells = [re.split(r"\s{2,}", line) for line in told]
    columns = ["INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "REASONING", "COST"]
    assert cells[0] == ["AGENT", "MODELS", *columns]
    first, second, total = cells[1:4]
    assert first[:6] == ["claude-s-1", "claude-sonnet-4-5", "203", "20", "2,000", "100"]
    assert second[:6] == ["claude-s-2", "claude-sonnet-4-5", "103", "10", "1,000", "50"]
    assert total[:2] == ["total", "-"]
    assert total[2:6] == ["306", "30", "3,000", "150"]
    assert {first[7], second[7], total[7]} == {"<$0.01"}
    footer = " ".join(told[5:])
    assert "Not counted: 1 repeated line." in footer
    assert re.search(r"Prices: genai-prices [\d.]+, as of 20\d\d-\d\d-\d\d;", footer)
    document = done("usage", "--json").json
    # 306 at $3, 30 at $15, 3,000 at $0.30, 90 at $3.75 and 60 at $6 a million.
    cost = Decimal("0.003") * 306 / 1000 + Decimal("0.015") * 30 / 1000
    cost += (Decimal("0.3") * 3_000 + Decimal("3.75") * 90 + Decimal("6") * 60) / 1_000_000
    assert Decimal(document["cost"]["usd"]) == round(cost, 6)
    assert document["prices"]["name"] == "genai-prices"


def test_the_cost_of_a_model_without_a_price_is_unknown_and_never_nothing(
    daemon: Daemon, done: Done, home: Path
) -> None:
    session(done, home, "s-1", of_model(now_line(1), "homemade-7b"))
    assert "unknown" in done("usage").out.splitlines()[1]
    assert done("usage", "--json").json["cost"] == {"usd": None, "unknown_models": ["homemade-7b"]}
    session(done, home, "s-2", now_line(2, output_tokens=100_000))
    told = done("usage", "--by", "mission").out
    assert sorted(line.split()[-1] for line in told.splitlines()[1:3]) == ["$1.50", "unknown"]
    assert re.search(r"^total .*\$1\.50 \+ unknown$", told, re.MULTILINE)
    assert "The table has no price for: homemade-7b." in told


def test_without_the_price_table_there_is_no_money(
    daemon: Daemon, done: Done, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    session(done, home, "s-1", now_line(1))
    told = done("usage").out
    assert "COST" not in told
    assert "Cost: install fleetd[cost] to see it." in told
    document = done("usage", "--json").json
    assert (document["cost"], document["prices"]) == (None, None)


def test_days_models_and_filters(daemon: Daemon, done: Done, home: Path) -> None:
    session(done, home, "s-1", now_line(1), of_model(now_line(2), "claude-haiku-4-5"))
    days = done("usage", "--by", "day", "--timezone", "UTC").out.splitlines()
    assert re.match(r"20\d\d-\d\d-\d\d  claude-haiku-4-5, claude-sonnet-4-5 ", days[1])
    models = done("usage", "--by", "model", "--since", "1h", "--agent", "claude-s-1").out
    named = sorted(line.split()[0] for line in models.splitlines()[1:3])
    assert named == ["claude-haiku-4-5", "claude-sonnet-4-5"]
    assert done("usage", "--since", "10s").out.startswith("No usage found.")


def test_what_is_not_known_is_said(daemon: Daemon, done: Done, home: Path) -> None:
    hook(done, "s-1", "UserPromptSubmit", home, prompt="Go")
    [_, row, *_] = done("usage").out.splitlines()
    assert re.split(r"\s{2,}", row) == ["claude-s-1", *["not known"] * 6]
    assert "Not known: what 1 agent took (claude)." in done("usage", "--by", "day").out


def test_a_budget_adds_a_line_to_attention_and_stops_nothing(
    daemon: Daemon, done: Done, home: Path
) -> None:
    session(done, home, "s-1", now_line(1, output_tokens=100_000))
    mission = done("mission", "list", "--json").json[0]["id"]
    said = done("usage", "--mission", mission, "--budget", "1usd").out
    assert said == f"Budget of {mission}: $1.00  Task s-1\n"
    assert "Budget: $1.00, taken $1.50." in done("usage", "--mission", mission).out
    expected = f"{mission}  over budget: $1.00, taken $1.50  Task s-1"
    assert done("attention").out.splitlines()[-1] == expected
    done("usage", "--mission", mission, "--budget", "5usd")
    assert "budget" not in done("attention").out
    done("usage", "--mission", mission, "--budget", "2ktok")
    taken = f"{101 + 100_000 + 1_000 + 50:,}"
    expected = f"{mission}  over budget: 2,000 tokens, taken {taken} tokens  Task s-1"
    assert done("attention").out.splitlines()[-1] == expected
    hook(done, "s-1", "UserPromptSubmit", home, prompt="Go on")
    assert done("usage", "--mission", mission, "--budget", "none").out.startswith("Budget of")
    assert "budget" not in done("attention").out


def test_a_budget_in_money_without_prices_says_so(
    daemon: Daemon, done: Done, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session(done, home, "s-1", now_line(1))
    mission = done("mission", "list", "--json").json[0]["id"]
    done("usage", "--mission", mission, "--budget", "1usd")
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    last = done("attention").out.splitlines()[-1]
    assert last == f"{mission}  budget: $1.00, taken unknown without fleetd[cost]  Task s-1"


@pytest.mark.parametrize("words", [(), ("--by", "model"), ("--by", "mission")])
def test_names_of_models_and_missions_are_escaped(
    daemon: Daemon, done: Done, home: Path, words: tuple[str, ...]
) -> None:
    evil = "red\x1b[31m\u202e\nnext"
    file = TranscriptFile(home / "s.jsonl")
    told = {"prompt": evil, "transcript_path": str(file.path)}
    hook(done, "s-1", "UserPromptSubmit", home, **told)
    file.add(of_model(now_line(1, output_tokens=1_000_000), evil))
    mission = done("mission", "list", "--json").json[0]["id"]
    done("usage", "--mission", mission, "--budget", "1tok")
    for said in (done("usage", *words).out, done("attention").out):
        assert "red" in said
        assert all(char.isprintable() or char == "\n" for char in said)


def test_bad_input(daemon: Daemon, run: Callable[..., Result]) -> None:
    assert run("usage", "--mission", "msn-00000000").status == 4
    assert run("usage", "--agent", "nobody").status == 4
    assert run("usage", "--mission", "msn-00000000", "--budget", "5usd").status == 4
    assert run("usage", "--by", "week").status == 2
    assert run("usage", "--timezone", "Europe/Nowhere").status == 2
    assert run("usage", "--budget", "5usd", "--by", "day").status == 2


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("5usd", (None, 500)),
        ("0.5 USD", (None, 50)),
        ("2Mtok", (2_000_000, None)),
        ("1.5ktok", (1_500, None)),
        ("800tok", (800, None)),
        ("none", (None, None)),
    ],
)
def test_amounts(text: str, amount: tuple[int | None, int | None]) -> None:
    assert amount_of(text) == amount


@pytest.mark.parametrize("text", ["", "5", "usd", "-5usd", "0usd", "5eur", "1e9tok", "0.001usd"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="5usd, 500ktok, 2Mtok, or none"):
        amount_of(text)


@pytest.mark.parametrize(
    ("zone", "name"), [("Asia/Kolkata", "Asia/Kolkata"), (":UTC", "UTC"), ("XYZ-5:45", "+05:45")]
)
def test_the_zone_of_the_shell(zone: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert local_zone() == name
    finally:
        monkeypatch.undo()
        time.tzset()


def usage_of(model: str, requests: int, given: int) -> Any:
    return PlainRecord(
        model=model,
        requests=requests,
        input_tokens=given,
        output_tokens=0,
        cache_read_tokens=0,
        cache_write_tokens=0,
        cache_write_1h_tokens=0,
        last_at="2026-01-05T12:00:00.000Z",
    )


def test_many_small_requests_do_not_cost_what_a_large_one_does() -> None:
    prices = PriceTable()
    small = prices.cost([usage_of("gemini-2.5-pro", 10, 1_000_000)])
    large = prices.cost([usage_of("gemini-2.5-pro", 1, 1_000_000)])
    assert (small.usd, large.usd) == (Decimal("1.25"), Decimal("2.5"))


def test_amounts_below_a_cent_are_not_nothing() -> None:
    told = [dollars(Decimal(each)) for each in ("0", "0.004", "0.01", "1234.5")]
    assert told == ["$0.00", "<$0.01", "$0.01", "$1,234.50"]
