"""Objectives as recording and alerting rules for Prometheus, so that a team can page from its own stack.

Only what engines export can be asked of a Prometheus server: objectives on latencies, without tenant or prompt length. A request
is bad there where it is certainly late: above the lowest bucket edge at or above the threshold. The alerts are the rules of
``core/burn_rules.yaml``, with their least number of bad requests, and fire when Gustfront's own do, as long as no gateway log
says more than the engines know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from app.services.wording import span
from collectors.dictionary import Dictionary, Source, load_dictionary
from core.burn import RULES, BurnRule
from core.classes import ClassRules, Matcher
from core.config import Config
from core.objective import Objective
from core.times import format_duration
from sql.store import Store

WORKERS = ("vllm", "sglang", "tensorrt_llm", "tgi", "lmdeploy")
"""Engines asked for where nothing has been seen yet."""
INTERVAL = "1m"


@dataclass(frozen=True, slots=True)
class Family:
    """A histogram of one engine: name, matchers that every query needs, unit in seconds, and the bucket edge that stands for the
    threshold (in the family's own unit)."""

    component: str
    name: str
    matchers: tuple[str, ...]
    edge: float


@dataclass(frozen=True, slots=True)
class Rules:
    """``groups`` as Prometheus reads them; ``left_out``: objectives that cannot be asked there, with the reason."""

    groups: list[dict[str, Any]]
    left_out: dict[str, str]

    def text(self) -> str:
        """The rule file."""
        head = [
            "# Recording and burn-rate alerting rules for Prometheus, made by `gustfront export prometheus-rules`."
        ]
        head += [f"# Not here: {name}: {why}" for name, why in self.left_out.items()]
        return "\n".join(head) + "\n" + yaml.safe_dump({"groups": self.groups}, sort_keys=False, width=1000)


def make(store: Store | None, config: Config, dictionary: Dictionary | None = None) -> Rules:
    """Rules of all configured objectives; ``store`` tells which engines are there and what their bucket edges are."""
    dictionary = dictionary or load_dictionary()
    groups: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for slo in config.slos:
        o = Objective.from_config(slo)
        why = _cannot(o)
        families = [] if why else families_of(store, dictionary, o)
        if not why and not families:
            why = f"no engine that is known here exports {o.signal} as a histogram"
        if why:
            left_out[slo.name] = why
            continue
        selectors = class_selectors(config, o)
        groups.append(_group(o, families, selectors, slo.owner))
    return Rules(groups, left_out)


def _cannot(o: Objective) -> str:
    if o.sli != "latency":
        return f"{o.sli} is not a histogram of an engine"
    if not o.from_engine:
        return "engines know neither tenants nor the length of one prompt"
    if o.slice_target:
        return "minutes are counted, not requests"
    return ""


def families_of(store: Store | None, dictionary: Dictionary, o: Objective) -> list[Family]:
    """The histograms that measure the objective, one a component."""
    components: dict[str, set[str]] = {name: set() for name in WORKERS}
    edges: dict[str, set[tuple[float, ...]]] = {}
    if store is not None:
        seen: dict[str, set[str]] = {}
        for row in store.targets():
            for component in row.target.components:
                seen.setdefault(component, set()).add(row.target.pool)
        components = seen or components
        newest = store.newest()
        if newest is not None:
            matrix = store.rollup_matrix(
                o.signal, newest // 3600 * 3600 - 86400, newest, 3600, classes=[o.class_]
            )
            for _, pool, _, _, layout in matrix:
                edges.setdefault(pool, set()).add(layout)
    out = []
    for component, pools in sorted(components.items()):
        known = [e for pool in pools for e in edges.get(pool, ())]
        if component not in dictionary.components or (store is not None and edges and not known):
            continue
        source = _histogram(dictionary, component, o.signal)
        if source is not None:
            copies = dictionary.components[component].labels.copies
            matchers = [_matcher(k, v) for k, v in source.where.items()] if source.where else []
            matchers += [f'{label}=~"|0"' for label in copies]
            edge = min((x for e in known for x in e if x >= o.threshold * (1 - 1e-9)), default=o.threshold)
            out.append(Family(component, source.family, tuple(matchers), edge / (source.scale or 1.0)))
    return out


def _histogram(dictionary: Dictionary, component: str, signal: str) -> Source | None:
    for entry in dictionary.entries(component):
        s = entry.source
        if entry.signal == signal and s.type == "histogram" and not s.fallback:
            return s
    return None


def _matcher(label: str, wanted: Any) -> str:
    """A PromQL matcher of a dictionary's ``where``."""
    if isinstance(wanted, (list, tuple)):
        return f'{label}=~"{"|".join(re.escape(str(v)) for v in wanted)}"'
    text = str(wanted)
    for mark, op in (("!~", "!~"), ("~", "=~"), ("!", "!=")):
        if text.startswith(mark):
            return f"{label}{op}{_quoted(text.removeprefix(mark))}"
    return f"{label}={_quoted(text)}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass(frozen=True, slots=True)
class Selectors:
    """Label matchers of a class: alternatives, and those of the classes before it, whose series are not its own."""

    mine: tuple[str, ...]
    before: tuple[str, ...]


def class_selectors(config: Config, o: Objective) -> Selectors:
    """How the class's series are found: its rules, less those of the classes before it, since the first match wins."""
    rules = ClassRules.from_config(config.classes)
    narrow = [f"{label}={_quoted(value)}" for label, value in _narrowed(config, o).items()]
    if not rules.rules:
        name = _quoted(o.class_)
        return Selectors(
            (",".join([f"workload={name}", *narrow]), ",".join([f'workload="",pool={name}', *narrow])), ()
        )
    before: list[str] = []
    for rule in rules.rules:
        written = [_written(alternative) for alternative in rule.match]
        if rule.name == o.class_:
            return Selectors(tuple(",".join([w, *narrow]) for w in written), tuple(before))
        before += written
    return Selectors((",".join([f"workload={_quoted(o.class_)}", *narrow]),), tuple(before))


def _narrowed(config: Config, o: Objective) -> Mapping[str, str]:
    out = {}
    if o.pool:
        out[config.roles.pool[0]] = o.pool
    if o.model:
        out[config.roles.model[0]] = o.model
    return out


def _written(alternative: Sequence[Matcher]) -> str:
    return ",".join(str(m) for m in alternative)


def _rate(series: str, extra: Sequence[str], selectors: Selectors, window: str, function: str) -> str:
    """The class's series: any of its alternatives, none of those of an earlier class."""

    def all_of(alternatives: Sequence[str]) -> str:
        parts = []
        for one in alternatives:
            inside = ",".join([one, *extra]) if one else ",".join(extra)
            parts.append(f"{function}({series}{{{inside}}}[{window}])")
        return " or ".join(parts)

    mine = all_of(selectors.mine)
    if not selectors.before:
        return f"sum({mine})"
    return f"sum(({mine}) unless ({all_of(selectors.before)}))"


def le(edge: float) -> str:
    """A matcher of one bucket however its edge is written: ``le=~"5|5\\\\.0"``."""
    short = f"{edge:.12g}"
    forms = [re.escape(short)]
    if "." not in short and "e" not in short:
        forms.append(re.escape(short + ".0"))
    return f"le=~{_quoted('|'.join(forms))}"


def bad_and_all(
    families: Sequence[Family], selectors: Selectors, window: str, function: str
) -> tuple[str, str]:
    """PromQL of the bad requests and of all requests in ``window``, as rates or increases."""

    def summed(parts: list[str]) -> str:
        # A fleet without one of the engines still has a sum.
        return parts[0] if len(parts) == 1 else "(" + " + ".join(f"({p} or vector(0))" for p in parts) + ")"

    whole = [_rate(f"{f.name}_count", f.matchers, selectors, window, function) for f in families]
    good = [
        _rate(f"{f.name}_bucket", [*f.matchers, le(f.edge)], selectors, window, function) for f in families
    ]
    return f"{summed(whole)} - {summed(good)}", summed(whole)


def windows() -> list[float]:
    """All windows of the burn rules, shortest first."""
    return sorted({w for r in RULES for w in (r.long, r.short)})


def record(window: float) -> str:
    """Name of the recorded share of bad requests."""
    return f"gustfront:slo_bad_requests:ratio_rate{format_duration(window)}"


def counted(window: float) -> str:
    """Name of the recorded number of bad requests."""
    return f"gustfront:slo_bad_requests:increase{format_duration(window)}"


def _group(o: Objective, families: Sequence[Family], selectors: Selectors, owner: str) -> dict[str, Any]:
    labels = {"slo": o.name, "class": o.class_}
    rules: list[dict[str, Any]] = []
    for window in windows():
        text = format_duration(window)
        bad, every = bad_and_all(families, selectors, text, "rate")
        rules.append({"record": record(window), "expr": f"({bad}) / ({every})", "labels": dict(labels)})
    for window in sorted({r.long for r in RULES}):
        bad, _ = bad_and_all(families, selectors, format_duration(window), "increase")
        rules.append({"record": counted(window), "expr": bad, "labels": dict(labels)})
    rules += [_alert(o, rule, owner) for rule in RULES]
    name = re.sub(r"[^a-zA-Z0-9_-]+", "-", o.name)
    return {"name": f"gustfront-slo-{name}", "interval": INTERVAL, "rules": rules}


def _alert(o: Objective, rule: BurnRule, owner: str) -> dict[str, Any]:
    at = f"{{slo={_quoted(o.name)}}}"
    limit = f"{rule.factor:g} * {o.budget:.9g}"
    expr = (
        f"{record(rule.long)}{at} >= {limit}"
        f" and {record(rule.short)}{at} >= {limit}"
        f" and {counted(rule.long)}{at} >= {rule.min_bad}"
    )
    gone = span(o.window / rule.factor)
    labels = {
        "severity": rule.severity,
        "slo": o.name,
        "class": o.class_,
        "long_window": format_duration(rule.long),
    }
    if owner:
        labels["owner"] = owner
    words = (
        f"{o.class_}: the error budget of {o.name} burns at least {rule.factor:g} times as fast as it may;"
        f" a whole budget is gone in {gone} at this pace".replace("\u00a0", " ")
    )
    return {
        "alert": "GustfrontBudgetBurn",
        "expr": expr,
        "labels": labels,
        "annotations": {
            "summary": words,
            "description": "Share of bad requests {{ $value | humanizePercentage }}.",
        },
    }
