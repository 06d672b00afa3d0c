"""Cutting bytes into lines: blank ones are skipped, however many there are."""

import pytest

from fleetd.wire.frames import LineDecoder


def lines_of(decoder: LineDecoder) -> list[bytes]:
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
