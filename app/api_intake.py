"""``POST /api/v1/outputs``, ``/api/v1/outcomes`` and OTLP/HTTP (``/api/v1/otlp/v1/traces``, ``/v1/logs``): who may, how much,
what comes back.

A token needs the scope ``outputs:write`` or ``outcomes:write``. Without authentication only this machine may send without one,
never a browser: a request that carries ``Origin``, a forwarding header or a ``Host`` that is not this machine is refused, so that
neither a web page nor a proxy in front speaks for somebody on loopback.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import anyio
import orjson
import zstandard
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.auth import FORWARDED, is_loopback, principal_of
from app.services.intake import REFUSED, Busy, Intake, Taken, shared_intake
from app.services.people import Forbidden, allow
from app.storage import configuration
from collectors import otlp
from core.config import Config
from core.errors import ConfigError, GustfrontError, InputError, StoreError

JSON_TYPES = ("application/json", "application/x-ndjson", "application/jsonl")


class Refused(Exception):
    """A body that is not taken, with its HTTP status."""

    def __init__(self, status: int, code: str, message: str, fix: str = "", **headers: str) -> None:
        self.status, self.code, self.message, self.fix, self.headers = status, code, message, fix, headers
        super().__init__(message)


def allowed(request: Request, config: Config, scope: str) -> None:
    """Whether this sender may; ``Refused`` (401, 403) otherwise. A token needs ``scope``, a person the role responder."""
    if config.intake.accept == "nothing":
        raise Refused(403, "intake_off", "receiving outputs is switched off", "set intake.accept: local")
    try:
        who = principal_of(request)
        allow(who, "responder", scope)
    except Forbidden as error:
        raise Refused(403, "forbidden", str(error), error.fix) from None
    if who.via == "token":
        return
    fix = f"send Authorization: Bearer TOKEN; gustfront tokens create NAME --scopes {scope} makes one"
    if config.intake.accept == "token":
        raise Refused(401, "no_token", "a token is needed", fix)
    if who.via == "local" and not _from_here(request):
        raise Refused(401, "no_token", "from another machine a token is needed", fix)
    if who.via == "local" and "origin" in request.headers:
        raise Refused(403, "browser", "web pages may not send", "send from a program, or with a token")


def _from_here(request: Request) -> bool:
    host = (
        request.headers.get("host", "").rsplit(":", 1)[0]
        if not request.headers.get("host", "").endswith("]")
        else request.headers["host"]
    )
    return (
        request.client is not None
        and is_loopback(request.client.host)
        and (host == "localhost" or is_loopback(host.strip("[]")))
        and not any(name in request.headers for name in FORWARDED)
    )


async def read_body(request: Request, limit: int) -> bytes:
    """The body, unpacked, at most ``limit`` bytes; ``Refused`` (413, 415, 400)."""
    too_long = Refused(
        413,
        "too_long",
        f"the body is longer than {limit} bytes",
        "send fewer records at once, or raise intake.max_body",
    )
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise too_long
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > limit:
            raise too_long
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding in ("identity", ""):
        return bytes(raw)
    if coding not in ("gzip", "deflate", "zstd"):
        raise Refused(
            415,
            "bad_encoding",
            f"content encoding {coding[:40]} is not understood",
            "send gzip, zstd or identity",
        )
    try:
        body = await anyio.to_thread.run_sync(_unpacked, bytes(raw), coding, limit)
    except (zlib.error, zstandard.ZstdError, EOFError) as error:
        raise Refused(
            400, "bad_encoding", f"the body cannot be unpacked: {error}", f"send valid {coding}"
        ) from None
    if len(body) > limit:
        raise too_long
    return body


def _unpacked(raw: bytes, coding: str, limit: int) -> bytes:
    """At most ``limit`` + 1 bytes, whatever the body claims."""
    if coding == "zstd":
        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(raw) as stream:
            return stream.read(limit + 1)
    unpacker = zlib.decompressobj(wbits=47 if coding == "gzip" else 15)
    body = unpacker.decompress(raw, limit + 1)
    if not unpacker.eof and not unpacker.unconsumed_tail:
        raise EOFError("it breaks off")
    return body


def content_type(request: Request, *known: str) -> str:
    """The media type; ``Refused`` (415) unless it is one of ``known``. A form, which any web page can send, never is."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in known:
        raise Refused(
            415,
            "bad_content_type",
            f"content type {given[:60] or '(none)'} is not understood",
            f"send {' or '.join(known)}",
        )
    return given


