"""Telling people and machines of incidents: what is said, to whom, when, and over what. See docs/delivery.md."""
