"""A model judge: an OpenAI-compatible endpoint that is asked about suspicious outputs. Off unless it is configured."""

from __future__ import annotations

from pydantic import Field

from core.config_sources import Section
from core.config_types import FilePath, HttpUrl, PositiveDuration


class JudgeConfig(Section):
    """A model that is asked whether a suspicious output is damaged. Its word stands beside the rules and changes none of them.

    Kept texts (capped, with secrets struck out) are sent to ``url``: choose one that may see them.
    """

    url: HttpUrl = Field(
        description="Base address of an OpenAI-compatible API, such as http://127.0.0.1:8000/v1"
    )
    model: str = Field(min_length=1, description="Model to ask; also the judge's name in stored verdicts")
    key_file: FilePath | None = Field(default=None, description="File with the API key")
    timeout: PositiveDuration = Field(default=60.0, description="Longest wait for an answer")
    per_minute: int = Field(default=30, ge=1, le=6000, description="Questions a minute at most")
    per_day: int = Field(default=500, ge=1, description="Questions in 24 hours at most")
    tokens_per_day: int = Field(
        default=1_000_000, ge=1, description="Tokens in 24 hours, prompts and answers, after which it rests"
    )
    text_cap: int = Field(
        default=4000, ge=200, le=100_000, description="Characters of an output sent: beginning and end"
    )
