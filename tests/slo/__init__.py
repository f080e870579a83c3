"""Objectives against independent computations: the log read line by line, the workbook's formulas, Prometheus itself."""
