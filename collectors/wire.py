"""A lean HTTP/1.1 GET client for scraping: one kept-alive connection a target, one shared read buffer, hard limits.

A general HTTP client costs more CPU than reading the numbers of a body whose lines are already known, so the hot path speaks HTTP
itself: one request at a time on a connection, length or chunked or until-close bodies, gzip and deflate, TLS through the event
loop. It never follows a redirect (the caller decides), never trusts a length, and stops reading at ``limit`` bytes.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import cast

from collectors.http_parts import HEAD_LIMIT, Response, WireError, decode, parse_head

_BUFFER_SIZE = 256 * 1024


Done = Callable[[Response | WireError], None]


class _Shared:
    """One read buffer for every connection of a loop: data is copied out before the next read can happen."""

    def __init__(self) -> None:
        self.array = bytearray(_BUFFER_SIZE)
        self.view = memoryview(self.array)


_shared = _Shared()


class _Connection(asyncio.BufferedProtocol):
    """One TCP (or TLS) connection with at most one request in flight."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.closed = False
        self._done: Done | None = None
        self._reset(0)

    def _reset(self, limit: int) -> None:
        self._buf = bytearray()
        self._limit = limit
        self._head: Mapping[str, str] | None = None
        self._status = 0
        self._pos = 0
        self._length: int | None = None
        self._chunked = False
        self._body = bytearray()

    @property
    def busy(self) -> bool:
        """Whether an answer is awaited."""
        return self._done is not None

    # -- asyncio callbacks ---------------------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(
            asyncio.Transport, transport
        )  # also another loop's transport, which is no subclass

    def get_buffer(self, sizehint: int) -> memoryview:
        return _shared.view

    def buffer_updated(self, nbytes: int) -> None:
        if self._done is None:
            self.abort()  # data that nobody asked for: the connection can no longer be trusted
            return
        try:
            if self._buf or not self._whole(nbytes):
                self._buf += _shared.view[:nbytes]
                self._advance()
        except WireError as error:
            self._fail(error)

    def _whole(self, nbytes: int) -> bool:
        """Take an answer that arrived in one piece without copying it twice. False where it is not as simple as that."""
        end = _shared.array.find(b"\r\n\r\n", 0, nbytes)
        if end < 0:
            return False
        status, head = parse_head(bytes(_shared.view[:end]))
        if (
            status != 200
            or head.get("content-length") != str(nbytes - end - 4)
            or "transfer-encoding" in head
        ):
            return False
        if nbytes - end - 4 > self._limit:
            return False
        self._status, self._head, self._length = status, head, nbytes - end - 4
        self._finish(bytes(_shared.view[end + 4 : nbytes]))
        return True

    def eof_received(self) -> bool:
        if self._done is not None:
            if self._head is not None and self._length is None and not self._chunked:
                self._finish(bytes(self._buf[self._pos :]))
            elif self._head is None and not self._buf:
                self._fail(WireError("reset", "the connection was closed without an answer"))
            else:
                self._fail(WireError("truncated", "the connection was closed in the middle of the answer"))
        self.closed = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._done is not None:
            if self._head is None and not self._buf:
                self._fail(WireError("reset", "the connection was reset before an answer"))
            else:
                self._fail(WireError("truncated", "the connection broke in the middle of the answer"))

    # -- requests --------------------------------------------------------------------------------------------------
    def request(self, data: bytes, limit: int, done: Done) -> None:
        """Send one request; ``done`` is called once with the answer or what went wrong, from within the event loop."""
        assert self.transport is not None
        self._reset(limit)
        self._done = done
        self.transport.write(data)

    def abort(self) -> None:
        """Drop the connection at once; whoever waits is not told."""
        self.closed = True
        self._done = None
        if self.transport is not None:
            self.transport.abort()

    def _fail(self, error: WireError) -> None:
        done = self._done
        self.abort()
        if done is not None:
            done(error)

    def _finish(self, body: bytes) -> None:
        done, self._done = self._done, None
        head = self._head or {}
        if (self._length is None and not self._chunked) or head.get("connection", "").lower() == "close":
            self.closed = True
        self._buf = self._body = bytearray()
        if self.closed and self.transport is not None:
            self.transport.close()
        if done is None:
            return
        encoding = head.get("content-encoding", "").lower()
        if encoding not in ("", "identity"):
            try:
                body = decode(body, encoding, self._limit)
            except WireError as error:
                done(error)
                return
        done(Response(self._status, head, body))

    # -- parsing -----------------------------------------------------------------------------------------------------------------
    def _advance(self) -> None:
        while self._head is None:
            end = self._buf.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buf) > HEAD_LIMIT:
                    raise WireError("bad_http", f"no end of the response head within {HEAD_LIMIT} bytes")
                return
            self._status, head = parse_head(bytes(self._buf[:end]))
            self._pos = end + 4
            if 100 <= self._status < 200:  # interim answer: the real one follows
                del self._buf[: self._pos]
                continue
            self._head = head
            self._chunked = head.get("transfer-encoding", "").lower().endswith("chunked")
            if self._status in (204, 304):
                self._length = 0
            elif not self._chunked and "content-length" in head:
                text = head["content-length"]
                if not text.isascii() or not text.isdigit():
                    raise WireError("bad_http", f"Content-Length is {text[:40]!r}")
                self._length = int(text)
                if self._length > self._limit:
                    raise WireError(
                        "too_large", f"the answer announces {self._length} bytes, the limit is {self._limit}"
                    )
        if self._chunked:
            self._dechunk()
            return
        have = len(self._buf) - self._pos
        if self._length is None:
            if have > self._limit:
                raise WireError("too_large", f"the answer is longer than the limit of {self._limit} bytes")
        elif have >= self._length:
            if have > self._length:
                self.closed = True  # more than was announced: do not reuse
            self._finish(bytes(memoryview(self._buf)[self._pos : self._pos + self._length]))

    def _dechunk(self) -> None:
        buf, pos = self._buf, self._pos
        while True:
            eol = buf.find(b"\r\n", pos)
            if eol < 0:
                if len(buf) - pos > 1024:
                    raise WireError("bad_http", "a chunk size line is longer than 1024 bytes")
                break
            text = bytes(buf[pos:eol]).split(b";", 1)[0].strip()
            if not text or len(text) > 15 or text.strip(b"0123456789abcdefABCDEF"):
                raise WireError("bad_http", f"a chunk size is {text[:40]!r}")
            size = int(text, 16)
            if len(self._body) + size > self._limit:
                raise WireError("too_large", f"the answer is longer than the limit of {self._limit} bytes")
            if size == 0:
                end = eol if buf[eol : eol + 4] == b"\r\n\r\n" else buf.find(b"\r\n\r\n", eol)
                if end < 0:
                    if len(buf) - eol > HEAD_LIMIT:
                        raise WireError("bad_http", "the trailer is too long")
                    break
                self._finish(bytes(self._body))
                return
            if len(buf) < eol + 2 + size + 2:
                break
            self._body += memoryview(buf)[eol + 2 : eol + 2 + size]
            if buf[eol + 2 + size : eol + 4 + size] != b"\r\n":
                raise WireError("bad_http", "a chunk does not end where its size says")
            pos = eol + 4 + size
        del buf[:pos]
        self._pos = 0


