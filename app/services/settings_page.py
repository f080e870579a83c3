"""What the running configuration is: read-only, without secrets."""

from __future__ import annotations

import importlib.metadata
import platform
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
from pydantic import BaseModel

from app.services.wording import instant, promise, seconds, span, stamp
from core.config import Config, hide_password, load_config
from core.config_errors import ConfigErrors
from core.config_models import SourceConfig
from core.config_slo import SloConfig
from core.errors import ConfigError
from core.kinds import KINDS
from detectors.fold import REFIT_S
from detectors.normal import GAP_S, MIN_BLOCKS
from detectors.registry import detectors
from detectors.service import DEPTH_S
from sql.engine import database_file
from sql.people import TokenRow
from sql.store import Store

SECRET_WORDS = ("password", "token", "secret", "key", "header", "credential", "webhook")
"""A setting with one of these in its name is never shown, unless it is the path of a file; that one is set is said."""
HIDDEN = "set, not shown"
LIBRARIES = ("gustfront", "streamlit", "sqlalchemy", "plotly", "numpy", "pandas", "scipy", "pydantic")
COMMANDS = (
    ("Is the configuration right, and what does it mean?", "gustfront {c}check"),
    ("What do the targets export, and what is missing?", "gustfront {c}doctor"),
    ("Start collecting, detecting and serving", "gustfront {c}run"),
    ("Attainment, budget and burn of every objective", "gustfront {c}slo"),
    (
        "What would the detectors have said of the last day?",
        "gustfront {c}backtest --start {day} --end {end}",
    ),
    ("What was odd in the last hour?", "gustfront {c}odd --start {hour} --end {end}"),
)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with the file as it is now: where, what, fix."""

    where: str
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class DetectorLine:
    """One detector: what it says, how it is run, and how it stands with learning."""

    kind: str
    title: str
    severity: str
    meaning: str
    mode: str
    learnt: float | None


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes of the database; free bytes of the disk it is on (None: not a local file); oldest and newest data."""

    used: int
    limit: int | None
    free: int | None
    oldest: float | None
    newest: float | None


@dataclass(frozen=True, slots=True)
class Settings:
    """The page."""

    file: str
    database: str
    revision: str
    problems: tuple[Problem, ...]
    sources: tuple[tuple[str, str, str], ...]
    units: tuple[tuple[str, int, str], ...]
    classes: tuple[tuple[str, str], ...]
    objectives: tuple[tuple[str, ...], ...]
    teams: tuple[tuple[str, str], ...]
    roles: tuple[tuple[str, str], ...]
    retention: tuple[tuple[str, str], ...]
    sections: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    detectors: tuple[DetectorLine, ...]
    learning: str
    disk: Disk
    tokens: tuple[tuple[str, ...], ...]
    versions: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]


def load(store: Store, config: Config) -> Settings:
    """Everything on the page."""
    newest = store.newest()
    return Settings(
        file=str(config.path) if config.path else "none: built-in defaults",
        database=config.database_shown,
        revision=str(store.ping()["revision"]),
        problems=problems(config),
        sources=tuple(_source(s) for s in config.sources),
        units=_units(store),
        classes=tuple((c.name, "  or  ".join(c.match)) for c in config.classes),
        objectives=tuple(_objective(s) for s in config.slos),
        teams=tuple((str(getattr(t, "name", "")), _settings(t, skip=("name",))) for t in config.teams),
        roles=tuple((name, ", ".join(labels)) for name, labels in config.roles.model_dump().items()),
        retention=tuple(_kept(config)),
        sections=_sections(config),
        detectors=_detectors(store, config),
        learning=learning(),
        disk=_disk(store, config),
        tokens=tuple(_token(row, newest or 0.0) for row in store.tokens()),
        versions=versions(),
        commands=commands(config, newest or 0.0),
    )


def problems(config: Config) -> tuple[Problem, ...]:
    """What is wrong with the file now; it may have been changed since it was read."""
    if config.path is None:
        return ()
    try:
        load_config(config.path)
    except ConfigErrors as error:
        return tuple(Problem(p.path, p.problem, p.fix) for p in error.problems)
    except ConfigError as error:
        return (Problem(error.path, error.problem, error.fix),)
    return ()


def _source(source: SourceConfig) -> tuple[str, str, str]:
    """(kind, name, settings that are not the default)."""
    return source.kind, _address(source.name), _settings(source.spec)


def _settings(section: BaseModel, *, skip: Sequence[str] = ()) -> str:
    """Everything that was set, in one line without secrets."""
    shown = [
        f"{k}: {v}" for k, v in public(section).items() if k not in skip and k in section.model_fields_set
    ]
    return " · ".join(shown) or "defaults"


def public(section: BaseModel) -> dict[str, str]:
    """The settings of a section as text. Values that can be secret are replaced; of addresses only scheme and host are shown,
    because webhooks carry their secret in the path."""
    out: dict[str, str] = {}
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if value in (None, "", [], {}, ()):
            out[name] = "none"
        elif _secret(name, field.repr):
            many = f"{len(value)} " if isinstance(value, (list, dict, tuple)) else ""
            out[name] = many + HIDDEN
        else:
            out[name] = _text(value)
    return out


def _secret(name: str, shown: bool) -> bool:
    return not shown or (not name.endswith("_file") and any(word in name for word in SECRET_WORDS))


def _text(value: Any) -> str:
    if isinstance(value, BaseModel):
        inner = {k: v for k, v in public(value).items() if k in value.model_fields_set}
        return ", ".join(f"{k}: {v}" for k, v in inner.items()) or "defaults"
    if isinstance(value, Mapping):
        shown = (f"{k}: {HIDDEN if _secret(str(k), True) else _text(v)}" for k, v in value.items())
        return ", ".join(shown)
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(_text(v) for v in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:,.15g}" if abs(value) >= 10_000 else f"{value:.15g}"
    return _address(str(value))


