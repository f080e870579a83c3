"""Where the time of a first token and of a step goes, as lines of evidence, as far as the engines export it.

A first token waits (queue), is computed (prefill) and, where prefill and decode are apart, travels (transfer). A step's length
depends on the batch, the clock of the GPU and on how many drafted tokens are accepted. What is not exported gives no line.
"""

from __future__ import annotations

from detectors.case import Case, Row
from detectors.measures import needs

PREFILL, TRANSFER = "prefill_time_seconds", "kv_transfer_time_seconds"
TTFT_HISTS = (f"{PREFILL}:mean", f"{TRANSFER}:mean")
TTFT_MEASURES = ("queue", "prefill_seconds", "prefill_time", "transfer")
STEP_NEEDS = needs("running", "sm_clock", "spec_accepted", "spec_drafts")
STEP_MEASURES = ("running", "sm_clock", "accepted")


def ttft_rows(case: Case) -> tuple[Row, ...]:
    """Queue, prefill and transfer. ``case`` must hold :data:`TTFT_MEASURES`; prefill is TTFT minus queue where none is said."""
    known = case.now["prefill_time"] == case.now["prefill_time"]
    return (
        Row("queue_time_seconds", "queue", "s (mean)", "part of the first token: queue"),
        Row(PREFILL, "prefill_time", "s (mean)", "part of the first token: prefill")
        if known
        else Row(
            "ttft_seconds", "prefill_seconds", "s (mean)", "part of the first token: all that is not queue"
        ),
        Row(TRANSFER, "transfer", "s (mean)", "part of the first token: KV transfer"),
    )


def step_rows(case: Case) -> tuple[Row, ...]:
    """Batch, clock and acceptance. ``case`` must hold :data:`STEP_MEASURES`."""
    return (
        Row("requests_running", "running", "requests", "a larger batch makes steps longer"),
        Row("gpu_sm_clock_hz", "sm_clock", "Hz", "a lower clock makes steps longer"),
        Row(
            "spec_accepted_tokens_total", "accepted", "tokens per draft", "fewer accepted tokens: more steps"
        ),
    )
