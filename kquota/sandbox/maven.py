"""Jars by the user's own Maven, with its settings, mirrors and local repository."""

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from kquota.errors import MissingDependency, Unreachable

_MARKER = "coordinates.txt"
_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_TIMEOUT_S = 900


def retrieve(target: Path, coordinates: Sequence[str], without: Sequence[str] = ()) -> Path:
    """Fills the folder with the jars of those coordinates and all they need at run time, once; returns it.

    A coordinate is `group:artifact:version`; `without` are those (`group:artifact`) that nothing shall bring in. The
    class path of the set is the folder with `/*`. Raises MissingDependency without Maven, Unreachable when it fails.
    """
    wanted = "".join(f"{coordinate}\n" for coordinate in (*coordinates, *(f"without {name}" for name in without)))
    if _retrieved(target) == wanted:
        return target
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingDependency(
            f"the jars of {', '.join(coordinates)} need Apache Maven, and there is no mvn on the PATH",
            hint="install Maven, or set KAFKA_HOME to a Kafka that is unpacked",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    # One at a time: Maven's local repository is not made for several that write to it.
    beside = target.parent
    with (
        (beside / ".lock").open("ab") as lock,
        tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=beside) as scratch,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _retrieved(target) == wanted:  # another worker was faster
            return target
        pom = Path(scratch, "pom.xml")
        pom.write_text(_pom(coordinates, without), encoding="utf-8")
        jars = Path(scratch, "jars")
        command = [maven, "-q", "-B", "-f", str(pom), _GOAL, "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if run.returncode != 0 or not list(jars.glob("*.jar")):
            output = "\n".join((run.stdout + run.stderr).splitlines()[-20:])
            raise Unreachable(f"mvn could not retrieve {', '.join(coordinates)} (exit {run.returncode}):\n{output}")
        (jars / _MARKER).write_text(wanted, encoding="utf-8")
        _move(jars, target, wanted)
    return target


def _retrieved(target: Path) -> str | None:
    """The coordinates that a complete directory was made from."""
    try:
        return (target / _MARKER).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _move(jars: Path, target: Path, wanted: str) -> None:
    """Puts the finished set in place at once; another process may have been faster with the same one."""
    if target.exists() and _retrieved(target) != wanted:
        shutil.rmtree(target)
    try:
        jars.rename(target)
    except OSError:
        if _retrieved(target) != wanted:
            raise


def _pom(coordinates: Sequence[str], without: Sequence[str]) -> str:
    excluded = []
    for exclusion in without:
        group, artifact = (escape(part) for part in exclusion.split(":"))
        excluded.append(f"<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>")
    exclusions = f"<exclusions>{''.join(excluded)}</exclusions>" if excluded else ""
    dependencies = []
    for coordinate in coordinates:
        group, artifact, version = (escape(part) for part in coordinate.split(":"))
        dependencies.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version>{exclusions}</dependency>"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>kquota</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(dependencies)}</dependencies></project>\n"
    )