def records_of(body: bytes, kind: str, key: str, limit: int) -> list[dict[str, Any]]:
    """The records of a JSON or JSON-lines body: a list, ``{key: [...]}``, or one object."""
    try:
        data = (
            [orjson.loads(line) for line in body.splitlines() if line.strip()]
            if kind != JSON_TYPES[0]
            else orjson.loads(body)
        )
    except orjson.JSONDecodeError as error:
        raise Refused(
            400,
            "not_json",
            f"the body is not JSON: {error}",
            "send JSON, or JSON lines as application/x-ndjson",
        ) from None
    if isinstance(data, dict):
        data = data[key] if isinstance(data.get(key), list) else [data]
    if not isinstance(data, list) or not all(isinstance(r, dict) for r in data):
        raise Refused(
            400,
            "bad_request",
            "the body holds something that is no object",
            f'send {{"{key}": [{{...}}, ...]}}',
        )
    if len(data) > limit:
        raise Refused(
            413,
            "too_many",
            f"{len(data)} records at once",
            f"send at most {limit}, or raise intake.max_records",
        )
    return data


Work = Callable[[Intake, bytes, str, Request], Taken]


def _posted(
    work: Work, types: tuple[str, ...], answer: Callable[[Taken, str], Response], scope: str
) -> Callable[[Request], Any]:
    """A route that takes a body: checks first, the work in a thread, every refusal in the API's one error shape."""

    async def endpoint(request: Request) -> Response:
        try:
            config = configuration()
            allowed(request, config, scope)
            kind = content_type(request, *types)
            body = await read_body(request, config.intake.max_body)
            taken = await anyio.to_thread.run_sync(work, shared_intake(config), body, kind, request)
            if taken.bad and taken.bad == taken.received:
                first = taken.problems[0][1]
                message = f"not one of {taken.received} records can be used; the first {first.what}"
                raise Refused(400, first.code, message, first.fix)
            return answer(taken, kind)
        except Refused as error:
            return _refusal(error)
        except Busy as error:
            text = str(error.retry_after)
            return _refusal(
                Refused(
                    429,
                    "busy",
                    "other bodies are still being stored",
                    f"try again in {text} s",
                    **{"Retry-After": text},
                )
            )
        except ConfigError as error:
            return _refusal(Refused(400, "bad_request", f"{error.path}: {error.problem}", error.fix))
        except InputError as error:
            return _refusal(Refused(400, "bad_request", f"{error.where} {error.problem}", error.fix))
        except StoreError as error:
            return _refusal(Refused(503, "store_unavailable", str(error), **{"Retry-After": "5"}))
        except GustfrontError as error:
            return _refusal(Refused(500, "failed", str(error)))
        except ClientDisconnect:
            return Response(status_code=499)

    return endpoint


def _refusal(error: Refused) -> Response:
    REFUSED.labels(str(error.status)).inc()
    body = {"error": {"code": error.code, "message": error.message, "fix": error.fix}}
    return JSONResponse(body, status_code=error.status, headers=error.headers)


def _take_outputs(intake: Intake, body: bytes, kind: str, request: Request) -> Taken:
    records = records_of(body, kind, "outputs", intake.config.intake.max_records)
    return intake.outputs(records, request.query_params.get("format", "auto"))


def _take_outcomes(intake: Intake, body: bytes, kind: str, request: Request) -> Taken:
    return intake.outcomes(records_of(body, kind, "outcomes", intake.config.intake.max_records))


def _take_spans(intake: Intake, body: bytes, kind: str, request: Request) -> Taken:
    return intake.spans(otlp.decode(body, kind, request.path_params["signal"]))


def _json(taken: Taken, kind: str) -> Response:
    return JSONResponse(taken.as_json())


def _otlp_answer(taken: Taken, kind: str) -> Response:
    """OTLP's own answer: empty, or how many were refused and why. The counts stand in headers."""
    headers = {"X-Gustfront-Stored": str(taken.stored), "X-Gustfront-Already-There": str(taken.already_there)}
    reason = f"a record {taken.problems[0][1].what}" if taken.problems else ""
    if kind == otlp.PROTOBUF:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

        # logs answer with the same two fields under the same numbers
        message = ExportTraceServiceResponse()
        if taken.bad:
            message.partial_success.rejected_spans = taken.bad
            message.partial_success.error_message = reason
        return Response(message.SerializeToString(), media_type=otlp.PROTOBUF, headers=headers)
    partial = (
        {"partialSuccess": {"rejectedSpans": str(taken.bad), "errorMessage": reason}} if taken.bad else {}
    )
    return JSONResponse(partial, headers=headers)


def routes() -> list[Route]:
    """The routes that take bodies."""
    otlp_route = _posted(_take_spans, (otlp.JSON, otlp.PROTOBUF), _otlp_answer, "outputs:write")
    return [
        Route(
            "/api/v1/outputs", _posted(_take_outputs, JSON_TYPES, _json, "outputs:write"), methods=["POST"]
        ),
        Route(
            "/api/v1/outcomes", _posted(_take_outcomes, JSON_TYPES, _json, "outcomes:write"), methods=["POST"]
        ),
        *(
            Route(f"/api/v1/otlp/v1/{s}", _with_signal(otlp_route, s), methods=["POST"])
            for s in ("traces", "logs")
        ),
    ]


def _with_signal(route: Callable[[Request], Any], signal: str) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        request.path_params["signal"] = signal
        return await route(request)  # type: ignore[no-any-return]

    return endpoint
