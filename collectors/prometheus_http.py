"""The HTTP side of a Prometheus-compatible server: identity, limits, and one typed error for each way to fail.

The session is handed to prometheus-api-client, which sends its requests through it. Everything that library leaves open is
decided here: a body that drips for ever or never ends, an error page instead of JSON, a redirect to somebody else, proxies'
gzip on the loopback. What it gives back is an ordinary ``requests.Response`` whose ``json()`` is checked and fast.
"""

from __future__ import annotations

import ipaddress
import re
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import requests
import urllib3
from requests.auth import AuthBase

from core.config_models import PrometheusSource
from core.errors import SourceError

MAX_BODY = 256 * 1024 * 1024
CONNECT_TIMEOUT = 5.0
PIECE = 1 << 20
FIXES = {
    400: "check the selector of this source",
    401: "give token_file, or username and password_file, that this server accepts",
    403: "give this user the right to query; multi-tenant servers also need org_id",
    404: "url must be the base of the query API; Mimir and VictoriaMetrics clusters need a path such as /prometheus",
    422: "the server refuses so many samples in one query; raise its --query.max-samples",
    429: "the server limits queries; raise the limit or ask less often (every)",
    503: "the server is overloaded or starting; it will be asked again",
}


class Answer(requests.Response):
    """A complete answer whose JSON is read by orjson and must be a successful Prometheus reply."""

    body = b""

    def __init__(self, source: str, notes: list[str]) -> None:
        super().__init__()
        self.source, self.notes = source, notes

    @property
    def content(self) -> bytes:
        """The body, at most :data:`MAX_BODY` bytes."""
        return self.body

    def json(self, **kwargs: Any) -> Any:
        """The reply as a dict with ``status`` success and ``data``; SourceError ``bad_json`` or ``error_<type>`` otherwise."""
        try:
            reply = orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise SourceError(
                self.source, "bad_json", f"answered {shown(self.body)} instead of JSON ({error})", FIXES[404]
            ) from None
        if not isinstance(reply, dict) or "status" not in reply:
            raise SourceError(
                self.source, "bad_json", f"answered JSON of another kind: {shown(self.body)}", FIXES[404]
            )
        if reply["status"] != "success":
            raise SourceError(
                self.source,
                f"error_{reply.get('errorType', 'unknown')}",
                f"says: {str(reply.get('error', ''))[:300]}",
            )
        if "data" not in reply:
            raise SourceError(self.source, "bad_json", f"answered success without data: {shown(self.body)}")
        warnings = reply.get("warnings")
        if isinstance(warnings, list):
            self.notes.extend(str(w)[:300] for w in warnings)
        return reply


