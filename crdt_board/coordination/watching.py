"""Which records a change of the board may concern, without looking at all of them: each append asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class Watching:
    """The paths that records watch, by key of the record. A path concerns what is above it, and what is below."""

    def __init__(self) -> None:
        self._paths: dict[str, Sequence[str]] = {}
        self._at: dict[str, set[str]] = {}
        self._below: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._paths)

    def replace(self, key: str, paths: Sequence[str]) -> None:
        """The record watches these paths from now on, and no others; none is none."""
        if not paths and key not in self._paths:
            return
        for places, path in self._places(self._paths.pop(key, ())):
            places[path].discard(key)
            if not places[path]:
                del places[path]
        if paths:
            self._paths[key] = paths
        for places, path in self._places(paths):
            places.setdefault(path, set()).add(key)

    def concerned(self, touched: Sequence[str]) -> list[str]:
        """The keys of the records that a change at these paths may concern, in alphabetical order."""
        found: set[str] = set()
        if self._paths:
            for path in touched:
                found.update(self._at.get(path, ()), self._below.get(path, ()))
                for above in _above(path):
                    found.update(self._at.get(above, ()))
        return sorted(found)

    def _places(self, paths: Sequence[str]) -> Iterator[tuple[dict[str, set[str]], str]]:
        """Where each of the paths, and what is above them, is kept; each once."""
        for path in set(paths):
            yield self._at, path
        for above in {above for path in paths for above in _above(path)}:
            yield self._below, above


def _above(path: str) -> Iterator[str]:
    end = path.rfind("/")
    while end >= 0:
        yield path[:end]
        end = path.rfind("/", 0, end)
