"""The HTTP API: boards, their past, artifacts, under ``/api``; described at ``/docs`` and ``/openapi.json``."""

from crdt_board_server.api.artifacts import artifact_routes
from crdt_board_server.api.problems import install_problems
from crdt_board_server.api.routes import board_routes

__all__ = ["artifact_routes", "board_routes", "install_problems"]
