"""All routes under ``/api``."""

from __future__ import annotations

from fastapi import APIRouter

from crdt_board_server.api.approving import add_approving
from crdt_board_server.api.changing import add_changing
from crdt_board_server.api.committing import add_committing
from crdt_board_server.api.keeping import add_keeping
from crdt_board_server.api.patience import patient_route
from crdt_board_server.api.reading import add_reading
from crdt_board_server.api.resolving import add_resolving
from crdt_board_server.api.teamwork import add_teamwork
from crdt_board_server.api.watching import add_watching
from crdt_board_server.rooms import Rooms


def board_routes(rooms: Rooms) -> APIRouter:
    """The routes under ``/api``, over the boards of ``rooms``."""
    host = rooms.host
    routes = APIRouter(prefix="/api", tags=["boards"], route_class=patient_route(host))
    add_reading(routes, host)
    add_keeping(routes, host)
    add_changing(routes, host)
    add_committing(routes, host)
    add_watching(routes, host)
    add_approving(routes, host)
    add_teamwork(routes, rooms)
    add_resolving(routes, host)
    return routes
