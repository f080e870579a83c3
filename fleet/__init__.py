"""A simulated serving fleet: the demo, and labelled histories for tests and benchmarks."""
