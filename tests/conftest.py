"""What all tests share."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import settings

from support.forking import Forking
from support.forking import forking as forking_process
from support.server import ServerProcess, command_line

PROJECT = Path(__file__).resolve().parent.parent

# A busy machine takes its time; and a run in CI tries the same examples each time.
settings.register_profile("laptop", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("ci" if os.environ.get("CI") else "laptop")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin the long tests one after another among the first half of the others.

    None is then left alone at the end of a run on several workers, nor do they load the machine all at once.
    """
    long = [item for item in items if item.get_closest_marker("long")]
    others = [item for item in items if not item.get_closest_marker("long")]
    apart = len(others) // (2 * len(long) + 1)
    for number, item in enumerate(long):
        others.insert(number * (apart + 1), item)
    items[:] = others


@pytest.fixture(autouse=True)
def _logging_is_left_as_it_was() -> Iterator[None]:
    """Fail a test that sets up logging for the whole process: all tests after it would run, and print, differently."""
    level = logging.root.level
    yield
    assert logging.root.level == level, "this test changed the logging of the process; run the command in its own"


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of recorded editing sessions; the test is skipped where it is absent."""
    folder = Path(os.environ.get("CRDT_BOARD_DATA") or PROJECT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no recorded sessions in {folder}; name their folder in CRDT_BOARD_DATA")
    return folder


@pytest_asyncio.fixture
async def start_server(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[ServerProcess]]]:
    """Starts servers, each in a process and with a database of its own; afterwards none is left."""
    started: list[ServerProcess] = []

    async def start(*options: str, command: tuple[str, ...] = command_line()) -> ServerProcess:
        number = len(started) + 1
        process = ServerProcess(
            tmp_path / f"boards-{number}.db", tmp_path / f"server-{number}.log", command=command, options=options
        )
        started.append(process)
        await process.start()
        return process

    yield start
    for process in started:
        await process.stop()


@pytest_asyncio.fixture
async def server(start_server: Callable[..., Awaitable[ServerProcess]]) -> ServerProcess:
    """A server as users start it."""
    return await start_server()


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that many tests use, each on a board of its own; none of them may stop it."""
    folder = tmp_path_factory.mktemp("shared-server")
    process = ServerProcess(folder / "boards.db", folder / "server.log", command=command_line())
    with asyncio.Runner() as runner:
        runner.run(process.start())
    yield process
    with asyncio.Runner() as runner:
        runner.run(process.stop())


@pytest.fixture(scope="session")
def forking() -> Iterator[Forking]:
    """Runs programs in processes that need not import the packages first."""
    with forking_process() as process:
        yield process


@pytest.fixture(params=["embedded", "served"])
def either_url(request: pytest.FixtureRequest) -> str | None:
    """None, then the address of a server: for tests that say the same wherever the writer is."""
    return request.getfixturevalue("shared_server").url if request.param == "served" else None


@pytest.fixture
def board_id(request: pytest.FixtureRequest) -> str:
    """A board that no other test uses."""
    return re.sub(r"[^A-Za-z0-9._~-]+", "-", request.node.name)[:100].strip("-")
