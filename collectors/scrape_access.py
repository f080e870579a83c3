"""How a scrape gets in and what can go wrong: tokens, TLS, the names of failures and their fixes."""

from __future__ import annotations

import ssl
from pathlib import Path

from core.config_models import ScrapeSource

FIXES = {
    "refused": "Start the engine, or correct host and port; some engines export metrics only with a flag.",
    "unreachable": "Check address, network and firewall.",
    "dns": "Correct the host name, or the resolver of this machine.",
    "timeout": "Look whether the engine is overloaded or hung; raise `timeout` of the source if its answers are slow but good.",
    "too_large": "Drop families at the engine, or raise `max_bytes` of the source.",
    "truncated": "Look at the engine's log and at proxies on the way.",
    "reset": "Look at the engine's log and at proxies on the way; http against an https port looks like this too.",
    "bad_http": "Check that host and port belong to an HTTP server and whether the scheme is https.",
    "bad_encoding": "Make the server or proxy answer uncompressed or with gzip.",
    "tls": "Give the right host name and certificate authority, or set `insecure: true` for this source.",
    "http_error": "Check the path (`path` of the source or in the address) and the token.",
    "redirect": "Give the final address in the configuration: redirects to other servers are not followed.",
    "no_metrics": "Point the target at the metrics path, usually /metrics.",
    "internal": "Please report this with the target's /metrics text.",
}


class ScrapeFailure(Exception):
    """One scrape failed; ``kind`` is a key of ``FIXES``."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


class Token:
    """A bearer token in a file, read again when the file changes."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._version: tuple[int, int] | None = None
        self.last = ""

    def value(self) -> str:
        """The token, "" without a file. Raises ScrapeFailure when the file cannot be read."""
        if self._path is None:
            return ""
        try:
            stat = Path(self._path).stat()
            if (version := (stat.st_mtime_ns, stat.st_size)) != self._version:
                self.last = Path(self._path).read_text("utf-8").strip()
                self._version = version
        except (OSError, UnicodeDecodeError) as error:
            raise ScrapeFailure(
                "http_error", f"the token file {self._path} cannot be read: {error}"
            ) from None
        return self.last


def tls_context(source: ScrapeSource) -> ssl.SSLContext:
    """The TLS settings of a source."""
    context = ssl.create_default_context()
    if source.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
