"""Reading the configuration: ``--config``, else ``$GUSTFRONT_CONFIG``, else ``./gustfront.yaml``, else what
is built in.

All problems of a file are collected and raised as one :class:`ConfigErrors`; each names path, value and fix.
``${NAME}`` in ``database``, ``sources``, ``app``, ``auth`` and ``receivers`` is taken from the environment, so that secrets
need not stand in the file; values that can hold secrets are never repeated in messages.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from core.config_errors import ConfigErrors, cross_checks, format_path, from_argument, from_pydantic
from core.config_models import (
    AppConfig,
    ClassConfig,
    Config,
    DetectConfig,
    LimitsConfig,
    OutputsConfig,
    OutputsSource,
    PrometheusSource,
    RequestsSource,
    RetentionConfig,
    RolesConfig,
    ScrapeSource,
    ScrapeTarget,
    SloConfig,
    SourceConfig,
)
from core.config_types import DatabaseUrl, hide_password
from core.errors import ConfigError

__all__ = [
    "AppConfig",
    "ClassConfig",
    "Config",
    "ConfigErrors",
    "DetectConfig",
    "LimitsConfig",
    "OutputsConfig",
    "OutputsSource",
    "PrometheusSource",
    "RequestsSource",
    "RetentionConfig",
    "RolesConfig",
    "ScrapeSource",
    "ScrapeTarget",
    "SloConfig",
    "SourceConfig",
    "database_argument",
    "find_config",
    "hide_password",
    "load_config",
    "parse_config",
    "read_secret",
    "section_argument",
]

Section = TypeVar("Section", bound=BaseModel)

ENVIRONMENT = "GUSTFRONT_CONFIG"
DEFAULT_FILE = "gustfront.yaml"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_EXPANDED = ("database", "sources", "app", "auth", "receivers")


def find_config(path: str | Path | None = None) -> Path | None:
    """The file that would be read, None for the built-in configuration. ConfigError where a named file does
    not exist.
    """
    for origin, value in (("--config", path), (f"${ENVIRONMENT}", os.environ.get(ENVIRONMENT))):
        if value:
            found = Path(value).expanduser()
            if not found.is_file():
                raise ConfigError(origin, "no such file", "give the path of a gustfront.yaml", str(found))
            return found
    default = Path(DEFAULT_FILE)
    return default if default.is_file() else None


def load_config(path: str | Path | None = None) -> Config:
    """Read, check and freeze the configuration. ConfigError (ConfigErrors for its content) with path, value
    and fix.
    """
    file = find_config(path)
    if file is None:
        return Config.built_in()
    file = file.absolute()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            str(file), f"cannot be read: {error}", "check its permissions and that it is UTF-8"
        ) from None
    config = parse_config(text, name=str(file), base=file.parent)
    config._path = file
    return config


def parse_config(text: str, *, name: str = "configuration", base: Path | None = None) -> Config:
    """The configuration in ``text``; relative files are taken from ``base``. Raises ConfigErrors with
    everything that is wrong.
    """
    data = _yaml(text, name)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        problem = ConfigError("configuration", "is not a mapping", "write keys such as sources: and classes:")
        raise ConfigErrors(name, [problem])
    problems: list[ConfigError] = []
    expanded = {
        key: _expand(value, (key,), problems) if key in _EXPANDED else value for key, value in data.items()
    }
    if base is not None:
        # The embedded file, too, lies beside the configuration: the same data from whatever folder a command is started in.
        expanded.setdefault("database", Config.model_fields["database"].default)
    config: Config | None = None
    try:
        config = Config.model_validate(expanded, context={"base": base})
    except ValidationError as error:
        # Where a variable is missing, what is wrong with the empty text in its place is no news.
        missing = {p.path for p in problems}
        problems += [p for p in from_pydantic(error, data) if p.path not in missing]
    problems += cross_checks(data)
    if problems or config is None:
        raise ConfigErrors(name, problems)
    return config


def database_argument(url: str, origin: str) -> str:
    """A database URL that came as an argument or from the environment, checked as the file's; ConfigError names
    ``origin``.
    """
    try:
        checked: str = TypeAdapter(DatabaseUrl).validate_python(url)
    except ValidationError as error:
        raise from_argument(error, {}, origin, hide_password(url)) from None
    return checked


def section_argument(model: type[Section], values: Mapping[str, Any], options: Mapping[str, str]) -> Section:
    """A section of the configuration whose ``values`` came as arguments; ``options`` are the arguments' names.

    ConfigError names the argument, what it was and the fix.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise from_argument(error, options, "", values) from None


def read_secret(file: str | Path) -> str:
    """The secret in a file, without surrounding white space. ConfigError names the file, never what it
    holds.
    """
    try:
        secret = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            str(file), f"cannot read the secret: {reason}", "check path and permissions"
        ) from None
    if not secret or any(c in secret for c in "\r\n"):
        raise ConfigError(
            str(file), "is not one line with a secret", "write the token or password alone into it"
        )
    return secret


class _Loader(yaml.SafeLoader):
    """Safe loader that refuses a key given twice: the first one would silently be lost."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} is given twice", key.start_mark
                )
            seen.add(key.value)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def _yaml(text: str, name: str) -> Any:
    fix = "check indentation, colons and quotes there; quote values that hold : or {"
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "YAML"
        raise ConfigErrors(name, [ConfigError(where, error.problem or "not YAML", fix)]) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigErrors(
            name, [ConfigError("YAML", str(error).split("\n")[0] or "not YAML", fix)]
        ) from None


def _expand(value: Any, path: tuple[str | int, ...], problems: list[ConfigError]) -> Any:
    """Replace ``${NAME}`` in every string below; a variable that is not set is a problem, not an empty
    string.
    """
    if isinstance(value, str):

        def variable(found: re.Match[str]) -> str:
            if found[1] not in os.environ:
                problems.append(
                    ConfigError(
                        format_path(path), f"environment variable {found[1]} is not set", f"export {found[1]}"
                    )
                )
            return os.environ.get(found[1], "")

        return _VARIABLE.sub(variable, value)
    if isinstance(value, Mapping):
        return {k: _expand(v, (*path, k), problems) for k, v in value.items()}
    if isinstance(value, Sequence):
        return [_expand(v, (*path, i), problems) for i, v in enumerate(value)]
    return value
