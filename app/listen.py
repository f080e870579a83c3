"""Where the server may listen: beyond loopback only where people have to say who they are, or somebody said they need not."""

from __future__ import annotations

import os
import socket

from app.auth import is_loopback
from core.config import Config
from core.errors import ConfigError, EnvironmentProblem

INSECURE = "GUSTFRONT_INSECURE_LISTEN"
"""Environment variable by which ``--insecure-listen`` reaches the gate."""


def check_listen(config: Config, host: str, *, insecure: bool = False) -> None:
    """ConfigError where ``host`` can be reached from elsewhere and nobody would be asked who they are."""
    if config.auth.mode != "none" or insecure or config.app.insecure_listen or os.environ.get(INSECURE):
        return
    try:
        addresses = {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise EnvironmentProblem(
            f"{host}: this address cannot be resolved ({error.strerror}). Fix: give --host an address of this machine"
        ) from None
    if not all(is_loopback(a.partition("%")[0]) for a in addresses):
        raise ConfigError(
            "app.host",
            "everybody who reaches this address could read and change everything, because auth is none",
            "set auth.mode to proxy or oidc, or listen on 127.0.0.1; or, where something else guards the port, "
            "allow it with --insecure-listen (app.insecure_listen: true)",
            host,
        )
