"""HTTP to receivers: one request to the configured host, nothing else.

Redirects are not followed, certificates are verified, the environment's proxies and ``~/.netrc`` are not used, answers are read
up to a limit and a deadline. What goes wrong is a :class:`SendError` that says whether trying again can help.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import orjson
import requests
import urllib3

from core.config import read_secret
from core.config_delivery import ReceiverSpec
from core.errors import ConfigError

MAX_ANSWER = 256 << 10
MAX_RETRY_AFTER = 3600.0
AGAIN = frozenset({408, 425, 429})
"""Statuses below 500 after which the same request may succeed."""


class SendError(Exception):
    """A receiver did not take what was sent. ``again``: trying later can help; ``wait``: seconds that the receiver asked for."""

    def __init__(self, problem: str, *, again: bool, wait: float | None = None, status: int = 0) -> None:
        self.again, self.wait, self.status = again, wait, status
        super().__init__(problem)


@dataclass(frozen=True, slots=True)
class Reply:
    """A 2xx answer."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON, None where it is none."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None


def secret_of(value: str | None, file: str | None) -> str:
    """A secret from the configuration or from its file, read anew each time; SendError where it cannot be read."""
    if value:
        return value
    try:
        return read_secret(file or "")
    except ConfigError as error:
        raise SendError(f"{error.path}: {error.problem}", again=True) from None


class Client:
    """Requests to one receiver. ``secrets`` never stand in an error."""

    def __init__(self, spec: ReceiverSpec) -> None:
        self._spec = spec

    def call(
        self,
        method: str,
        url: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
        auth: tuple[str, str] | None = None,
    ) -> Reply:
        """Send one request; SendError for anything but a 2xx answer."""
        spec = self._spec
        timeout = float(spec.timeout)
        sent = raw if raw is not None else orjson.dumps(body) if body is not None else None
        every = {"User-Agent": "gustfront", "Accept": "application/json", "Accept-Encoding": "identity"}
        if sent is not None:
            every["Content-Type"] = "application/json"
        proxy = getattr(spec, "proxy", None)
        try:
            with requests.Session() as session:
                session.trust_env = False
                with session.request(
                    method,
                    url,
                    data=sent,
                    headers={**every, **(headers or {})},
                    auth=_Given(auth),
                    timeout=(min(5.0, timeout), timeout),
                    allow_redirects=False,
                    stream=True,
                    verify=spec.ca_file or True,
                    proxies={"http": proxy, "https": proxy} if proxy else None,
                ) as answer:
                    return _taken(answer, _read(answer, timeout))
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, UnicodeError) as error:
            raise SendError(_reason(error, timeout), again=True) from None


class _Given(requests.auth.AuthBase):
    """The password that was configured, or none: requests would otherwise look for one elsewhere."""

    def __init__(self, auth: tuple[str, str] | None) -> None:
        self._auth = auth

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._auth is not None:
            requests.auth.HTTPBasicAuth(*self._auth)(request)
        return request


def _read(answer: requests.Response, timeout: float) -> bytes:
    end = time.monotonic() + 2 * timeout
    body = bytearray()
    while piece := answer.raw.read1(1 << 16):
        body += piece
        if len(body) > MAX_ANSWER or time.monotonic() > end:
            break  # the status has said what we need to know
    return bytes(body[:MAX_ANSWER])


def _taken(answer: requests.Response, body: bytes) -> Reply:
    status = answer.status_code
    if 200 <= status < 300:
        return Reply(status, body)
    if 300 <= status < 400:
        problem = "answers with a redirect, which is not followed: give the final address"
        raise SendError(f"HTTP {status}: {problem}", again=False, status=status)
    said = shown(body)
    problem = f"HTTP {status}" + (f": {said}" if said else "")
    again = status >= 500 or status in AGAIN
    raise SendError(
        problem, again=again, wait=retry_after(answer.headers.get("Retry-After", "")), status=status
    )


def retry_after(value: str, now: float | None = None) -> float | None:
    """Seconds of a Retry-After header (a number or a date), at most an hour; None where there is none that can be read."""
    text = value.strip()
    if re.fullmatch(r"\d{1,9}", text):
        return min(float(text), MAX_RETRY_AFTER)
    try:
        when = parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, when - (time.time() if now is None else now)), MAX_RETRY_AFTER)


def shown(body: bytes, limit: int = 200) -> str:
    """The beginning of an answer as one line."""
    if body[:200].lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "an HTML page"
    return " ".join(re.sub(r"[^\x20-\x7e]", " ", body[:limit].decode("utf-8", "replace")).split())


def _reason(error: Exception, timeout: float) -> str:
    """What happened, without addresses: they can be secrets."""
    text = str(error)
    if isinstance(error, requests.exceptions.SSLError) or "SSLError" in text or "CERTIFICATE" in text:
        return "its certificate cannot be verified: give ca_file"
    if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError) or "timed out" in text:
        return f"did not answer within {timeout:g} s"
    if "NameResolution" in text or "getaddrinfo" in text:
        return "its host name is not known"
    found = re.search(r"\[Errno -?\d+\] ([^'\")]+)", text)
    if found:
        return f"cannot be reached: {found[1].strip()}"
    if isinstance(error, requests.ConnectionError | urllib3.exceptions.ProtocolError):
        return "broke the connection off"
    return f"cannot be asked: {type(error).__name__}"
