"""Rules that tell degenerate outputs from ordinary ones, without a model and without the network."""

from __future__ import annotations

from core.text.score import HARD_RULES, NOTED_RULES, RULES, SOFT_RULES, TextScore, score_text, verdict_of

__all__ = ["HARD_RULES", "NOTED_RULES", "RULES", "SOFT_RULES", "TextScore", "score_text", "verdict_of"]
