"""Asking a model judge over HTTP: one question at a time, bounded in rate, size and time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from core.config_judge import JudgeConfig
from core.errors import EnvironmentProblem, SourceError
from core.judging import MAX_ANSWER_TOKENS, NO_ANSWER, JudgeAnswer, question, read_answer

MAX_BODY = 1 << 18
FAILURES = 3
"""So many in a row, and the judge is left alone."""


def endpoint(url: str) -> str:
    """Where chat completions are asked for.

    >>> endpoint("http://x:8000"), endpoint("http://x/v1/")
    ('http://x:8000/v1/chat/completions', 'http://x/v1/chat/completions')
    """
    base = url.rstrip("/").removesuffix("/chat/completions")
    return f"{base}/chat/completions" if base.endswith("/v1") else f"{base}/v1/chat/completions"


async def ask(
    config: JudgeConfig, items: Iterable[tuple[str, str]], key: str = ""
) -> AsyncIterator[tuple[str, JudgeAnswer, int]]:
    """(id, answer, tokens spent) for each (id, text), at most ``per_minute``; stops early with ``SourceError`` after three
    failures in a row. Redirects are not followed: texts go where the configuration says, and nowhere else."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(total=config.timeout)
    pause, failures, last = 60.0 / config.per_minute, 0, 0.0
    async with aiohttp.ClientSession(timeout=timeout, headers=headers, trust_env=False) as session:
        for id_, text in items:
            await asyncio.sleep(max(0.0, last + pause - time.monotonic()))
            last = time.monotonic()
            try:
                answer, tokens = await _one(session, config, text)
                failures = 0
            except (aiohttp.ClientError, TimeoutError, SourceError) as error:
                failures += 1
                if failures >= FAILURES:
                    what = str(error) if isinstance(error, SourceError) else type(error).__name__
                    raise SourceError(
                        config.url,
                        "judge",
                        f"no answer {failures} times in a row ({what})",
                        "check outputs.judge",
                    ) from error
                continue
            yield id_, answer, tokens


async def _one(session: aiohttp.ClientSession, config: JudgeConfig, text: str) -> tuple[JudgeAnswer, int]:
    body = {
        "model": config.model,
        "messages": question(text, config.text_cap),
        "temperature": 0,
        "max_tokens": MAX_ANSWER_TOKENS,
    }
    async with session.post(endpoint(config.url), json=body, allow_redirects=False) as got:
        if got.status != 200:
            raise SourceError(config.url, f"http_{got.status}", f"status {got.status}")
        raw = await got.content.read(MAX_BODY + 1)
        while len(raw) <= MAX_BODY and not got.content.at_eof():
            raw += await got.content.read(MAX_BODY + 1 - len(raw))
    if len(raw) > MAX_BODY:
        return NO_ANSWER, 0
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return NO_ANSWER, 0
    return _content(data), _tokens(data)


def _content(data: Any) -> JudgeAnswer:
    try:
        return read_answer(data["choices"][0]["message"]["content"])
    except (KeyError, IndexError, TypeError):
        return NO_ANSWER


def _tokens(data: Any) -> int:
    usage = data.get("usage") if isinstance(data, dict) else None
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total if isinstance(total, int) and not isinstance(total, bool) and 0 <= total < 10**7 else 0


def key_of(config: JudgeConfig) -> str:
    """The API key, empty where none is configured. ``EnvironmentProblem`` where its file cannot be read."""
    if config.key_file is None:
        return ""
    try:
        return Path(config.key_file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentProblem(
            f"outputs.judge.key_file: {config.key_file} cannot be read ({error})"
        ) from error
