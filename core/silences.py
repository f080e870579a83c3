"""Silences (until a time) and mute windows (every week): which incidents nobody is told of, and why.

A matcher is ``label="value"`` or ``label=~"expression"`` (anchored at both ends) over what an incident says of itself. An
incident may name several pools, classes, replicas or tenants: a silence holds only where **all** of them match, since the pool
that nobody silenced must still be heard. A label that the incident does not have is the empty text, as in Prometheus.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from core.classes import Matcher, parse_matchers
from core.errors import ConfigError
from core.incidents import Incident

LABELS = ("kind", "pool", "class", "severity", "tenant", "replica")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MAX_PATTERN = 300
_FIX = 'write label="value" or label=~"expression" with a label of ' + ", ".join(LABELS)
_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|(24):(00)")

Labels = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Silence:
    """Incidents that match are not told of in [starts_at, ends_at), Unix seconds. Never deleted: one taken back says by whom."""

    matchers: str
    starts_at: float
    ends_at: float
    author: str
    reason: str
    made_at: float = 0.0
    withdrawn_by: str = ""
    withdrawn_at: float | None = None
    id: str = ""

    def state(self, at: float) -> str:
        """``pending``, ``active``, ``expired`` or ``withdrawn`` at a time."""
        if self.withdrawn_at is not None and self.withdrawn_at <= at:
            return "withdrawn"
        return "pending" if at < self.starts_at else "active" if at < self.ends_at else "expired"

    def covers(self, labels: Labels, at: float) -> bool:
        """Whether an incident with these labels is silenced at a time."""
        return self.state(at) == "active" and matches(self.matchers, labels)


@dataclass(frozen=True, slots=True)
class MuteWindow:
    """The same every week: on ``days`` (``mon`` … ``sun``) from ``start`` until ``end`` (``22:00``, ``06:00``: past midnight) by
    the clock on the wall in ``zone``. An hour that a clock change leaves out is not muted, one that comes twice is muted twice.
    """

    matchers: str
    days: tuple[str, ...]
    start: str
    end: str
    zone: str
    author: str
    reason: str
    made_at: float = 0.0
    withdrawn_by: str = ""
    withdrawn_at: float | None = None
    id: str = ""

    def in_force(self, at: float) -> bool:
        """Whether it has been made and not been taken back."""
        return self.made_at <= at and (self.withdrawn_at is None or at < self.withdrawn_at)

    def active(self, at: float) -> bool:
        """Whether the clock on the wall stands inside the window."""
        if not self.in_force(at):
            return False
        local = datetime.fromtimestamp(at, ZoneInfo(self.zone))
        now, begin, end = local.hour * 60 + local.minute, _minutes(self.start), _minutes(self.end)
        today, yesterday = DAYS[local.weekday()], DAYS[(local.weekday() - 1) % 7]
        if begin < end:
            return today in self.days and begin <= now < end
        return (today in self.days and now >= begin) or (yesterday in self.days and now < end)

    def active_until(self, at: float) -> float | None:
        """When the window that holds at ``at`` ends; None where none holds, or where it never ends."""
        if not self.active(at):
            return None
        t = at // 60 * 60 + 60
        for _ in range(8 * 1440):
            if not self.active(t):
                return t
            t += 60
        return None

    def covers(self, labels: Labels, at: float) -> bool:
        """Whether an incident with these labels is muted at a time."""
        return self.active(at) and matches(self.matchers, labels)

    def words(self) -> str:
        """``mon, tue 22:00–06:00 Europe/Berlin``."""
        days = "every day" if len(self.days) == 7 else ", ".join(self.days)
        return f"{days} {self.start}–{self.end} {self.zone}"


def labels_of(incident: Incident, tenants: Sequence[str] = ()) -> Labels:
    """What matchers see of an incident; ``tenants`` besides those that its detector names."""
    named = incident.detail.get("tenants") or incident.detail.get("tenant") or ()
    whose = [named] if isinstance(named, str) else [str(x) for x in named] if isinstance(named, list) else []
    return {
        "kind": (incident.kind,),
        "severity": (incident.severity,),
        "pool": incident.pools,
        "class": incident.classes,
        "replica": incident.replicas,
        "tenant": tuple(dict.fromkeys([*whose, *tenants])),
    }


def matches(matchers: str, labels: Labels) -> bool:
    """Whether every matcher holds for every value of its label. Matchers that cannot be read match nothing."""
    try:
        parsed = parse(matchers)
    except ConfigError:
        return False
    return all(m.matches({m.label: value}) for m in parsed for value in labels.get(m.label) or ("",))


@lru_cache(maxsize=512)
def parse(text: str, path: str = "matchers") -> tuple[Matcher, ...]:
    """The matchers of a silence; ConfigError that names the one that is broken.

    Refused: other labels than an incident has, ``!=`` and ``!~``, a pattern that does not compile or is very long, and a set
    that would match everything.
    """
    found = parse_matchers(text, path)
    for m in found:
        if m.label not in LABELS:
            raise ConfigError(path, f"an incident has no label {m.label}", _FIX, str(m))
        if m.op not in ("=", "=~"):
            raise ConfigError(path, f"{m.op} is not understood in {m}", _FIX, text)
        if len(m.value) > MAX_PATTERN:
            raise ConfigError(
                path, f"the value of {m.label} is longer than {MAX_PATTERN} characters", "shorten it"
            )
    if all(m.matches({}) for m in found):
        raise ConfigError(
            path, "would match every incident", "add a matcher that needs a value, such as pool", text
        )
    return found


def canonical(text: str, path: str = "matchers") -> str:
    """The matchers written the same way whoever wrote them."""
    return ",".join(sorted({str(m) for m in parse(text, path)}))


def about(incident: Incident) -> str:
    """Matchers for what an incident is: its kind in its pools."""
    kind = str(Matcher.of("kind", "=", incident.kind))
    if not incident.pools:
        return kind
    if len(incident.pools) == 1:
        return f"{kind},{Matcher.of('pool', '=', incident.pools[0])}"
    return f"{kind},{Matcher.of('pool', '=~', '|'.join(re.escape(p) for p in incident.pools))}"


def check_window(days: Sequence[str], start: str, end: str, zone: str) -> tuple[str, ...]:
    """The days in the order of the week; ConfigError that names what is wrong with a mute window."""
    wanted = {d.strip().lower()[:3] for d in days if d.strip()}
    unknown = sorted(d.strip() for d in days if d.strip() and d.strip().lower()[:3] not in DAYS)
    if unknown or not wanted:
        raise ConfigError(
            "days", "not a day of the week", f"write some of {', '.join(DAYS)}", unknown or None
        )
    for name, value in (("start", start), ("end", end)):
        if not _CLOCK.fullmatch(value):
            raise ConfigError(
                name, "not a time of day", "write it as 22:00; 24:00 is the end of the day", value
            )
    if start == "24:00" or start == end:
        raise ConfigError("end", "must differ from start", "write 00:00 and 24:00 for a whole day", end)
    if zone not in zones():
        raise ConfigError("zone", "not a time zone", "write one such as Europe/Berlin or UTC", zone)
    return tuple(d for d in DAYS if d in wanted)


@lru_cache(maxsize=1)
def zones() -> frozenset[str]:
    """Names of time zones that this machine knows."""
    return frozenset(available_timezones())


def _minutes(clock: str) -> int:
    hours, minutes = clock.split(":")
    return int(hours) * 60 + int(minutes)
