"""A LiteLLM-like gateway: requests, latencies and tokens by model, team and status. Labels hold what they hold in life."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fleet.faces import edges
from fleet.faces.page import Page
from fleet.model import Attempt, GatewayState

PRICE = (4e-7, 1.6e-6)  # dollars per prompt and output token
_ERRORS = {
    429: "RateLimitError",
    499: "ClientDisconnected",
    502: "BadGatewayError",
    503: "ServiceUnavailableError",
}


class GatewayFace:
    """One proxy before all pools. Latencies are of answered requests only, as the real one's are."""

    def __init__(self, models: Mapping[str, str], start: float) -> None:
        """``models``: the model of each pool."""
        self.page = Page(created=start)
        self.models = dict(models)

    def _labels(self, a: Attempt) -> dict[str, str]:
        return {
            "api_key_alias": a.workload,
            "hashed_api_key": "None",
            "requested_model": self.models.get(a.pool, a.pool),
            "team_alias": a.tenant,
            "user": "None",
        }

    def observe(self, attempts: Iterable[Attempt]) -> None:
        """Attempts that ended."""
        page = self.page
        for a in attempts:
            labels = self._labels(a)
            total = {**labels, "route": "/chat/completions", "status_code": str(a.status)}
            page.add(
                "litellm_proxy_total_requests_metric_total",
                total,
                1.0,
                "Total number of requests made to the proxy",
            )
            page.add(
                "litellm_input_tokens_metric_total",
                labels,
                float(a.prompt_tokens),
                "Total number of input tokens",
            )
            page.add(
                "litellm_output_tokens_metric_total",
                labels,
                float(a.output_tokens),
                "Total number of output tokens",
            )
            cost = a.prompt_tokens * PRICE[0] + a.output_tokens * PRICE[1]
            page.add("litellm_spend_metric_total", labels, cost, "Total spend on LLM requests")
            if a.status != 200:
                name = _ERRORS.get(a.status, "APIError")
                failed = {**labels, "exception_class": name, "exception_status": str(a.status)}
                page.add(
                    "litellm_proxy_failed_requests_metric_total",
                    failed,
                    1.0,
                    "Total number of failed responses",
                )
                continue
            for name, value in (
                ("litellm_request_total_latency_metric", a.duration + 0.004),
                ("litellm_llm_api_latency_metric", a.duration),
                ("litellm_overhead_latency_metric", 0.004),
            ):
                page.histogram(name, labels, edges.LITELLM, "Latency (seconds)").observe([value])
            if a.ttft is not None:
                name = "litellm_llm_api_time_to_first_token_metric"
                page.histogram(name, labels, edges.LITELLM, "Time to first token").observe([a.ttft])

    def refresh(self, state: GatewayState) -> None:
        """What it knows of its deployments: 0 healthy, 2 outage."""
        for pool, model in self.models.items():
            labels = {"api_base": f"http://{pool}", "litellm_model_name": model, "model_id": pool}
            outage = 0.0 if state.healthy.get(pool, True) else 2.0
            self.page.gauge("litellm_deployment_state", labels, outage, "LLM deployment analytics")
