"""The client's JSON: what ``json`` says of the same, good or bad."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleetctl.client import plain_json

ROOT = Path(plain_json.__file__).parents[2]
GOOD = [
    b'{"a":[1,2.5,-0.0,null,true,{"b":{}}],"a":2}',
    b"  [1e400,-Infinity,NaN] \r\n",
    b'"\\ud83d\\ude00\\n\\u0000"',
    '{"é":"漢😀"}'.encode(),
    b"12345678901234567890",
    b'\xef\xbb\xbf{"a":1}',
    '{"utf":16}'.encode("utf-16"),
]
BAD = [
    *(b"", b" ", b"{", b"[1,]", b"1 2", b"nul", b'{"a" 1}', b'"\n"', b"\x00", b'{"a":1}x', b'"'),
    *(b"\xff", b"'a'", b"+1", b"01", b'"\\q"', b'{"a":"\xff"}'),
]
SAID: list[Any] = [
    {"a": [1, 2.5, None, True, 'é\u2028\n"\\', {}], "b": float("inf"), 1: 2, "c": []},
    "\ud800",
    [],
]


@pytest.mark.parametrize("in_c", [True, False])
@pytest.mark.parametrize("data", [*GOOD, *BAD])
def test_what_is_read_or_refused_is_what_json_reads_or_refuses(
    data: bytes, in_c: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_c:
        monkeypatch.setattr(plain_json, "_in_c", None)

    def outcome(read: Any) -> str:
        try:
            return repr(read())
        except ValueError as error:
            return f"{type(error).__name__}: {error}"

    expected = outcome(lambda: json.loads(data, object_hook=dict))
    assert outcome(lambda: plain_json.loads(data, dict)) == expected
    assert outcome(lambda: plain_json.loads(bytearray(data), dict)) == expected
    assert (data in GOOD) == (not expected.split(":")[0].endswith("Error"))


@pytest.mark.parametrize("in_c", [True, False])
@pytest.mark.parametrize("value", SAID)
def test_what_is_written_is_what_json_writes(
    value: Any, in_c: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_c:
        monkeypatch.setattr(plain_json, "_in_c", None)
    expected = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert plain_json.dumps(value) == expected


@pytest.mark.parametrize("data", ["{", '{"a":1}x', '"'])
def test_what_is_refused_is_refused_also_before_json_was_imported(data: str) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from fleetctl.client import plain_json
assert "json" not in sys.modules
try:
    plain_json.loads({data!r}.encode(), dict)
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True)
    with pytest.raises(ValueError, match="char") as expected:
        json.loads(data)
    assert done.stdout.strip() == str(expected.value)


def test_what_is_no_data_and_what_nests_too_deep_is_refused() -> None:
    with pytest.raises(TypeError, match="Object of type set is not JSON serializable"):
        plain_json.dumps({1})
    with pytest.raises(RecursionError):
        plain_json.loads(b"[" * 100_000, dict)
