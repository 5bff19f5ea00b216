"""A process that runs commands of ``crdt-board`` whose answers nobody hears: ``python -m support.unheard``.

It takes the arguments of one command a line, as JSON, and answers with its exit status and what it said on standard
error. The program is imported once; each command is forked off. With an argument, that is the file to which answers
are written, in place of a pipe without a reader.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile

import crdt_board_server.cli  # noqa: F401 - so that no command has to
from crdt_board_server import entry


def broken_pipe() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def main() -> None:
    gc.freeze()  # else each child walks all modules when it ends, and has to copy them: 0.2 s [measured]
    for line in sys.stdin:
        with tempfile.TemporaryFile() as errors:
            child = os.fork()
            if child == 0:
                os.dup2(os.open(sys.argv[1], os.O_WRONLY) if sys.argv[1:] else broken_pipe(), 1)
                os.dup2(errors.fileno(), 2)
                sys.argv = ["crdt-board", *json.loads(line)]
                entry.main()
                return
            _, status = os.waitpid(child, 0)
            errors.seek(0)
            print(json.dumps([os.waitstatus_to_exitcode(status), errors.read().decode()]), flush=True)


if __name__ == "__main__":
    main()
