"""Which workload class a series belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from collectors.mapping_rows import Row
from core.classes import SHARED, UNCLASSIFIED, Cap, ClassRules
from core.frames import Target

MAX_CLASSES = 50
"""Classes that come from label values and not from rules: at most so many a target, the others become ``other``."""


class Classifier:
    """The class of a series: its own, the target's, or shared where the target serves several."""

    def __init__(
        self, classes: ClassRules, target: Target, extra: Mapping[str, str], private: Iterable[str]
    ) -> None:
        self._rules, self._keys = classes, tuple(sorted(classes.labels))
        place = {
            "instance": target.address,
            "cluster": target.cluster,
            "pool": target.pool,
            "replica": target.replica,
            "job": target.job,
            "role": target.role,
            "release": target.release,
            "model": target.model,
        }
        self._place = {k: v for k, v in place.items() if v} | dict(extra) | dict(target.labels)
        self._given = dict(extra)
        self._private = frozenset(private)
        self._default = classes.classify(self._place)
        self._memo: dict[tuple[str, ...], tuple[str | None, bool]] = {}
        self._cap = Cap(MAX_CLASSES, classes.names)
        self.mixed = False

    def look(self, row: Row) -> tuple[str | None, bool]:
        """The class by rule, and whether the series' own labels decided it."""
        key = tuple(self._own(row, k) for k in self._keys)
        found = self._memo.get(key)
        if found is None:
            mine = {k: v for k, v in zip(self._keys, key, strict=True) if v}
            name = self._rules.classify({**self._place, **mine})
            own = bool(mine) and (name != self._default or self._rules.classify(mine) is not None)
            found = self._memo[key] = (name, own and name is not None)
        return found

    def _own(self, row: Row, label: str) -> str:
        value = row.own.get(label, "")
        return "" if label in self._private or self._given.get(label) == value else value

    def prepare(self, rows: Iterable[Row]) -> None:
        """Look at every series once: a target is mixed when some series has a class of its own that is not the target's."""
        for r in rows:
            name, own = self.look(r)
            if own and name != self._default:
                self.mixed = True

    def __call__(self, row: Row) -> str:
        """The class that the series' columns carry."""
        name, own = self.look(row)
        if self.mixed and not own:
            return SHARED
        return self._cap(name) if name else UNCLASSIFIED