def _address(text: str) -> str:
    """An address without user, password, path and query; other text as it is."""
    if "://" not in text:
        return text
    parts = urlsplit(text)
    if parts.scheme in ("http", "https", "smtp", "smtps"):
        host = parts.hostname or ""
        return (
            f"{parts.scheme}://{host}"
            + (f":{parts.port}" if parts.port else "")
            + ("/…" if parts.path.strip("/") or parts.query else "")
        )
    return hide_password(text)


def _units(store: Store) -> tuple[tuple[str, int, str], ...]:
    """(pool, replicas, components and models) as the stored targets say."""
    pools: dict[str, tuple[set[str], set[str]]] = {}
    for row in store.targets():
        names, said = pools.setdefault(row.target.pool or "no pool", (set(), set()))
        names.add(row.target.replica or row.target.address)
        said |= {*row.target.components, *([row.target.model] if row.target.model else [])}
    return tuple((p, len(names), ", ".join(sorted(said))) for p, (names, said) in sorted(pools.items()))


def _objective(s: SloConfig) -> tuple[str, ...]:
    """(name, class, what, promise, window, measurement point)."""
    limit = f"{s.signal} ≤ {seconds(s.threshold)}" if s.sli == "latency" else str(s.sli).replace("_", " ")
    return (s.name, s.class_, limit, promise(s.objective_percent / 100), span(s.window), str(s.point))


def _kept(config: Config) -> list[tuple[str, str]]:
    """What is kept how long."""
    out = []
    for name, field in type(config.retention).model_fields.items():
        value = getattr(config.retention, name)
        shown = "no limit" if value is None else (size(value) if name == "max_bytes" else span(value))
        out.append((str(field.description or name), shown))
    return out


def _sections(config: Config) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """The other sections of the configuration, whatever they are, without secrets."""
    done = {"database", "sources", "roles", "classes", "slos", "teams", "retention"}
    out = []
    for name in type(config).model_fields:
        value = getattr(config, name)
        if name in done:
            continue
        if isinstance(value, BaseModel):
            out.append((name, tuple(public(value).items())))
        elif isinstance(value, (list, tuple)) and value:
            rows = [
                (
                    str(getattr(v, "name", "") or i + 1),
                    _settings(v, skip=("name",)) if isinstance(v, BaseModel) else _text(v),
                )
                for i, v in enumerate(value)
            ]
            out.append((name, tuple(rows)))
    return tuple(out)


def _detectors(store: Store, config: Config) -> tuple[DetectorLine, ...]:
    """Every detector with what it has learnt last."""
    newest = store.newest()
    out = []
    for d in detectors():
        kind = KINDS[d.kind]
        blob = store.baseline(d.kind, "fleet", newest) if newest is not None else None
        learnt = None
        if blob:
            learnt = float(orjson.loads(blob).get("as_of") or 0.0) or None
        mode = "shadow: recorded, alerts nobody" if d.kind in config.detect.shadow else "active"
        out.append(DetectorLine(d.kind, kind.title, kind.severity, kind.meaning, mode, learnt))
    return tuple(out)


def learning() -> str:
    """How detectors learn, and how often they may be wrong."""
    return (
        f"Learning: each replica's normal is the median of at least {MIN_BLOCKS} blocks of four minutes of up to {span(DEPTH_S)} "
        f"before, without the last {span(GAP_S)} and without incidents; learnt anew every {span(REFIT_S)}, cut at releases; a "
        "new replica takes its pool's. False alarms: tests of one tick fire by chance with p < 10⁻⁶; on the labelled histories "
        "that detection is measured by, none in 3.9 replica-weeks, at most 0.77 a replica-week (95 %)."
    )


def _token(row: TokenRow, now: float) -> tuple[str, ...]:
    """(name, the part that may be shown, role, scopes, state, last use) of an API token."""
    state = "valid"
    if row.revoked_at is not None:
        state = f"revoked by {row.revoked_by or 'unknown'}"
    elif row.expires_at is not None:
        state = f"valid until {instant(row.expires_at)}" if row.expires_at > now else "expired"
    used = instant(row.last_used_at) if row.last_used_at is not None else "never"
    return (row.name, row.id, row.role, ", ".join(row.scopes) or "all", state, used)


def _disk(store: Store, config: Config) -> Disk:
    file = database_file(config.database)
    free = None
    if file is not None and Path(file).exists():
        free = shutil.disk_usage(Path(file).parent).free
    return Disk(store.size_bytes(), config.retention.max_bytes, free, store.oldest(), store.newest())


def size(n: float | None) -> str:
    """``912 MB``."""
    if n is None:
        return "–"
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= factor:
            value = n / factor
            return f"{value:.1f}\u00a0{unit}" if value < 10 else f"{value:,.0f}\u00a0{unit}"
    return f"{n:.0f}\u00a0B"


def versions() -> tuple[tuple[str, str], ...]:
    """Gustfront, Python and the libraries that matter."""
    out = [("Python", platform.python_version())]
    for name in LIBRARIES:
        try:
            out.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            out.append((name, "not installed as a package"))
    return tuple(out)


def commands(config: Config, end: float) -> tuple[tuple[str, str], ...]:
    """Commands for a terminal, with this configuration and times that end with the newest data."""
    times = {"end": stamp(end), "hour": stamp(end - 3600), "day": stamp(end - 86400)}
    c = f"--config {shlex.quote(str(config.path))} " if config.path else ""
    return tuple((what, command.format(c=c, **times)) for what, command in COMMANDS)
