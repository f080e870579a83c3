"""A detector for any series that no kind of incident covers; it never pages (docs/odd.md)."""
