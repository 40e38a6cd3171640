"""A lock between the processes of one host; the kernel gives it back when its holder ends, however that ends."""

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kquota.errors import Locked, Stopped

_LONGEST_PAUSE_S = 0.05


@contextlib.contextmanager
def locked(
    path: Path, *, wait_s: float, what: str, shared: bool = False, stop: Callable[[], bool] = lambda: False
) -> Iterator[int]:
    """Holds the lock of that file, which is made where there is none, and gives its descriptor.

    Raises Locked, saying `what` is locked and by whom, when another holder does not end within `wait_s` seconds;
    Stopped once `stop`, which is asked while it waits, says so; OSError where the file cannot be opened or locked. On a
    file system that is shared, hosts wait for each other too, as far as it passes locks on (NFS 4 does). `shared`: all
    users of the host may lock a file that is made here.
    """
    import fcntl

    descriptor = _opened(path, 0o666 if shared else 0o600)
    try:
        deadline = time.monotonic() + wait_s
        pause = 0.001
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise Locked(
                        f"another kquota is writing to {what} for more than {wait_s:g} s",
                        hint=f"try again when it is done; it holds the lock {path}",
                    ) from None
                if stop():
                    raise Stopped(f"stopped while another kquota is writing to {what}") from None
            # At random, or those who came at the same time would go on meeting.
            time.sleep(random.uniform(pause / 2, pause))  # noqa: S311
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        yield descriptor
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of that file; False where there is no such file, and where nobody can know."""
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(descriptor)
    return False


def _opened(path: Path, mode: int) -> int:
    """The file's descriptor; where there is none it is made with that mode, whatever the umask."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        # In a folder such as /tmp, Linux refuses O_CREAT on a file that another user has made.
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags)
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
            os.fchmod(descriptor, mode)
            return descriptor
