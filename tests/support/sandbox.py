"""A real ZooKeeper that lives as long as its `with` block and leaves nothing behind."""

import contextlib
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from kquota.sandbox import HOST, JARS, ZooKeeper, end, launch


class Sandbox:
    """A ZooKeeper in a temporary folder, for as long as the `with` block lasts.

    Writes are not forced to the disk. `extra_config` are more lines of zoo.cfg, `jvm_flags` more flags of the JVM,
    `extra_jars` more jars of PySpark's as regular expressions of their file names. Raises MissingDependency without
    PySpark or Java, Unreachable when it does not start.
    """

    def __init__(
        self,
        *,
        extra_config: Mapping[str, str] | None = None,
        jvm_flags: Sequence[str] = (),
        extra_jars: Sequence[str] = (),
    ) -> None:
        self._server = ZooKeeper()
        self._server.config = dict(extra_config or {})
        self._server.jvm_flags = (*ZooKeeper.jvm_flags, "-Dzookeeper.forceSync=no", *jvm_flags)
        self._server.jars = (*JARS, *extra_jars)
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def port(self) -> int:
        return self._port

    @property
    def connect(self) -> str:
        """The connect string, without a chroot."""
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The server's process, while there is one."""
        return None if self._process is None else self._process.pid

    def start(self) -> Self:
        if self._process is not None:
            return self
        self._folder = Path(tempfile.mkdtemp(prefix="kquota-sandbox-"))
        try:
            self._process, self._port = launch(self._server, self._folder, None, uuid.uuid4().hex, False)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Ends the server and removes its folder; a second call does nothing."""
        if self._process is not None:
            end(self._process)
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextlib.contextmanager
def kazoo(address: str, **options: Any) -> Iterator[Any]:
    """A plain kazoo client, to look at nodes and to prepare them."""
    from kazoo.client import KazooClient

    client = KazooClient(address, **options)
    client.start(60)
    try:
        yield client
    finally:
        client.stop()
        client.close()
