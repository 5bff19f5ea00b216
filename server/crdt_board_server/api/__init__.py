"""The HTTP API: boards and their past, under ``/api``; described at ``/docs`` and ``/openapi.json``."""

from crdt_board_server.api.problems import install_problems
from crdt_board_server.api.routes import board_routes

__all__ = ["board_routes", "install_problems"]
