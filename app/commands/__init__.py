"""The commands of ``gustfront``, one module for a group; ``app.cli`` puts them together."""
