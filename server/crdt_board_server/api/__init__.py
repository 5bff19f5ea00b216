"""The HTTP API: boards and their past, under ``/api``; described at ``/docs`` and ``/openapi.json``."""
