"""What the simulated engines show: expositions like those of the real ones, family by family.

Facts (names, bucket edges, oddities) come from the engines' sources and captures; which family means what stands in
``collectors/engines/*.yaml``, and a test holds the two against each other.
"""
