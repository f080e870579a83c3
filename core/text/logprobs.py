"""Log-probabilities of an output's tokens, where the engine gives them: a witness that needs no text.

Garbled output is improbable to the model that wrote it, a loop is nearly certain, a broken engine returns no numbers at all.
``logprob_low``: mean under -3.5 over 32 tokens or more (ordinary text lies between -0.05 and -1.5, sampled at temperature 1 up
to -2.5; tokens drawn at random from 100,000 give -11.5). ``logprob_flat``: the last 128 tokens average above -0.002: each was at
least 99.8 % certain. ``logprob_nan``: a tenth or more of them are no numbers. All soft: they depend on model and temperature.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MIN_TOKENS, LOW = 32, -3.5
FLAT_TOKENS, FLAT = 128, -0.002
NAN_SHARE = 0.1


def logprob_rules(values: Sequence[float | None]) -> tuple[dict[str, float], dict[str, float]]:
    """Rules and the features ``logprob_mean``, ``logprob_tail`` (last 128 tokens); nothing without values."""
    a = np.array([np.nan if v is None else v for v in values[:65_536]], dtype=float)
    if not a.size:
        return {}, {}
    rules: dict[str, float] = {}
    # a token that could not have been drawn (-inf, or vLLM's -9999) says nothing about how probable text is
    known = a[np.isfinite(a) & (a > -1000)]
    missing = 1 - known.size / a.size
    if missing >= NAN_SHARE and a.size >= 8:
        rules["logprob_nan"] = round(missing, 3)
    if not known.size:
        return rules, {}
    mean, tail = float(known.mean()), float(known[-FLAT_TOKENS:].mean())
    features = {"logprob_mean": round(mean, 4), "logprob_tail": round(tail, 4)}
    if known.size >= MIN_TOKENS and mean < LOW:
        rules["logprob_low"] = round(mean, 3)
    if known.size >= FLAT_TOKENS and tail > FLAT:
        rules["logprob_flat"] = round(tail, 5)
    return rules, features
