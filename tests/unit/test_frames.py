"""Cutting bytes into lines: blank ones are skipped, however many there are."""

import pytest

from fleetd.protocol.framing import HOOK_BEGINS, LineDecoder


def lines_of(decoder: LineDecoder) -> list[bytes | bytearray]:
    return list(iter(decoder.next_line, None))


@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b" \n", b"\t\r\n", b"\x0b\x0c\n"])
def test_blank_lines_are_skipped_however_many_come(blank: bytes) -> None:
    decoder = LineDecoder(1_024)
    decoder.feed(blank * 100_000 + b"first\n" + blank * 100_000 + b" second\r\n" + blank + b" ")

    assert lines_of(decoder) == [b"first", b" second"]
    assert decoder.partial

    decoder.feed(b"\nthird\n")
    assert lines_of(decoder) == [b"third"]
    assert not decoder.partial


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_what_follows_a_large_line_is_kept(end: bytes) -> None:
    decoder = LineDecoder(100, hook_limit=1_000)
    large = HOOK_BEGINS + b"x" * 500
    decoder.feed(large + end + b"second\n" + b"half")

    assert lines_of(decoder) == [large, b"second"]
    assert decoder.partial

    decoder.feed(b" a line\n")
    assert lines_of(decoder) == [b"half a line"]
