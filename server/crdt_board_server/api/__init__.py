"""The HTTP API: boards, their past, artifacts, under ``/api``; described at ``/docs`` and ``/openapi.json``."""
