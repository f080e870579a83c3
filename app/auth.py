"""Who sends a request to the API."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from app.services.people import LOCAL, Principal


def principal_of(request: HTTPConnection) -> Principal:
    """The principal of a request."""
    known = request.scope.get("gustfront.principal")
    return known if isinstance(known, Principal) else LOCAL
