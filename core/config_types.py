"""Field types of the configuration: durations, sizes, paths, URLs; each failure says what to write
instead.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, NoReturn
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from core.errors import ConfigError
from core.times import parse_duration

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SQLITE = "sqlite:///"


def fail(problem: str, fix: str = "") -> NoReturn:
    """Raise the error that pydantic collects and :mod:`core.config` turns into a ConfigError with path and
    value.
    """
    raise PydanticCustomError("gustfront", "{problem}", {"problem": problem, "fix": fix})


def duration(value: Any) -> float:
    """Seconds of ``15s``; a bare number other than 0 is refused, since its unit would be a guess."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        fail("not a duration", "write a number with a unit, such as 15s or 28d")
    if not isinstance(value, str):
        if value == 0:
            return 0.0
        fail("a duration needs a unit", f"write {value}s if seconds are meant")
    try:
        return parse_duration(value)
    except ConfigError as error:
        fail(error.problem, error.fix)


def _positive(value: float) -> float:
    if value <= 0:
        fail("must be longer than zero", "write a duration such as 15s")
    return value


def _size(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found or float(found[1]) <= 0:
        fail("not a size in bytes", "write a number of bytes or a size such as 32MiB or 20GB")
    prefix = (found[2] or "").lower()
    base = 1024 if prefix.endswith("i") else 1000
    return int(float(found[1]) * base ** _POWER[prefix[:1]])


def _base(info: ValidationInfo) -> Path | None:
    return (info.context or {}).get("base")


def _path(value: str, info: ValidationInfo) -> str:
    base = _base(info)
    path = Path(value).expanduser()
    return str(path if base is None or path.is_absolute() else base / path)


def _database(value: str, info: ValidationInfo) -> str:
    if not re.match(r"(sqlite|postgres(ql)?)(\+\w+)?://", value):
        fail(
            "not a database URL that Gustfront knows",
            "write sqlite:////absolute/file.db, sqlite:///./relative.db or postgresql://user@host/name",
        )
    if value.startswith("postgres://"):
        value = "postgresql" + value.removeprefix("postgres")
    base = _base(info)
    if base is not None and value.startswith(_SQLITE):
        file, mark, query = value.removeprefix(_SQLITE).partition("?")
        # An empty name and :memory: are databases in memory; an absolute path gives four slashes.
        if file and not file.startswith((":memory:", "file:")):
            file = str(base / Path(file).expanduser())
        return f"{_SQLITE}{file}{mark}{query}"
    return value


def _http_url(value: str) -> str:
    fix = "write a URL such as http://prometheus:9090"
    try:
        parts = urlsplit(value)
        port_ok = parts.port is None or parts.port > 0
    except ValueError:
        fail("not a URL", fix)
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_ok:
        fail("not an http or https URL", fix)
    if parts.username or parts.password:
        fail("credentials do not belong into a URL", "use username and password_file, or token_file")
    return value.rstrip("/")


def hide_password(url: str) -> str:
    """The URL with its password, if any, as ``***``: safe for logs, pages and errors."""
    return re.sub(r"(://[^:/@\s]*):[^/\s]*@", r"\1:***@", url)


Duration = Annotated[float, BeforeValidator(duration)]
"""Seconds, written ``15s``; zero allowed."""
PositiveDuration = Annotated[float, BeforeValidator(duration), AfterValidator(_positive)]
"""Seconds above zero, written ``15s``."""
Size = Annotated[int, BeforeValidator(_size)]
"""Bytes, written ``32MiB`` or as a number."""
FilePath = Annotated[str, AfterValidator(_path)]
"""A path or glob; relative ones are taken from the folder of the configuration file."""
DatabaseUrl = Annotated[str, AfterValidator(_database)]
"""A SQLAlchemy URL; a relative SQLite file is taken from the folder of the configuration file."""
HttpUrl = Annotated[str, AfterValidator(_http_url)]
"""``http(s)://host[:port][/path]`` without credentials or trailing slash."""
