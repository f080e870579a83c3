"""Pieces of HTTP/1.1 for scraping: requests, response heads, content encodings, and what can go wrong."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

HEAD_LIMIT = 64 * 1024


class WireError(Exception):
    """A GET failed. ``kind``: refused, unreachable, dns, timeout, too_large, truncated, bad_http, bad_encoding, tls, reset."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


@dataclass(slots=True)
class Response:
    """Status, headers with lower-case names, and the decoded body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def parse_head(raw: bytes) -> tuple[int, dict[str, str]]:
    lines = raw.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ", 2)
    if (
        len(parts) < 2
        or not parts[0].startswith("HTTP/1.")
        or not (len(parts[1]) == 3 and parts[1].isdigit())
    ):
        raise WireError("bad_http", f"this is not an HTTP/1 answer: {lines[0][:60]!r}")
    head: dict[str, str] = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        head[name.strip().lower()] = value.strip()
    if parts[0] == "HTTP/1.0" and head.get("connection", "").lower() != "keep-alive":
        head["connection"] = "close"
    return int(parts[1]), head


def decode(body: bytes, encoding: str, limit: int) -> bytes:
    """Undo gzip or deflate without ever holding more than ``limit`` decoded bytes."""
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise WireError(
            "bad_encoding", f"the answer is encoded as {encoding[:40]!r}, which was not asked for"
        )
    out = bytearray()
    rest = body
    try:
        while rest:
            decoder = zlib.decompressobj(wbits=47)  # gzip or zlib header, found by itself
            out += decoder.decompress(rest, limit + 1 - len(out))
            if len(out) > limit:
                raise WireError("too_large", f"the decoded answer is longer than the limit of {limit} bytes")
            if not decoder.eof:
                raise WireError("truncated", "the compressed answer ends in the middle")
            rest = decoder.unused_data.lstrip(b"\0")
    except zlib.error as error:
        raise WireError("bad_encoding", f"the answer cannot be decompressed: {error}") from None
    return bytes(out)


def get_request(host_header: str, path: str, headers: Mapping[str, str]) -> bytes:
    """The bytes of a GET request. Raises ValueError for control characters anywhere (header injection)."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {host_header}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if any(ord(c) < 32 or ord(c) == 127 for line in lines for c in line) or " " in path:
        raise ValueError("an address, path or header contains control characters or spaces")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")
