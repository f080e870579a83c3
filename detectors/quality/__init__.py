"""Statistics of answer quality: rates, alarms, what carries a raised rate, and whether load does. Pure functions on arrays."""
