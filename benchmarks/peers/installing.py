"""What a comparison needs beside this project, in a cache folder: the load generator, and peers from their registries.

Nothing of it is kept in the project: only which versions, and what starts them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.peers.contestants import FILES, NODE, VENV

_GENERATOR = Path(__file__).resolve().parent / "loadgen"
_LOG_TAIL = 800
_INSTALL_SECONDS = 900


def default_cache() -> Path:
    """Where the peers are installed unless told otherwise."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "crdt-board" / "peers"


def build_generator(cache: Path) -> Path:
    """The load generator, compiled unless it is there already."""
    sources = sorted(_GENERATOR.iterdir())
    program = cache / f"loadgen-{_fingerprint(sources)}"
    if not program.exists():
        cache.mkdir(parents=True, exist_ok=True)
        part = cache / f"{program.name}.{os.getpid()}"
        _run(
            ["cc", "-O2", "-Wall", "-o", str(part), str(_GENERATOR / "loadgen.c")], "compile the load generator", cache
        )
        part.rename(program)
    return program


def install(needed: str, cache: Path, note: Callable[[str], None]) -> None:
    """Install the peers of Node or Python, at pinned versions, unless they are there already."""
    pins = [FILES / "package-lock.json"] if needed == NODE else [FILES / "requirements.txt"]
    folder, mark = cache / needed, cache / needed / f"installed-{_fingerprint(pins)}"
    if not mark.exists():
        note(f"installing {'Node' if needed == NODE else 'Python'} peers into {folder} (once)")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (_install_node if needed == NODE else _install_venv)(folder)
        mark.touch()
    if needed == NODE:
        for script in FILES.glob("*.mjs"):
            shutil.copy(script, folder)


def versions(needed: Sequence[str]) -> list[str]:
    """Names and versions of what `install` installs, and of Node."""
    found: list[str] = []
    if NODE in needed:
        found.append(
            "Node " + subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
        )
        pins = json.loads((FILES / "package.json").read_text())["dependencies"]
        found += [f"{name} {version}" for name, version in pins.items()]
    if VENV in needed:
        found += [line.replace("==", " ") for line in (FILES / "requirements.txt").read_text().split()]
    return found


def _install_node(folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(FILES / name, folder)
    # Some of it is compiled where there is no ready-made binary: node-gyp then takes the headers of this Node.
    _run(["npm", "ci", "--no-audit", "--no-fund"], "install the Node peers", folder)


def _install_venv(folder: Path) -> None:
    _run([sys.executable, "-m", "venv", "."], "make an environment for the Python peers", folder)
    pip = ["bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "-r", str(FILES / "requirements.txt")], "install the Python peers", folder)


def _run(command: Sequence[str], what: str, folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
        )
    except FileNotFoundError:
        raise SystemExit(f"cannot {what}: {command[0]} is not on the PATH") from None
    except subprocess.TimeoutExpired:
        raise SystemExit(f"cannot {what}: not done after {_INSTALL_SECONDS} s") from None
    if done.returncode != 0:
        raise SystemExit(f"cannot {what} ({' '.join(command)}):\n{(done.stdout + done.stderr)[-_LOG_TAIL:]}")


def _fingerprint(files: Sequence[Path]) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]