class Identity(AuthBase):
    """Who we are: bearer token or basic password, read again when its file changes, since mounted secrets rotate.

    Given for every request, also without secrets: requests would otherwise take a password out of ``~/.netrc``.
    """

    def __init__(self, source: str, cfg: PrometheusSource) -> None:
        self._source = source
        self._token_file = cfg.token_file
        self._username, self._password_file = cfg.username, cfg.password_file
        self._read: dict[str, tuple[float, str]] = {}

    def _secret(self, path: str) -> str:
        try:
            changed = Path(path).stat().st_mtime
            if path not in self._read or self._read[path][0] != changed:
                self._read[path] = (changed, Path(path).read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(
                self._source,
                "no_secret",
                f"the file {path} cannot be read ({error})",
                "make it readable for this process",
            ) from None
        return self._read[path][1]

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the Authorization header."""
        if self._token_file:
            request.headers["Authorization"] = f"Bearer {self._secret(self._token_file)}"
        elif self._username is not None and self._password_file:
            basic = requests.auth.HTTPBasicAuth(self._username, self._secret(self._password_file))
            basic(request)
        return request


class GuardedSession(requests.Session):
    """A session for one server and one thread.

    ``notes`` collects the ``warnings`` of the replies since it was last emptied; ``skew`` is the server's clock minus ours in
    seconds (None before the first answer with a date).
    """

    def __init__(self, source: str, cfg: PrometheusSource) -> None:
        super().__init__()
        self.source = source
        self.notes: list[str] = []
        self.skew: float | None = None
        self._timeout = cfg.timeout
        self._origin = urlsplit(cfg.url)
        self.max_redirects = 3
        self.verify = False if cfg.insecure else (cfg.ca_file or True)
        if cfg.insecure:  # said once in the configuration, not once a request
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self.cert = (cfg.cert_file, cfg.key_file) if cfg.cert_file and cfg.key_file else cfg.cert_file
        if is_loopback(self._origin.hostname or ""):
            self.headers["Accept-Encoding"] = (
                "identity"  # packing costs more than the loopback: 3.5 against 2.3 s
            )
        if cfg.org_id:
            self.headers["X-Scope-OrgID"] = cfg.org_id
        self.headers.update(cfg.headers)

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Refuse redirects to another host: our token, tenant and headers are not for it."""
        there = urlsplit(prepared_request.url or "")
        if there.netloc != self._origin.netloc:
            raise SourceError(
                self.source, "redirect", f"redirects to {there.netloc}", "give the final address as url"
            )

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **kwargs: Any) -> Answer:
        """Send one request and read its whole body within ``timeout`` seconds without a byte, three times that in all.

        SourceError kinds: ``timeout``, ``refused``, ``dns``, ``tls``, ``truncated``, ``too_large``, ``redirect``, ``bad_url``,
        ``http_<status>``. 4xx and 5xx never come back as an answer.
        """
        kwargs["timeout"] = (min(CONNECT_TIMEOUT, self._timeout), self._timeout)
        kwargs["stream"] = True
        answer = Answer(self.source, self.notes)
        try:
            with super().request(method, url, *args, **kwargs) as response:
                answer.status_code, answer.headers = response.status_code, response.headers
                answer.body = self._body(response)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._failure(error) from None
        self._clock(answer)
        if answer.status_code >= 300:
            raise self._refusal(answer)
        return answer

    def _body(self, response: requests.Response) -> bytes:
        end = time.monotonic() + 3 * self._timeout
        pieces: list[bytes] = []
        size = 0
        while piece := response.raw.read1(PIECE, decode_content=True):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_BODY:
                raise SourceError(
                    self.source,
                    "too_large",
                    f"sent more than {MAX_BODY >> 20} MiB in one answer",
                    "narrow the selector",
                )
            if time.monotonic() > end:
                raise SourceError(
                    self.source,
                    "timeout",
                    f"was still sending after {3 * self._timeout:g} s",
                    "raise timeout of this source",
                )
        return b"".join(pieces)

    def _clock(self, answer: Answer) -> None:
        try:
            self.skew = parsedate_to_datetime(answer.headers["Date"]).timestamp() - time.time()
        except (KeyError, ValueError, TypeError):
            return

    def _refusal(self, answer: Answer) -> SourceError:
        code = answer.status_code
        said = ""
        try:
            reply = orjson.loads(answer.body)
            said = (
                f"{reply.get('errorType', '')}: {reply.get('error', '')}"[:300]
                if isinstance(reply, dict)
                else ""
            )
        except orjson.JSONDecodeError:
            said = shown(answer.body)
        return SourceError(self.source, f"http_{code}", f"answered HTTP {code} ({said})", FIXES.get(code, ""))

    def _failure(self, error: Exception) -> SourceError:
        text = str(error)
        kind, problem, fix = (
            "refused",
            f"cannot be reached: {_reason(text)}",
            "check url and whether the server runs",
        )
        if isinstance(error, requests.exceptions.SSLError) or "SSLError" in text:
            kind, fix = "tls", "give ca_file (and cert_file, key_file), or insecure: true"
        elif isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError) or "timed out" in text:
            kind, problem = "timeout", f"did not answer within {self._timeout:g} s"
            fix = "raise timeout of this source, or narrow its selector"
        elif "NameResolution" in text or "getaddrinfo" in text:
            kind, problem = "dns", f"has a host name that is not known: {self._origin.hostname}"
        elif isinstance(error, requests.TooManyRedirects):
            kind, problem, fix = "redirect", "redirects in a circle", "give the final address as url"
        elif isinstance(error, ValueError):  # InvalidURL, InvalidHeader and the like
            kind, problem, fix = "bad_url", text[:200], "check url and headers of this source"
        elif isinstance(error, urllib3.exceptions.ProtocolError | urllib3.exceptions.DecodeError):
            kind, problem = "truncated", f"broke off in the middle of an answer: {text[:200]}"
            fix = "it will be asked again"
        return SourceError(self.source, kind, problem, fix)


def _reason(text: str) -> str:
    """The system's own words in an error of urllib3, which wraps them in addresses and class names."""
    found = re.search(r"\[Errno -?\d+\] ([^'\")]+)", text)
    return found[1].strip() if found else " ".join(text.split())[-200:]


def is_loopback(host: str) -> bool:
    """Whether the host is this machine by address or as ``localhost``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def shown(body: bytes, limit: int = 80) -> str:
    """The beginning of a body, quoted, without control characters."""
    if body[:200].lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "an HTML page"
    return repr(body[:limit].decode("utf-8", "replace")) if body else "nothing"