class Session:
    """GETs to one host and port over a kept-alive connection. Not for concurrent use."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.host, self.port, self.tls = host, port, tls
        self._connection: _Connection | None = None

    @property
    def ready(self) -> bool:
        """Whether a kept connection can be asked at once."""
        connection = self._connection
        return connection is not None and not connection.closed and not connection.busy

    def ask(self, request: bytes, limit: int, done: Done) -> None:
        """Send a request on the kept connection (see ``ready``); ``done`` is called later, not after ``close``."""
        assert self._connection is not None
        self._connection.request(request, limit, done)

    async def get(self, request: bytes, *, timeout: float, limit: int) -> Response:
        """Send the bytes of one GET request; ``timeout`` seconds bound everything from connecting to the last byte.

        Raises :class:`WireError`. A kept-alive connection that the server closed meanwhile is replaced once, silently.
        """
        try:
            async with asyncio.timeout(timeout):
                if self.ready:
                    try:
                        return await self._answer(request, limit)
                    except WireError as error:
                        if error.kind != "reset":
                            raise
                self.close()
                self._connection = await self._connect()
                return await self._answer(request, limit)
        except TimeoutError:
            self.close()
            raise WireError("timeout", f"no complete answer within {timeout:g} s") from None
        except asyncio.CancelledError:
            self.close()
            raise

    async def _answer(self, request: bytes, limit: int) -> Response:
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def done(outcome: Response | WireError) -> None:
            if future.done():
                return
            if isinstance(outcome, WireError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self.ask(request, limit, done)
        return await future

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                _Connection,
                self.host,
                self.port,
                ssl=self.tls,
                server_hostname=self.host if self.tls else None,
            )
        except socket.gaierror as error:
            raise WireError(
                "dns", f"the name {self.host!r} cannot be resolved: {error.strerror or error}"
            ) from None
        except ssl.SSLError as error:
            raise WireError("tls", f"TLS failed: {error.reason or error}") from None
        except ConnectionRefusedError:
            raise WireError("refused", "the connection was refused") from None
        except TimeoutError:
            raise
        except OSError as error:
            raise WireError("unreachable", f"no connection: {error.strerror or error}") from None
        return connection

    def close(self) -> None:
        """Drop the connection; the next ``get`` opens a new one."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
