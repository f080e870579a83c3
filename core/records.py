"""Records that enter from outside, after parsing: gateway requests, sampled outputs, events, problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One attempt as a gateway logged it. ``ts`` is when it ended (Unix seconds); latencies in seconds, None where unknown.

    ``status`` 499 means that the client gave up; ``duration_s`` is then its age.
    """

    ts: float
    status: int
    workload_class: str
    duration_s: float | None = None
    ttft_s: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    tenant: str = ""
    model: str = ""
    pool: str = ""
    replica: str = ""
    release: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """One sampled request with its features and scores; ``ts`` is its finish, ``admitted`` = ts − end-to-end time.

    ``verdict`` is ``clean``, ``hard`` (degraded) or ``soft`` (counts only as a rate); ``rules`` maps each rule that fired to
    its measure. ``text`` is None unless the configuration keeps texts (capped then).

    ``random``: part of the unbiased sample, standing for ``weight`` requests; false where it was kept only because it is
    suspicious (or is a canary), so that no rate may count it. ``structured``: the output had to be JSON or a tool call, None
    where unknown. ``language`` of the output (``en``, ``ja``, ...), empty where it is too short to tell. ``cache_source``:
    where the cached prefix came from (``gpu``, ``cpu``, ``disk``, ``remote``), as the sender says. ``source``: ``file``,
    ``api``, ``otlp`` or ``canary``.
    """

    id: str
    ts: float
    admitted: float
    workload_class: str
    pool: str = ""
    replica: str = ""
    model: str = ""
    release: str = ""
    tenant: str = ""
    session: str = ""
    turn: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    ttft_s: float | None = None
    e2e_s: float | None = None
    queue_s: float | None = None
    accept_length: float | None = None
    finish_reason: str = ""
    verdict: str = "clean"
    rules: Mapping[str, float] = field(default_factory=dict)
    features: Mapping[str, float] = field(default_factory=dict)
    text: str | None = None
    random: bool = True
    weight: float = 1.0
    structured: bool | None = None
    language: str = ""
    cache_source: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an answer: of one ``request``, of a whole ``session``, or both; at ``ts`` (Unix seconds).

    ``kind`` is one of ``core.outcomes.KINDS``; ``ok`` says whether it went well; ``value`` is an optional measure (such as the
    share of tests that passed). An ``id`` is stored once.
    """

    id: str
    ts: float
    kind: str
    ok: bool
    request: str = ""
    session: str = ""
    value: float | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: ``deploy``, ``restart``, ``scale``, ``flag``, ``note``, ... at ``ts`` (Unix seconds)."""

    ts: float
    kind: str
    text: str = ""
    pool: str = ""
    replica: str = ""
    source: str = "user"
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with the input: shown on Data health and in ``doctor``. ``code`` is a stable short word.

    Problems with the same (source, code, subject) are one row with a count and first and last time.
    """

    ts: float
    source: str
    code: str
    subject: str
    message: str
    fix: str = ""
    count: int = 1
