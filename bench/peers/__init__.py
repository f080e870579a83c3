"""What one would otherwise run, from its public rules, at its own defaults, on the same histories."""
