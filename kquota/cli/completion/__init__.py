"""What the shells complete when Tab is pressed.

Click knows which option or command a word belongs to. The rest is here, as Click's own scripts insert words unquoted
and split words where bash does. `words` reads the line as typed, `candidates` knows the values of options, `names` asks
the cluster. `shells` speaks to bash, zsh and fish, whose scripts are beside it.
"""

import os
import signal
import time

import click

VARIABLE = "_KQUOTA_COMPLETE"
# From the import of this package, which is when Tab was pressed but for the start of Python: half a second in all.
_WAIT_S = 0.35
_LOOK_S, _MOST_LOOKS, _SIGN_OF_WORK_S = 0.25, 12, 0.01
"""How often a host that is busy is looked at again, how often at most, and the CPU time that shows work between."""
_deadline = time.monotonic() + _WAIT_S


def seconds_left() -> float:
    """How long the shell may still be kept waiting; not below 0."""
    return max(_deadline - time.monotonic(), 0.0)


class _TooLate(Exception):
    """No OSError, as a TimeoutError would be: nothing on the way takes it for its own."""


class _Patience:
    """Ends the wait for a file that does not come, and not the work of a host that is busy."""

    def __init__(self) -> None:
        self._worked, self._looks = time.process_time(), 0
        signal.signal(signal.SIGALRM, self._look)
        # Names are not waited for longer than that; this stops all else, such as a file on a network that is gone.
        signal.setitimer(signal.ITIMER_REAL, _WAIT_S + 0.05)

    def _look(self, _signal: int, _frame: object) -> None:
        worked, self._looks = time.process_time(), self._looks + 1
        if worked - self._worked < _SIGN_OF_WORK_S or self._looks > _MOST_LOOKS:
            raise _TooLate
        self._worked = worked
        signal.setitimer(signal.ITIMER_REAL, _LOOK_S)


def complete(cli: click.Command, instruction: str) -> int:
    """Does what a shell's script asks for (`bash_complete`), or prints the script (`bash_source`).

    Whatever goes wrong, nothing is printed on stderr: it would end up in the line that is being typed.
    """
    from kquota.cli.completion.shells import SHELLS

    name, _, task = instruction.partition("_")
    if name not in SHELLS or task not in ("complete", "source"):
        return 1
    shell = SHELLS[name](cli, {}, "kquota", VARIABLE)
    if task == "source":
        click.echo(shell.source(), nl=False)
        return 0
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    _Patience()
    try:
        click.echo(shell.complete())
    except (Exception, KeyboardInterrupt):
        return 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return 0
