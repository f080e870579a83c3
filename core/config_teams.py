"""Settings of teams: who answers for which pools and whom to tell while nobody acknowledges."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from core.config_matchers import check_matchers
from core.config_sources import Section
from core.config_types import PositiveDuration

LABELS = ("pool", "class", "kind", "severity")


class TeamConfig(Section):
    """A team that answers for incidents; the first one that matches is the owner."""

    name: str = Field(min_length=1, max_length=100, description="Name of the team")
    match: list[str] = Field(
        min_length=1,
        description="""Alternatives of matchers over pool, class, kind and severity, such as pool=~"coder-.*"; a comma
    inside one means and""",
    )
    contacts: list[str] = Field(
        default_factory=list,
        description="Whom to tell, in this order: names of receivers",
    )
    escalate_after: PositiveDuration = Field(
        default=900.0, description="Time without an acknowledgement after which the next contact is told"
    )

    @field_validator("match", mode="before")
    @classmethod
    def _readable(cls, value: Any) -> Any:
        value = [value] if isinstance(value, str) else value
        if isinstance(value, list):
            check_matchers((item for item in value if isinstance(item, str)), LABELS, " here")
        return value
