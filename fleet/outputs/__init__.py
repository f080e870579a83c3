"""Answers of the simulated models: texts from small grammars, and every way in which real ones break."""
