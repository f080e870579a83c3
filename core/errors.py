"""Errors that reach a person. Every message names the thing and the fix.

GustfrontError
├── ConfigError      configuration or usage: exit code 2
├── InputError       a file, body or line from outside that cannot be read
├── SourceError      a target or server that does not answer as it should
├── StoreError       the database is away, too old, too new or damaged: exit code 3
└── EnvironmentProblem   port taken, no permission, missing program: exit code 3
"""

from __future__ import annotations


class GustfrontError(Exception):
    """Root of all errors that Gustfront raises on purpose."""

    exit_code = 3


class ConfigError(GustfrontError):
    """A setting or argument is wrong; ``path`` says which, ``fix`` what to write instead."""

    exit_code = 2

    def __init__(self, path: str, problem: str, fix: str = "", value: object = None) -> None:
        self.path, self.problem, self.fix, self.value = path, problem, fix, value
        shown = f" (got {value!r})" if value is not None else ""
        super().__init__(f"{path}: {problem}{shown}" + (f". Fix: {fix}" if fix else ""))


class InputError(GustfrontError):
    """Something handed over from outside cannot be read; ``where`` names file and line, or target."""

    exit_code = 2

    def __init__(self, where: str, problem: str, fix: str = "") -> None:
        self.where, self.problem, self.fix = where, problem, fix
        super().__init__(f"{where}: {problem}" + (f". Fix: {fix}" if fix else ""))


class SourceError(GustfrontError):
    """A target or a Prometheus-compatible server failed; ``kind`` is a short machine word such as ``timeout`` or ``http_503``."""

    def __init__(self, source: str, kind: str, problem: str, fix: str = "") -> None:
        self.source, self.kind, self.problem, self.fix = source, kind, problem, fix
        super().__init__(f"{source}: {problem}" + (f". Fix: {fix}" if fix else ""))


class StoreError(GustfrontError):
    """The database cannot be used."""


class EnvironmentProblem(GustfrontError):
    """The machine lacks something: a free port, a permission, a program."""
