"""The vocabulary of Gustfront, without I/O: signals, units, kinds, workload classes, configuration, arithmetic, text rules."""
