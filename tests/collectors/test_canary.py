"""Canaries against a small HTTP server of this test, which answers by what is in flight."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from collectors.canary import CanaryPlan, CanaryResult, built_in, read_prompts, replay, stored
from core.canaries import HIGH, LOW, Prompt
from core.errors import InputError, SourceError
from sql.store import Store
from tests.collectors.intake import configured
from tests.servers import free_port

Answerer = Callable[[dict[str, Any], int], str | int]


class Model:
    """Counts what is in flight; ``answer(body, in flight)`` gives the text, or a status."""

    def __init__(self, answer: Answerer) -> None:
        self.answer, self.now, self.most, self.bodies = answer, 0, 0, list[dict[str, Any]]()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0.02)
            said = self.answer(body, self.now)
            await asyncio.sleep(0.02)  # so that the last of a burst is not alone
        finally:
            self.now -= 1
        if isinstance(said, int):
            return web.Response(status=said, text="no")
        message = {"role": "assistant", "content": said}
        return web.json_response(
            {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"completion_tokens": 3}}
        )


@asynccontextmanager
async def serving(model: Model) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", model.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


PROMPTS = [Prompt(f"p{i}", f"Say {i}", str(i)) for i in range(12)]


async def replayed(answer: Answerer, **more: Any) -> tuple[CanaryResult, Model]:
    model = Model(answer)
    async with serving(model) as url:
        plan = CanaryPlan(**{"url": url, "model": "m", "prompts": PROMPTS, "high": 4, "rate": 1000.0} | more)
        return await replay(plan), model


def right(body: dict[str, Any], in_flight: int) -> str:
    return str(body["messages"][0]["content"]).removeprefix("Say ")


def load_dependent(body: dict[str, Any], in_flight: int) -> str:
    return right(body, in_flight) + (" indeed" if in_flight > 1 else "")


async def test_a_steady_model_passes_and_is_asked_at_temperature_zero() -> None:
    result, model = await replayed(right)
    assert not result.worse
    assert (result.judgement.same_between, result.judgement.right) == (1.0, {LOW: 1.0, HIGH: 1.0})
    assert model.most == 4
    assert {(b["temperature"], b["max_tokens"], b["model"]) for b in model.bodies} == {(0, 64, "m")}
    assert len(result.asked) == 12 * 3 * 2


async def test_answers_that_depend_on_what_is_served_beside_them_are_found() -> None:
    result, _ = await replayed(load_dependent)
    assert result.judgement.less_same
    assert not result.judgement.less_right
    assert any("depend on the load" in w for w in result.words())


async def test_answers_that_are_wrong_under_load_are_found() -> None:
    result, _ = await replayed(lambda b, n: right(b, n) if n == 1 else "banana")
    assert result.judgement.less_right


async def test_the_rate_is_bounded() -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    _, model = await replayed(right, prompts=PROMPTS[:4], rounds=1, rate=20.0)
    assert loop.time() - begun >= len(model.bodies) / 20.0 - 0.01


async def test_an_endpoint_that_refuses_everything_is_an_error_and_single_refusals_are_counted() -> None:
    with pytest.raises(SourceError, match="answers none of 12 canaries: http_503"):
        await replayed(lambda b, n: 503)
    result, _ = await replayed(lambda b, n: 429 if n > 2 else right(b, n), rounds=2)
    assert any(k.startswith("http_429 (high)") for k in result.judgement.errors)


async def test_results_are_kept_outside_every_rate(tmp_path: Path) -> None:
    result, _ = await replayed(load_dependent, rounds=2)
    config, classes, roles = configured(tmp_path)
    with Store.open(f"sqlite:///{tmp_path}/g.db") as store:
        assert stored(store, result, classes, roles, config, "canary") == 12 * 2 * 2
        rows = store.outputs(0, 4e9)
        assert {(r.random, r.source, r.workload_class) for r in rows} == {(False, "canary", "canary")}
        assert all(r.text is None for r in rows)
        same = store.outcomes(0, 4e9, kinds=["canary_same"])
        assert {y.ok for y in same if f"-{LOW}-" in y.request} == {True}
        assert {y.ok for y in same if f"-{HIGH}-" in y.request} == {False}
        assert all(y.ok for y in store.outcomes(0, 4e9, kinds=["canary_correct"]))


def test_prompts_are_read_from_a_file_and_the_built_in_ones_are_sound(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"id": 1, "prompt": "Say 1", "expect": 1}) + "\n\n")
    assert read_prompts(path) == [Prompt("1", "Say 1", "1")]
    for text in ("{}", "[]", "", '{"id": 1, "prompt": "a"}\n{"id": 1, "prompt": "b"}'):
        path.write_text(text)
        with pytest.raises(InputError):
            read_prompts(path)
    assert len({p.id for p in built_in()}) == len(built_in()) >= 16


@pytest.mark.parametrize(
    "url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/chat/completions"]
)
def test_the_endpoint_is_found_from_any_way_to_write_it(url: str) -> None:
    assert CanaryPlan(url, "m", []).endpoint == "http://h:1/v1/chat/completions"
