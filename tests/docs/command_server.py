"""Runs commands and Python in processes forked from one that has imported everything.

Importing torch and transformers takes seconds, which every command of a page would pay. The server imports them once.
`crossling` in a page is a small script that hands its arguments and standard streams to the server.

    python command_server.py SOCKET
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

LIMIT = 1 << 20  # bytes of a message
CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({address!r})
request = {{"arguments": sys.argv, "folder": os.getcwd(), "environment": dict(os.environ)}}
socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
sys.exit(int(server.recv(16) or 139))  # no answer: the process was killed
"""


def write_client(path: Path, address: Path) -> None:
    """Write the script `crossling` that hands its call to the server at an address."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CLIENT.format(python=sys.executable, address=str(address)), encoding="utf-8")
    path.chmod(0o755)


class PythonSession:
    """A process of the server with one namespace, in which the Python blocks of a page run."""

    def __init__(self, address: Path, folder: Path, environment: dict[str, str]) -> None:
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.connect(str(address))
        request = {"folder": str(folder), "environment": environment}
        socket.send_fds(self._server, [json.dumps(request).encode()], [0, 1, 2])

    def run(self, code: str) -> tuple[bool, str]:
        """Run code. Return whether it ended without an exception, and what it printed."""
        self._server.send(code.encode())
        answer = self._server.recv(LIMIT).decode()
        return answer[:1] == "0", answer[1:]

    def close(self) -> None:
        self._server.close()


def serve(address: str) -> None:
    """Import everything, then fork a process for each request."""
    import crossling.bench
    import crossling.demo
    import crossling.lab.lab
    import crossling.pretraining  # noqa: F401
    from crossling import cli
    from crossling.evaluate import probes
    from crossling.planning import cpu_speed

    cpu_speed.cpu_speed = lambda *_: cpu_speed.CpuSpeed(flops=1e10, parameters=1e9)  # pages measure nothing
    probes.TOKENS = 128  # of the loss of each language, so that pages run in a short time
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(address)
    listening.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    while True:
        connection, _ = listening.accept()
        if os.fork():
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listening.close()
        message, streams, _, _ = socket.recv_fds(connection, LIMIT, 3)
        request = json.loads(message)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        if "arguments" in request:
            sys.argv = ["crossling", *request["arguments"][1:]]
            code = _exit_code(cli.main)
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            connection.send(str(code).encode())
        else:
            _run_blocks(connection)
        os._exit(0)


def _exit_code(main: Any) -> int:
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _run_blocks(connection: socket.socket) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    while code := connection.recv(LIMIT):
        printed, failed = io.StringIO(), False
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                exec(compile(code.decode(), "block", "exec"), namespace)
            except BaseException:
                failed = True
                traceback.print_exc()
        connection.send(f"{int(failed)}{printed.getvalue()[-100_000:]}".encode())


if __name__ == "__main__":
    serve(sys.argv[1])
