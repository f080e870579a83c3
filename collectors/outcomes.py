"""What became of an answer, as agents, tools and users report it: checked, its session's name replaced by its pseudonym.

``kind`` (``tests_passed``, ``patch_applied``, ``tool_ran``, ``accepted``, ``regenerated``, ``abandoned``) and ``request`` or
``session`` are what it takes; the first three need ``ok`` (true or false). ``ts`` is now where it is missing; ``value`` is an
optional measure. Without an ``id`` the same kind of the same request or session at the same second is one outcome.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from collectors.fields import BadRecord, instant, number, text
from collectors.pseudonyms import Pseudonyms
from core.outcomes import KINDS, is_ok
from core.records import Outcome


def read_outcome(data: Mapping[str, Any], names: Pseudonyms, source: str) -> Outcome:
    """The outcome in one record; ``BadRecord`` where something needed is missing or wrong."""
    kind = text(data, "kind")
    if kind not in KINDS:
        raise BadRecord("no_kind", "has no known kind", f"give kind as one of {', '.join(KINDS)}")
    request, session = text(data, "request"), names.session(text(data, "session"))
    if not request and not session:
        raise BadRecord(
            "no_subject", "names neither request nor session", "give the id of the request or of the session"
        )
    said = data.get("ok")
    if said is not None and not isinstance(said, bool):
        raise BadRecord("bad_value", "ok is neither true nor false", "write ok as true or false")
    ok = is_ok(kind, said)
    if ok is None:
        raise BadRecord("no_ok", f"does not say whether {kind}", "give ok as true or false")
    ts = instant(data) if data.get("ts") is not None else time.time()
    id_ = text(data, "id")
    if not id_:
        raw = "\0".join((kind, request, session, f"{ts:.0f}" if data.get("ts") is not None else ""))
        id_ = blake2b(raw.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return Outcome(id_, ts, kind, ok, request, session, number(data, "value"), source)
