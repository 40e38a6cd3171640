"""A real Spark cluster on the loopback address: a standalone master and its workers, from PySpark's own jars.

Its executors run under a Python that has what the audit needs, but not kquota.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
import venv
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy
import pyspark

from tests.processes import free_ports

_START_TIMEOUT_S = 60.0
_SMALL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true"


class SparkCluster:
    """A master and workers of one core each, for as long as the `with` block lasts."""

    def __init__(self, workers: int = 2) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="kquota-spark-"))
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port, self._web_port = free_ports(2)
        self.master = f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        try:
            self.python = _bare_python(self._folder / "python")
            self._launch("master.Master", "--port", self._port, "--webui-port", self._web_port)
            for _ in range(self._workers):
                self._launch(
                    "worker.Worker", "--port", 0, "--webui-port", 0, "--cores", 1, "--memory", "2g", self.master
                )
            self._wait()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    @property
    def environment(self) -> dict[str, str]:
        """What a driver's environment needs: small executors, and nothing that leaves the loopback address."""
        conf = self._folder / "conf"
        conf.mkdir(exist_ok=True)
        (conf / "spark-defaults.conf").write_text(
            "spark.executor.memory 1g\n"
            f"spark.executor.extraJavaOptions {_SMALL}\n"
            "spark.driver.host 127.0.0.1\n"
            "spark.driver.bindAddress 127.0.0.1\n"
            "spark.ui.enabled false\n"
        )
        own = {"SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(self.python)}
        return {**os.environ, **own}

    def state(self) -> dict[str, Any]:
        """What the master says of its workers and applications."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._web_port}/json/", timeout=10) as answer:
            state: dict[str, Any] = json.load(answer)
            return state

    def _launch(self, name: str, *arguments: object) -> None:
        home = Path(pyspark.__file__).parent
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(self._folder / "work"),
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _SMALL,
        }
        # The driver of this test must not be found by the executors.
        environment.pop("PYTHONPATH", None)
        number = len(self._processes)
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1"]
        with open(self._folder / f"{number}.log", "wb") as log:
            process = subprocess.Popen(
                [*command, *map(str, arguments)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self._folder,
                start_new_session=True,
            )
        self._processes.append(process)

    def _wait(self) -> None:
        def registered() -> bool:
            try:
                return int(self.state()["aliveworkers"]) == self._workers
            except (OSError, ValueError):  # not there yet, or half there: its first page is no JSON
                return False

        wait_for(registered, _START_TIMEOUT_S, self._logs)

    def _logs(self) -> str:
        return "\n".join(file.read_text(errors="replace")[-2000:] for file in sorted(self._folder.glob("*.log")))

    def _stop(self) -> None:
        for process in reversed(self._processes):
            _end(process)
        shutil.rmtree(self._folder, ignore_errors=True)


class ConnectServer:
    """A Spark Connect server on two cores, for as long as the `with` block lasts."""

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="kquota-connect-"))
        home = Path(pyspark.__file__).parent
        (port,) = free_ports(1)
        self.remote = f"sc://127.0.0.1:{port}"
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": _SMALL,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
        }
        own = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        log = self._folder / "server.log"
        try:
            own["PYSPARK_PYTHON"] = str(_bare_python(self._folder / "python"))
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            with open(log, "wb") as file:
                self._process = subprocess.Popen(
                    command,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=environment | own,
                    cwd=self._folder,
                    start_new_session=True,
                )
            wait_for(lambda: _listens(port), _START_TIMEOUT_S, lambda: log.read_text(errors="replace")[-3000:])
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        if hasattr(self, "_process"):
            _end(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_for(condition: Callable[[], bool], seconds: float, explain: Callable[[], str] = str) -> None:
    """Waits until the condition holds. Raises TimeoutError when it does not in that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {explain()}")
        time.sleep(0.05)


def _bare_python(folder: Path) -> Path:
    """A Python with the libraries of this one, in which `import kquota` fails."""
    venv.create(folder, with_pip=False)
    # A path in a .pth file brings that folder and not the .pth files in it, one of which is kquota's.
    (site,) = folder.glob("lib/python*/site-packages")
    libraries = Path(numpy.__file__).parents[1]
    (site / "libraries.pth").write_text(f"{libraries}\n")
    python = folder / "bin" / "python"
    subprocess.run([python, "-c", "import numba, pandas, pyarrow, pyspark"], check=True, cwd=folder)
    lacks = subprocess.run([python, "-c", "import kquota.errors"], cwd=folder, capture_output=True, check=False)
    assert b"ModuleNotFoundError" in lacks.stderr
    return python
