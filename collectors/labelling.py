"""Class, pool, replica and the other names of one request or output, from the fields of its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collectors.fields import text
from collectors.pseudonyms import Pseudonyms
from core.classes import UNCLASSIFIED, Cap, ClassRules
from core.config import Config
from core.roles import Roles, strip_port

_ALWAYS = ("workload", "class", "pool", "instance", "upstream", "model", "tenant", "release")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request belongs. ``tenant`` is a pseudonym, or ``other`` beyond the configured number of tenants."""

    class_: str
    pool: str
    replica: str
    model: str
    release: str
    tenant: str


class Labelling:
    """Places of records; fields act as labels (``upstream`` also as ``instance``). Equal fields are worked out once."""

    def __init__(self, classes: ClassRules, roles: Roles, config: Config, names: Pseudonyms) -> None:
        self._classes, self._roles, self._names = classes, roles, names
        wanted = {
            *_ALWAYS,
            *classes.labels,
            *roles.pool,
            *roles.replica,
            *roles.model,
            *roles.release,
            *roles.tenant,
        }
        self._fields = tuple(sorted(wanted))
        self._class_cap = Cap(config.limits.classes, keep=classes.names)
        self._tenant_cap = Cap(config.limits.tenants)
        self._known: dict[tuple[str, ...], Place] = {}

    def place(self, data: Mapping[str, Any]) -> Place:
        """The place of one record. ``BadRecord`` where a field that names something is no text."""
        values = tuple(text(data, name) if name in data else "" for name in self._fields)
        place = self._known.get(values)
        if place is None:
            place = self._place({k: v for k, v in zip(self._fields, values, strict=True) if v})
            if len(self._known) < 50_000:
                self._known[values] = place
        return place

    def _place(self, labels: dict[str, str]) -> Place:
        if "instance" not in labels and "upstream" in labels:
            labels["instance"] = labels["upstream"]
        given = labels.get("class", "")
        found = self._classes.classify(labels)
        if given and (found is None or (not self._classes.rules and "workload" not in labels)):
            found = given
        value = self._roles.value
        return Place(
            class_=self._class_cap(found or UNCLASSIFIED),
            pool=value("pool", labels),
            replica=strip_port(value("replica", labels)),
            model=value("model", labels),
            release=value("release", labels),
            tenant=self._tenant_cap(self._names.tenant(value("tenant", labels))),
        )
