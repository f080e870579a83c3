"""Brings the world in and trusts none of it: scrapes, Prometheus servers, gateway logs, sampled outputs, events."""
