"""Which labels say where a target stands in the fleet: cluster, pool, replica, rank, role, model, release,
tenant, GPU host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlsplit

from core.frames import Target

_HOST_PORT = re.compile(r"(.+):\d{1,5}")


def strip_port(instance: str) -> str:
    """Host part of ``host:port``, ``http://host:port/path`` or ``[::1]:8000``; anything else unchanged."""
    if "://" in instance:
        instance = urlsplit(instance).netloc or instance
    if instance.count(":") > 1 and not instance.startswith("["):
        return instance  # a bare IPv6 address: its last group is no port
    found = _HOST_PORT.fullmatch(instance)
    host = found[1] if found else instance
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


@dataclass(frozen=True, slots=True)
class Roles:
    """For each role the labels to look at, first non-empty one wins."""

    cluster: tuple[str, ...] = ("cluster",)
    pool: tuple[str, ...] = ("pool",)
    replica: tuple[str, ...] = ("instance", "pod")
    rank: tuple[str, ...] = ("dp_rank", "engine")
    role: tuple[str, ...] = ("engine_type", "role")
    model: tuple[str, ...] = ("model_name", "model")
    release: tuple[str, ...] = ("release", "version")
    tenant: tuple[str, ...] = ("tenant", "team")
    gpu_host: tuple[str, ...] = ("Hostname", "hostname")

    @classmethod
    def from_config(cls, roles: Any = None) -> Roles:
        """Of ``core.config.RolesConfig``, a mapping of role to labels, or None for the defaults."""
        if roles is None:
            return cls()
        given = roles if isinstance(roles, Mapping) else {f.name: getattr(roles, f.name) for f in fields(cls)}
        return cls(**{name: tuple(labels) for name, labels in given.items()})

    def value(self, role: str, labels: Mapping[str, str], default: str = "") -> str:
        """The first non-empty label of a role, ``default`` where none is set."""
        names: tuple[str, ...] = getattr(self, role)
        return next((v for name in names if (v := labels.get(name))), default)

    def target(
        self,
        address: str,
        labels: Mapping[str, str],
        source: str = "",
        *,
        components: Sequence[str] = (),
        version: str = "",
        model: str = "",
        job: str = "",
    ) -> Target:
        """The target at ``address`` with its place read from its labels.

        ``replica`` is the instance name without port, from the labels or else the address; ``pool`` falls
        back to the job so that an unmapped fleet is still grouped. ``rank`` stays empty: ranks are labels of
        series, not of the target, unless the target carries the label itself. ``model`` given by the caller
        (read from the engine) wins over a label.
        """
        job = job or labels.get("job", "")
        return Target(
            address=address,
            pool=self.value("pool", labels) or job,
            replica=strip_port(self.value("replica", labels, address)),
            cluster=self.value("cluster", labels),
            rank=self.value("rank", labels),
            source=source,
            job=job,
            components=tuple(components),
            version=version,
            model=model or self.value("model", labels),
            role=self.value("role", labels),
            release=self.value("release", labels),
            gpu_host=self.value("gpu_host", labels),
            labels={k: v for k, v in labels.items() if v and not k.startswith("__")},
        )
