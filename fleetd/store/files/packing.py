"""The compressed form of a file: gzip, the same bytes each time; must not touch the disk."""

import gzip
import zlib

# A snapshot is far smaller; whoever made a larger one wants to fill our memory.
MOST_BYTES = 64 * 1024 * 1024
_GZIP = 16 + zlib.MAX_WBITS


def packed(data: bytes) -> bytes:
    """Return the bytes compressed, without a name or a time in them."""
    return gzip.compress(data, mtime=0)


def unpacked(raw: bytes) -> bytes:
    """Return what was compressed; raises ValueError for anything that is not whole."""
    unpacking = zlib.decompressobj(_GZIP)
    try:
        data = unpacking.decompress(raw, MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"it is no gzip file: {error}") from error
    if not unpacking.eof:
        raise ValueError("it ends early" if not unpacking.unconsumed_tail else "it is too large")
    if unpacking.unused_data:
        raise ValueError("something follows its end")
    return data
