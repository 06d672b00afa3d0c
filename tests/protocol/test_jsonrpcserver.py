"""What rpc.py relies on in jsonrpcserver, and what must never come out of it."""

import inspect
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fleetd
from fleetd.protocol import requests
from fleetd.protocol.methods import METHODS
from fleetd.protocol.request import Request
from fleetd.server import rpc


async def test_the_inner_entry_of_the_library_is_still_the_one_we_call() -> None:
    async def method(context: Any, /, *args: Any, **named: Any) -> Any:
        return rpc.Success([context, list(args), named])

    assert list(inspect.signature(rpc.dispatch_request).parameters) == [
        "methods",
        "context",
        "request",
    ]
    request = rpc.LibraryRequest("m", {"a": 1}, "id-1")
    echoed, result = await rpc.dispatch_request({"m": method}, "the context", request)
    assert echoed is request
    assert result._value == rpc.SuccessResult(["the context", [], {"a": 1}])


async def test_the_library_refuses_an_unknown_method_the_way_we_read_it() -> None:
    request = rpc.LibraryRequest("nowhere", [], rpc.NOID)
    _, result = await rpc.dispatch_request({}, None, request)
    assert isinstance(result, rpc.Left)
    assert result._error == rpc.ErrorResult(-32601, "Method not found", "nowhere")


def test_importing_it_is_silent_when_warnings_are_errors() -> None:
    root = Path(fleetd.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import fleetd.server.rpc"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_only_rpc_imports_the_library() -> None:
    package = Path(fleetd.__file__).parent
    importing = {
        file.name
        for file in package.rglob("*.py")
        if any(
            line.strip().startswith(("from jsonrpcserver", "import jsonrpcserver"))
            for line in file.read_text(encoding="utf-8").splitlines()
        )
    }
    assert importing == {"rpc.py"}


def test_every_method_of_the_protocol_is_in_the_table() -> None:
    async def perform(request: Any, context: Any) -> None: ...

    assert rpc.methods_for(perform).keys() == METHODS.keys()
    declared = {
        each.method
        for _, noun in inspect.getmembers(requests, inspect.ismodule)
        for _, each in inspect.getmembers(noun, inspect.isclass)
        if issubclass(each, Request) and each.method
    }
    assert METHODS.keys() == declared


async def broken(context: Any, /) -> Any:
    raise RuntimeError("the secret is 42")


async def unsendable(context: Any, /) -> Any:
    return rpc.Success(object())


@pytest.mark.parametrize("method", [broken, unsendable])
async def test_a_bug_becomes_an_incident_without_its_text(
    serve: Callable[..., Any], caplog: pytest.LogCaptureFixture, method: Any
) -> None:
    with caplog.at_level(logging.ERROR):
        async with serve({"demo": method}) as running:
            client = await running.connect()
            error = await client.error("demo")
    assert (error["code"], error["message"]) == (-32603, "Internal error")
    assert error["data"].keys() == {"kind", "hint", "incident"}
    assert "42" not in error["message"] + error["data"]["hint"].replace(
        error["data"]["incident"], ""
    )
    (record,) = [r for r in caplog.records if error["data"]["incident"] in r.getMessage()]
    assert record.exc_info is not None


async def test_a_plain_method_with_wrong_arguments_gets_our_kind_of_error(
    serve: Callable[..., Any],
) -> None:
    async def add(context: Any, /, a: int, b: int) -> Any:
        return rpc.Success(a + b)

    async with serve({"add": add}) as running:
        client = await running.connect()
        error = await client.error("add", [1])
    assert error["code"] == -32602
    assert error["data"]["kind"] == "invalid_params"
    assert "'b'" in error["data"]["detail"]
