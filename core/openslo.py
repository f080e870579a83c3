"""Objectives as OpenSLO files (``openslo/v1``), out and in.

An objective goes out whole: what OpenSLO has no word for stands in the indicator's ``metricSource`` of type ``gustfront``. What
comes in must say what is measured in one of two ways: such a ``metricSource``, or annotations ``gustfront/class``,
``gustfront/signal`` and so on beside an indicator of another system. Unknown fields are refused, with their path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from pydantic import ValidationError

from core.config_errors import from_argument
from core.config_slo import SloConfig
from core.errors import ConfigError
from core.signals import resolve
from core.times import format_duration, parse_duration

VERSION = "openslo/v1"
SOURCE = "gustfront"
PREFIX = "gustfront/"
CALENDAR = {"week": "1w", "month": "1M", "quarter": "1Q"}
_NAME = re.compile(r"[^a-z0-9-]+")
_OTHER = {"Service", "SLI", "DataSource", "AlertPolicy", "AlertCondition", "AlertNotificationTarget"}
_OWN = {
    "sli",
    "class",
    "signal",
    "thresholds",
    "point",
    "tenant",
    "model",
    "pool",
    "prompt_above",
    "prompt_below",
}
_OWN |= {"min_coverage_percent", "threshold", "name", "slice_percent", "owner"}


def entry(slo: SloConfig) -> dict[str, Any]:
    """An objective as it stands under ``slos:``: units written, defaults left out."""
    out: dict[str, Any] = {"name": slo.name, "class": slo.class_}
    if slo.sli != "latency":
        out["sli"] = slo.sli
    if slo.signal:
        out["signal"] = slo.signal
    if slo.threshold:
        timed = slo.sli == "availability" or slo.signal.endswith("_seconds")
        out["threshold"] = shown_duration(slo.threshold) if timed else slo.threshold
    if slo.thresholds:
        out["thresholds"] = {k: shown_duration(v) for k, v in slo.thresholds.items()}
    out["objective_percent"] = slo.objective_percent
    out["window"] = slo.calendar or format_duration(slo.window)
    for name, default in _DEFAULTS.items():
        value = getattr(slo, name)
        if value != default:
            out[name] = value
    return out


_DEFAULTS: dict[str, Any] = {
    "budgeting": "occurrences",
    "slice_percent": None,
    "point": "auto",
    "tenant": "",
    "model": "",
    "pool": "",
    "prompt_above": None,
    "prompt_below": None,
    "min_coverage_percent": 95.0,
    "owner": "",
    "description": "",
}


def shown_duration(seconds: float) -> str:
    """``50ms``, ``1s``, ``2m``: exactly, in the largest unit that is whole."""
    milliseconds = round(seconds * 1000, 6)
    if milliseconds < 1000 or milliseconds % 1000:
        return f"{milliseconds:.12g}ms"
    return format_duration(seconds)


def document(slo: SloConfig) -> dict[str, Any]:
    """One OpenSLO document."""
    own = {k: v for k, v in entry(slo).items() if k in _OWN}
    target = round(slo.objective_percent / 100, 12)
    objective: dict[str, Any] = {"displayName": slo.name, "target": target}
    metric: dict[str, Any] = {"metricSource": {"type": SOURCE, "spec": own}}
    indicator: dict[str, Any] = {"thresholdMetric": metric}
    if slo.sli == "latency":
        objective |= {"op": "lte", "value": slo.threshold}
    else:
        whole = {"metricSource": {"type": SOURCE, "spec": {"class": slo.class_, "requests": "all"}}}
        indicator = {"ratioMetric": {"counter": True, "good": metric, "total": whole}}
    if slo.budgeting == "timeslices":
        objective |= {
            "timeSliceTarget": round((slo.slice_percent or slo.objective_percent) / 100, 12),
            "timeSliceWindow": "1m",
        }
    window: dict[str, Any] = {"duration": format_duration(slo.window), "isRolling": True}
    if slo.calendar:
        start = {"startTime": "2026-01-01 00:00:00", "timeZone": "UTC"}
        window = {"duration": CALENDAR[slo.calendar], "isRolling": False, "calendar": start}
    name = _NAME.sub("-", slo.name.lower()).strip("-") or "slo"
    spec: dict[str, Any] = {"service": slo.class_}
    if slo.description:
        spec["description"] = slo.description
    spec |= {
        "indicator": {"metadata": {"name": f"{name}-sli"}, "spec": indicator},
        "timeWindow": [window],
        "budgetingMethod": "Timeslices" if slo.budgeting == "timeslices" else "Occurrences",
        "objectives": [objective],
    }
    metadata = {"name": name, "displayName": slo.name}
    return {"apiVersion": VERSION, "kind": "SLO", "metadata": metadata, "spec": spec}


def dump(slos: Sequence[SloConfig]) -> str:
    """All objectives as one YAML file of documents."""
    return yaml.safe_dump_all([document(s) for s in slos], sort_keys=False, allow_unicode=True)


# ------------------------------------------------------------------------------------------------------------------ in


def load(text: str, name: str = "OpenSLO file") -> tuple[list[SloConfig], list[str]]:
    """Objectives of a file, and what was left out with the reason. ConfigError with path and fix for what is wrong."""
    try:
        documents = [d for d in yaml.safe_load_all(text) if d is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(name, f"is not YAML: {str(error).splitlines()[0]}", "check it") from None
    if not documents:
        raise ConfigError(name, "holds no document", "give a file of kind: SLO")
    skipped: list[str] = []
    indicators: dict[str, Any] = {}
    wanted: list[tuple[str, Mapping[str, Any]]] = []
    for i, one in enumerate(documents):
        path = f"{name}[{i}]"
        if not isinstance(one, dict):
            raise ConfigError(path, "is not a mapping", "write apiVersion, kind, metadata, spec")
        _only(one, {"apiVersion", "kind", "metadata", "spec"}, path)
        if one.get("apiVersion") != VERSION:
            raise ConfigError(
                f"{path}.apiVersion", f"is not {VERSION}", f"write {VERSION}", one.get("apiVersion")
            )
        kind = one.get("kind")
        label = str(_map(one, "metadata", path).get("name", i))
        if kind == "SLO":
            wanted.append((path, one))
        elif kind == "SLI":
            indicators[label] = _map(one, "spec", path)
        elif kind in _OTHER:
            skipped.append(f"{kind} {label}: Gustfront has its own")
        else:
            raise ConfigError(f"{path}.kind", "is unknown", "write SLO", kind)
    out = [s for path, one in wanted for s in _slos(one, path, indicators)]
    return out, skipped


def _slos(one: Mapping[str, Any], path: str, indicators: Mapping[str, Any]) -> list[SloConfig]:
    meta, spec = _map(one, "metadata", path), _map(one, "spec", path)
    _only(meta, {"name", "displayName", "labels", "annotations"}, f"{path}.metadata")
    known = {
        "description",
        "service",
        "indicator",
        "indicatorRef",
        "timeWindow",
        "budgetingMethod",
        "objectives",
    }
    _only(spec, known | {"alertPolicies"}, f"{path}.spec")
    values = _source(meta, spec, path, indicators)
    values.setdefault("class", spec.get("service"))
    values |= _window(spec, f"{path}.spec.timeWindow")
    if spec.get("description"):
        values["description"] = str(spec["description"])
    method = spec.get("budgetingMethod", "Occurrences")
    if method not in ("Occurrences", "Timeslices"):
        raise ConfigError(
            f"{path}.spec.budgetingMethod", "is not counted here", "write Occurrences or Timeslices", method
        )
    objectives = spec.get("objectives")
    if not isinstance(objectives, list) or not objectives:
        raise ConfigError(f"{path}.spec.objectives", "is not a list of objectives", "write one")
    title = str(meta.get("displayName") or meta.get("name") or "")
    out = []
    for i, objective in enumerate(objectives):
        where = f"{path}.spec.objectives[{i}]"
        if not isinstance(objective, dict):
            raise ConfigError(where, "is not a mapping", "write target and value")
        made = values | _objective(objective, where, method, values)
        made["name"] = title if len(objectives) == 1 else f"{title}-{objective.get('displayName') or i + 1}"
        try:
            out.append(SloConfig.model_validate(made))
        except ValidationError as error:
            raise from_argument(error, {}, where, made) from None
    return out


def _objective(one: Mapping[str, Any], where: str, method: str, values: Mapping[str, Any]) -> dict[str, Any]:
    known = {"displayName", "op", "value", "target", "targetPercent", "timeSliceTarget", "timeSliceWindow"}
    _only(one, known, where)
    if "target" in one and "targetPercent" in one:
        raise ConfigError(where, "has target and targetPercent", "keep one")
    percent = one.get("targetPercent")
    if percent is None:
        if not isinstance(one.get("target"), (int, float)):
            raise ConfigError(f"{where}.target", "is missing", "write target: 0.99")
        percent = round(float(one["target"]) * 100, 10)
    out: dict[str, Any] = {"objective_percent": percent}
    if one.get("op", "lte") not in ("lte", "lt"):
        raise ConfigError(f"{where}.op", "a latency is good below its threshold", "write op: lte", one["op"])
    value = one.get("value")
    if value is not None and values.get("sli", "latency") == "latency":
        timed = _signal_id(str(values.get("signal", ""))).endswith("_seconds")
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        out["threshold"] = shown_duration(float(value)) if timed and plain else value
    if method == "Timeslices":
        if one.get("timeSliceWindow", "1m") not in ("1m", 1):
            raise ConfigError(
                f"{where}.timeSliceWindow", "slices are minutes", "write 1m", one["timeSliceWindow"]
            )
        out["budgeting"] = "timeslices"
        if one.get("timeSliceTarget") is not None:
            out["slice_percent"] = round(float(one["timeSliceTarget"]) * 100, 10)
    return out


def _signal_id(name: str) -> str:
    """The id of a signal, of its id or alias; what is unknown stays, and is refused with the objective."""
    try:
        return str(resolve(name).id)
    except ConfigError:
        return name


def _source(
    meta: Mapping[str, Any], spec: Mapping[str, Any], path: str, indicators: Mapping[str, Any]
) -> dict[str, Any]:
    """What is measured: of a gustfront metric source, else of annotations."""
    notes = meta.get("annotations") or {}
    own = {k.removeprefix(PREFIX): v for k, v in notes.items() if str(k).startswith(PREFIX)}
    if own:
        _only(own, _OWN, f"{path}.metadata.annotations", PREFIX)
        return dict(own)
    if "indicatorRef" in spec:
        found = indicators.get(str(spec["indicatorRef"]))
        if found is None:
            raise ConfigError(
                f"{path}.spec.indicatorRef",
                "no SLI of that name is in the file",
                "add it",
                spec["indicatorRef"],
            )
        metric, where = found, f"{path}.spec.indicatorRef"
    else:
        where = f"{path}.spec.indicator"
        metric = _map(_map(spec, "indicator", f"{path}.spec"), "spec", where)
    _only(metric, {"thresholdMetric", "ratioMetric", "description"}, f"{where}.spec")
    inner = metric.get("thresholdMetric") or (metric.get("ratioMetric") or {}).get("good") or {}
    source = inner.get("metricSource") if isinstance(inner, dict) else None
    if not isinstance(source, dict) or source.get("type") != SOURCE:
        raise ConfigError(
            where,
            "is a query of another system: Gustfront measures requests itself",
            "add annotations gustfront/class and gustfront/signal to metadata",
        )
    own = _map(source, "spec", where)
    _only(own, _OWN, f"{where}.metricSource.spec")
    return {k: v for k, v in own.items() if k not in ("name",)}


def _window(spec: Mapping[str, Any], path: str) -> dict[str, Any]:
    windows = spec.get("timeWindow")
    if not isinstance(windows, list) or len(windows) != 1 or not isinstance(windows[0], dict):
        raise ConfigError(path, "is not a list of one window", "write - {duration: 28d, isRolling: true}")
    one = windows[0]
    _only(one, {"duration", "isRolling", "calendar"}, f"{path}[0]")
    text = str(one.get("duration", ""))
    if one.get("isRolling", True):
        weeks = re.fullmatch(r"(\d+)w", text)
        days = f"{int(weeks[1]) * 7}d" if weeks else text
        parse_duration(days, f"{path}[0].duration")
        return {"window": days}
    for calendar, written in CALENDAR.items():
        if text == written:
            zone = (one.get("calendar") or {}).get("timeZone", "UTC")
            if zone not in ("UTC", "Etc/UTC", "GMT"):
                raise ConfigError(
                    f"{path}[0].calendar.timeZone", "calendars are kept in UTC", "write UTC", zone
                )
            return {"window": calendar}
    raise ConfigError(f"{path}[0].duration", "no calendar window of that length", "write 1w, 1M or 1Q", text)


def _map(of: Mapping[str, Any], key: str, path: str) -> dict[str, Any]:
    value = of.get(key)
    if not isinstance(value, dict):
        raise ConfigError(f"{path}.{key}", "is missing or not a mapping", f"write {key}:")
    return value


def _only(of: Mapping[str, Any], known: set[str], path: str, prefix: str = "") -> None:
    for key in of:
        if key not in known:
            listed = ", ".join(prefix + k for k in sorted(known))
            raise ConfigError(
                f"{path}.{prefix}{key}", "is not a field that is understood", f"one of {listed}", key
            )
