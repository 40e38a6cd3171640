"""The program `kquota` of a shell in the tests: it gives its command line to a warm process (`tests.support.warm`).

    python -IS shim.py FOLDER ARGUMENTS…

It starts quickly, for it imports no library. The fork of the warm process has the streams, the folder and the
environment of this program, gets the signals that it gets, and gives it the exit code.
"""

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

KINDS = ("light", "heavy")
"""The warm processes; a heavy one has imported the audit with its libraries too."""
NO_FORK = "-"
"""The answer of a warm process where the environment asks for another start of the interpreter."""
_AUDITS = {"audit", "recommend", "simulate", "--usage"}
"""Words of command lines that need the heavy libraries."""
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def kind_of(arguments: Sequence[str]) -> str:
    """The kind of warm process that runs such a command line soonest."""
    return KINDS[not _AUDITS.isdisjoint(arguments)]


def hand_over(
    warm: socket.socket, arguments: Sequence[str], folder: str, environment: Mapping[str, str], streams: Sequence[int]
) -> None:
    """Asks a warm process to run that command line with those three streams."""
    request = json.dumps([list(arguments), folder, dict(environment)]).encode("utf-8", "surrogateescape")
    socket.send_fds(warm, [len(request).to_bytes(8, "big")], list(streams))
    warm.sendall(request)


def line(stream: socket.socket) -> str:
    """The next line. Raises EOFError when the warm process is gone."""
    text = b""
    while not text.endswith(b"\n"):
        if not (more := stream.recv(1)):
            raise EOFError("the warm process ended")
        text += more
    return text.decode().strip()


def _pass_on(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # the fork has ended, and its exit code is on the way
        os.kill(pid, number)


def main() -> None:
    folder, *arguments = sys.argv[1:]
    # The fork may run, and a test may interrupt it, before this program has heard of it: signals wait until then.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as warm:
        warm.connect(f"{folder}/{kind_of(arguments)}")
        hand_over(warm, arguments, os.getcwd(), os.environ, (0, 1, 2))
        heard = (number for number in _FORWARDED if signal.getsignal(number) is not signal.SIG_IGN)
        if (answer := line(warm)) == NO_FORK:
            for number in heard:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.execv(sys.executable, [sys.executable, "-m", "kquota", *arguments])
        for number in heard:
            signal.signal(number, lambda got, frame: _pass_on(int(answer), got))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(0)
        os.close(1)
        code = int(line(warm))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
