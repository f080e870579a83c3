"""The demonstration's fleet server, as the screens see it: what is played, and what a viewer may trigger. Loopback only."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from urllib.parse import urlsplit

from app.services.view import FRESH_SECONDS
from core.errors import SourceError
from sql.store import Store

CURSOR = "demo"
TIMEOUT = 2.0
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Demo:
    """A demonstration that this database belongs to; ``control`` is the fleet server's address."""

    control: str
    scenario: str


def demonstration(store: Store) -> Demo | None:
    """The demonstration of a database; None for a real fleet's, and where the mark cannot be read."""
    try:
        mark = json.loads(store.get_cursor(CURSOR) or "")
        demo = Demo(str(mark["control"]), str(mark["scenario"]))
    except (ValueError, KeyError, TypeError):
        return None
    # The address comes out of a database: nothing but this machine is ever asked.
    return demo if urlsplit(demo.control).hostname in LOOPBACK else None


def faults(demo: Demo) -> list[str]:
    """Names of the faults that can be triggered; empty while the fleet server does not answer."""
    try:
        with urllib.request.urlopen(f"{demo.control}/faults", timeout=TIMEOUT) as answer:
            return [str(name) for name in json.load(answer)["faults"]]
    except (OSError, ValueError, KeyError):
        return []


def writes_past(demo: Demo, newest: float | None, now: float) -> bool:
    """Whether the demonstration runs and has not come to the present yet: its newest data is old, its fleet server answers."""
    return newest is not None and now - newest > FRESH_SECONDS and bool(faults(demo))


def trigger(demo: Demo, fault: str) -> None:
    """Let the simulated fleet break. SourceError when the fleet server refuses or does not answer."""
    body = json.dumps({"fault": fault}).encode()
    headers = {"Content-Type": "application/json", "X-Gustfront-Demo": "1"}
    request = urllib.request.Request(f"{demo.control}/faults", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT):
            return
    except urllib.error.HTTPError as error:
        reason = error.read(500).decode(errors="replace")
        error.close()
        raise SourceError(demo.control, f"http_{error.code}", f"refused the fault: {reason}") from None
    except OSError as error:
        fix = "start the demonstration again with gustfront demo"
        raise SourceError(demo.control, "refused", f"does not answer: {error}", fix) from None
