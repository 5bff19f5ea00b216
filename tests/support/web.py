"""HTTP as the tests speak it."""

from __future__ import annotations

import httpx

_SECONDS = 60.0
"""What a server takes for an answer on a machine that runs all tests at once is not what these tests are about."""


def web_client(address: str) -> httpx.AsyncClient:
    """A client of the server at ``address``, which begins with ``http:`` or, as the one for agents, with ``ws:``."""
    return httpx.AsyncClient(base_url=address.replace("ws:", "http:"), timeout=_SECONDS, trust_env=False)
