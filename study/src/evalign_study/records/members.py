"""Members of a gzip file in which every flipped bit is detected.

A file of records is a sequence of gzip members, one for each write, so that `zcat` reads it. Gzip's
own CRC-32 covers the content. It covers neither the header nor those packed bits that make no
difference to the content. So each member's header has a field of its own (RFC 1952, "extra"), with
the number of bytes that follow, their CRC-32, and a CRC-32 of these two. This tells a member that
was cut off from a damaged one: its header is right, or cut off itself, and the file ends too early.
"""

import struct
import zlib
from typing import NamedTuple

# Deflate, one extra field "ev" of 12 bytes, no time, best compression, unknown system.
FIXED = bytes.fromhex("1f8b0804 00000000 02ff 1000") + b"ev" + struct.pack("<H", 12)
HEADER = len(FIXED) + 12


class Damaged(ValueError):
    """The error for bytes that differ from those written."""


class Unpacked(NamedTuple):
    """The content of a member, and the position of the first byte after it."""

    content: bytes
    end: int


def pack(content: bytes) -> bytes:
    """Make a member. Equal contents make equal members."""
    deflate = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    body = deflate.compress(content) + deflate.flush()
    body += struct.pack("<II", zlib.crc32(content), len(content) % 2**32)
    about = struct.pack("<II", len(body), zlib.crc32(body))
    return FIXED + about + struct.pack("<I", zlib.crc32(about)) + body


def unpack(written: bytes, start: int) -> Unpacked | None:
    """Read the member at a position; return None if it was cut off.

    Raises:
        Damaged: if it differs from what was written.
    """
    header = written[start : start + HEADER]
    if len(header) < HEADER:
        if not FIXED.startswith(header[: len(FIXED)]):
            raise Damaged
        return None
    about = header[len(FIXED) : -4]
    if not header.startswith(FIXED) or struct.unpack("<I", header[-4:])[0] != zlib.crc32(about):
        raise Damaged
    size, checksum = struct.unpack("<II", about)
    end = start + HEADER + size
    if end > len(written):
        return None
    body = written[start + HEADER : end]
    if zlib.crc32(body) != checksum:
        raise Damaged
    return Unpacked(zlib.decompress(body[:-8], wbits=-zlib.MAX_WBITS), end)
