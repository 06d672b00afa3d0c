"""``fleetctl export``: missions as traces, to a file, to stdout, or to a collector."""

import ssl
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.commands import export
from fleetctl.export import encoding
from tests.cli.test_attention import hook
from tests.support.certificates import Authority
from tests.support.collector import Collector
from tests.support.processes import Daemon, Result

Run = Callable[..., Result]
SECRET = "do-not-show"


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Return a collector that takes everything."""
    with Collector().running() as running:
        yield running


@pytest.fixture
def session(daemon: Daemon, done: Run, home: Path) -> str:
    """Return the mission of a session that ran a command, which failed, and was compacted."""
    hook(done, "s-1", "UserPromptSubmit", home, prompt=f"{SECRET} prompt")
    command = {"tool_name": "Bash", "tool_use_id": "c1", "tool_input": {"command": "make test"}}
    hook(done, "s-1", "PreToolUse", home, **command)
    hook(done, "s-1", "PostToolUseFailure", home, **command, error="Exit code 2")
    hook(done, "s-1", "PreCompact", home, trigger="auto")
    hook(done, "s-1", "SessionStart", home, source="compact")
    hook(done, "s-1", "Stop", home, last_assistant_message=f"{SECRET} answer")
    [mission] = done("mission", "list", "--json").json
    return str(mission["id"])


def shape(collector: Collector) -> list[str]:
    """Return the names of the spans, each below its parent; checks that it lies within."""
    by_id = {span.span_id: span for span in collector.spans}
    for span in collector.spans:
        if span.parent_span_id:
            parent = by_id[span.parent_span_id]
            assert parent.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= parent.end_time_unix_nano
        assert span.start_time_unix_nano <= span.end_time_unix_nano
    return sorted(
        f"{by_id[span.parent_span_id].name if span.parent_span_id else '-'} > {span.name}"
        for span in collector.spans
    )


def test_a_collector_decodes_every_span(session: str, done: Run, collector: Collector) -> None:
    told = done("export", session, "--format", "otlp", "--endpoint", collector.url)
    assert told.out == f"Exported 4 spans of 1 mission to {collector.url}.\n"
    assert shape(collector) == [
        f"- > invoke_workflow {session}",
        "invoke_agent claude-s-1 > compaction",
        "invoke_agent claude-s-1 > execute_tool Bash",
        f"invoke_workflow {session} > invoke_agent claude-s-1",
    ]
    tool = next(span for span in collector.spans if span.name == "execute_tool Bash")
    values = {each.key: each.value.string_value for each in tool.attributes}
    assert values["gen_ai.operation.name"] == "execute_tool"
    assert values["gen_ai.tool.call.arguments"] == '{"command":"make test"}'
    assert tool.status.code == tool.status.STATUS_CODE_ERROR
    assert collector.paths == ["/v1/traces"]


@pytest.mark.parametrize("form", ["json", "otlp"])
def test_twice_is_the_same_byte_for_byte(
    session: str, done: Run, collector: Collector, home: Path, form: str
) -> None:
    files = [home / "one", home / "two"]
    for file in files:
        done("export", session, "--format", form, "--endpoint", collector.url)
        done("export", session, "--format", form, "--out", str(file))
    one, two = (file.read_bytes() for file in files)
    assert one == two == collector.bodies[0] == collector.bodies[1]
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o600
    assert SECRET.encode() not in one
    done("export", session, "--format", form, "--out", str(files[0]), "--with-prompts")
    assert files[0].read_bytes().count(SECRET.encode()) >= 3


def test_all_missions_are_exported_and_batches_are_bounded(
    session: str,
    done: Run,
    collector: Collector,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done("mission", "create", "Second", "--sortie", "One")
    monkeypatch.setattr(export, "MOST_SPANS", 2)
    whole = home / "whole"
    for more in (("--all",), ("--since", "1h"), ("--all", "--since", "1h")):
        collector.bodies.clear()
        collector.spans.clear()
        told = done("export", *more, "--endpoint", collector.url, "--json").json
        assert (told["missions"], told["format"], told["to"]) == (2, "json", collector.url)
        assert told["spans"] == len(collector.spans) >= 5
        assert told["requests"] == len(collector.bodies) == (told["spans"] + 1) // 2
    done("export", "--all", "--out", str(whole))
    assert whole.read_bytes() == b"".join(collector.bodies)
    assert len(whole.read_text().splitlines()) == told["requests"]
    assert done("export", "--since", "0s", "--out", str(whole)).out.startswith("Exported 0 spans")
    assert done("export", "--all", "--format", "otlp", "--out", str(whole)).status == 0
    found = Collector()
    found.take("application/x-protobuf", whole.read_bytes())
    assert len(found.spans) == told["spans"]


def test_without_a_place_the_spans_are_printed(session: str, home: Path) -> None:
    command = [sys.executable, "-m", "fleetctl", "export", session]
    for more in ([], ["--format", "otlp"]):
        printed = subprocess.run([*command, *more], capture_output=True, check=True).stdout
        found = Collector()
        found.take("application/x-protobuf" if more else "application/json", printed)
        assert len(found.spans) == 4


def test_a_collector_that_is_down_or_refuses_is_exit_1_and_can_be_repeated(
    session: str,
    done: Run,
    run: Run,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = run("export", session, "--endpoint", "http://127.0.0.1:1")
    assert result.status == 1
    assert "http://127.0.0.1:1 does not answer: Connection refused" in result.err
    monkeypatch.setattr(export, "MOST_SPANS", 1)
    for status, words in ((503, "HTTP status 503"), (302, "status 302"), (401, "status 401")):
        collector.status, collector.fails_from = status, len(collector.bodies) + 3
        result = run("export", session, "--endpoint", collector.url)
        assert result.status == 1
        assert words in result.err
        assert "It took 2 spans before." in result.err
    collector.fails_from, collector.rejects = 10**9, 3
    for form in ("json", "otlp"):
        result = run("export", session, "--endpoint", collector.url, "--format", form)
        assert result.status == 1
        assert "rejected 3 spans: too" in result.err
        assert "\x1b" not in result.err
    collector.rejects = 0
    collector.spans.clear()
    done("export", session, "--endpoint", collector.url, "--format", "otlp")
    assert len(shape(collector)) == 4


def test_nothing_of_a_url_is_shown_but_its_host(
    session: str,
    run: Run,
    done: Run,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-key={SECRET},x-team=a%20b")
    url = collector.url.replace("http://", f"http://me:{SECRET}@") + f"/in?key={SECRET}"
    told = done("export", session, "--endpoint", url)
    assert SECRET not in told.out + told.err
    assert collector.paths == [f"/in/v1/traces?key={SECRET}"]
    [headers] = collector.headers
    assert (headers["x-key"], headers["x-team"]) == (SECRET, "a b")
    assert headers["Authorization"].startswith("Basic ")
    collector.status, collector.fails_from = 500, 1
    for wrong in (
        url,
        f"http://{SECRET}.example/",
        f"ftp://me:{SECRET}@localhost/",
        SECRET,
        "http://[",
    ):
        result = run("export", session, "--endpoint", wrong)
        assert result.status in (1, 2)
        assert SECRET not in result.out + result.err
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"{SECRET}\r\nx")
    result = run("export", session, "--endpoint", url)
    assert result.status == 2
    assert SECRET not in result.err


def test_a_certificate_is_verified(
    session: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path, "authority")
    with Collector().running(authority.sign("localhost")) as collector:
        result = run("export", session, "--endpoint", collector.url)
        assert result.status == 1
        assert "TLS failed" in result.err
        assert collector.bodies == []
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        assert ssl.get_default_verify_paths().cafile == str(authority.certificate)
        assert run("export", session, "--endpoint", collector.url).status == 0
        assert len(collector.spans) == 4
    with Collector().running(authority.sign("elsewhere.example")) as collector:
        result = run("export", session, "--endpoint", collector.url)
        assert "TLS failed" in result.err
        assert collector.bodies == []


def test_without_the_package_the_command_is_named_that_installs_it(
    session: str, run: Run, done: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "is_installed", lambda: False)
    result = run("export", session, "--format", "otlp", "--endpoint", "http://localhost:1")
    assert result.status == 1
    assert "opentelemetry-proto, which is not installed" in result.err
    assert "pip install" in result.err
    assert "opentelemetry-proto>=1." in result.err
    assert done("export", session, "--out", "/dev/null").status == 0


def test_what_does_not_go_together_is_refused_and_who_is_unknown_is_not_found(
    session: str, run: Run, home: Path
) -> None:
    for wrong in (
        ("--out", "x", "--endpoint", "http://localhost"),
        (session, "--all"),
        (session, "--since", "1h"),
        (session, "--json"),
        ("--out", ""),
        ("--format", "xml"),
    ):
        assert run("export", *wrong).status == 2, wrong
    assert run("export", "msn-00000000", "--out", str(home / "x")).status == 4
    assert not (home / "x").exists()
    assert run("export", session, "--out", str(home / "none" / "x")).status == 1
