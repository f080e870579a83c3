"""The configuration in force, and one read-only and one writing store per process, shared by pages and API."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from core.config import Config, load_config
from sql.store import Store

_lock = threading.Lock()
_stores: dict[str, Store] = {}
_writers: dict[str, Store] = {}
_configs: dict[tuple[str, float, str], Config] = {}


def configuration() -> Config:
    """The configuration of ``$GUSTFRONT_CONFIG`` (or ``./gustfront.yaml``, or built in), ``$GUSTFRONT_DATABASE`` on top.

    Read again when the file changes. Raises ConfigError naming path, value and fix.
    """
    path = os.environ.get("GUSTFRONT_CONFIG", "")
    database = os.environ.get("GUSTFRONT_DATABASE", "")
    file = Path(path or "gustfront.yaml")
    key = (path, file.stat().st_mtime if file.exists() else 0.0, database)
    with _lock:
        if key not in _configs:
            config = load_config(None)
            _configs.clear()
            if database:
                config = config.model_copy(update={"database": database})
            if os.environ.get("GUSTFRONT_INSECURE_LISTEN"):
                app = config.app.model_copy(update={"insecure_listen": True})
                config = config.model_copy(update={"app": app})
            _configs[key] = config
        return _configs[key]


def shared_store(url: str | None = None) -> Store:
    """The read-only store of the configured database; opened once. Raises StoreError where it cannot be read (yet)."""
    wanted = url or configuration().database
    with _lock:
        store = _stores.get(wanted)
        if store is None:
            store = Store.open(wanted, read_only=True)
            _stores[wanted] = store
        return store


def writing_store(url: str | None = None) -> Store:
    """A store that can write, opened once, for what people and programs do; reads stay with :func:`shared_store`, which never
    waits for a writer. Raises StoreError."""
    wanted = url or configuration().database
    with _lock:
        store = _writers.get(wanted)
        if store is None:
            store = Store.open(wanted)
            _writers[wanted] = store
        return store


def forget_stores() -> None:
    """Close all stores (end of the process, tests)."""
    with _lock:
        for store in (*_stores.values(), *_writers.values()):
            store.close()
        _stores.clear()
        _writers.clear()
        _configs.clear()
