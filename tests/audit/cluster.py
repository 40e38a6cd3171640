"""A real Spark cluster on the loopback address: a standalone master and its workers, from PySpark's own jars.

Its executors run under a Python that has what the audit needs, but not kquota.
"""

import json
import os
import socket
import subprocess
import urllib.request
import venv
from pathlib import Path
from typing import Any

import numpy
import pyspark

from tests.support.compiled import COMPILED
from tests.support.processes import QUICK_SPARK, Processes, free_ports, spark_options

_START_TIMEOUT_S = 240.0
_SMALL = f"{QUICK_SPARK['SPARK_SUBMIT_OPTS']} -Djava.net.preferIPv4Stack=true"


class SparkCluster(Processes):
    """A master and workers of one core each, for as long as the `with` block lasts."""

    _patience_s = 20

    def __init__(self, workers: int = 2) -> None:
        super().__init__("spark")
        self._workers = workers
        self._port, self._web_port = free_ports(2)
        self.master = f"spark://127.0.0.1:{self._port}"

    def _start(self) -> None:
        self.python = _bare_python(self.folder / "python")
        self._run("master", "master.Master", "--port", self._port, "--webui-port", self._web_port)
        options = ("--port", 0, "--webui-port", 0, "--cores", 1, "--memory", "2g", self.master)
        for number in range(self._workers):
            self._run(f"worker-{number}", "worker.Worker", *options)
        self._await("the cluster", self._is_complete, _START_TIMEOUT_S, OSError, ValueError)

    @property
    def environment(self) -> dict[str, str]:
        """What a driver's environment needs: small executors, and nothing that leaves the loopback address."""
        settings = {
            "spark.executor.memory": "1g",
            "spark.executor.extraJavaOptions": _SMALL,
            "spark.executorEnv.NUMBA_CACHE_DIR": COMPILED,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
        }
        own = {
            "SPARK_SUBMIT_OPTS": spark_options(settings),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(self.python),
        }
        return {**os.environ, **own}

    def state(self) -> dict[str, Any]:
        """What the master says of its workers and applications."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._web_port}/json/", timeout=10) as answer:
            state: dict[str, Any] = json.load(answer)
            return state

    def _run(self, name: str, main: str, *arguments: object) -> None:
        home = Path(pyspark.__file__).parent
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(self.folder / "work"),
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _SMALL,
        }
        # The driver of this test must not be found by the executors.
        environment.pop("PYTHONPATH", None)
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", "--host", "127.0.0.1"]
        self._launch(name, [*command, *map(str, arguments)], self.folder, environment)

    def _is_complete(self) -> bool:
        """Whether all workers have registered. Raises OSError and ValueError before its first page is there."""
        return int(self.state()["aliveworkers"]) == self._workers


class ConnectServer(Processes):
    """A Spark Connect server on two cores, for as long as the `with` block lasts."""

    _patience_s = 20

    def __init__(self) -> None:
        super().__init__("connect")

    def _start(self) -> None:
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
        own = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "NUMBA_CACHE_DIR": str(COMPILED)}
        command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        own["PYSPARK_PYTHON"] = str(_bare_python(self.folder / "python"))
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._launch("server", command, self.folder, environment | own)
        self._await("the server", lambda: _listens(port), _START_TIMEOUT_S)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


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
