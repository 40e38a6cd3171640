"""What works here and what does not: the installation, and the cluster with its login. Nothing is written."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from kquota import __version__
from kquota.access import Access
from kquota.backends import cluster_of
from kquota.backends.secrets import Ask, nobody
from kquota.core.check import Check, failure, ok, warning
from kquota.documents.journal import Journal
from kquota.errors import InputError, KquotaError
from kquota.files import java_program
from kquota.leases import by_place, read_entries
from kquota.state import CLUSTER

HERE: Final = "installation"
EXTRAS: Final[Mapping[str, str]] = {
    "audit": "'kquota audit', its --report, and 'kquota recommend'",
    "kernel": "fast simulations",
    "sasl": "a login to ZooKeeper by SASL",
    "stores": "PKCS12 keystores and truststores",
    "gssapi": "a login to brokers by Kerberos",
    "msk": "a login to Amazon MSK by IAM",
    "probe": "topics that 'kquota audit' reads",
    "sandbox": "the ZooKeeper of 'kquota sandbox'",
    "exporter": "'kquota exporter'",
}
"""The extras of kquota, with the work that needs each."""
_SECRET: Final = re.compile(r"password|secret|credential|PRIVATE KEY|ssl\.keystore\.key", re.IGNORECASE)
"""What lines of a login file have in them that hold a secret, or may hold one."""
_OLDEST_JAVA: Final = 17
"""The JDK that Spark 4 needs."""


def check_installation() -> Iterator[Check]:
    """kquota, Python, the extras, Java and Kafka's own tool."""
    yield ok(HERE, "kquota", f"{__version__} with Python {sys.version.split()[0]}")
    needs = _requirements()
    lacking = []
    for extra, purpose in EXTRAS.items():
        installed = {name: _version(name) for name in needs.get(extra, ())}
        if needs and None not in installed.values():
            versions = ", ".join(f"{name} {version}" for name, version in installed.items())
            yield ok(HERE, f"extra {extra}", f"{versions} (for {purpose})")
        else:
            lacking.append(extra)
    if lacking:  # a command that needs one says so, with the command that installs it
        yield ok(HERE, "extras", f"not installed: {'; '.join(f'{extra} (for {EXTRAS[extra]})' for extra in lacking)}")
    yield _java(needed=_version("pyspark") is not None)
    maven = shutil.which("mvn")
    purpose = "'kquota sandbox start --broker' gets Kafka by it, unless KAFKA_HOME names one"
    yield ok(HERE, "Maven", f"at {maven}" if maven else f"there is no mvn on the PATH; {purpose}")
    yield _kafkas_tool()


def _requirements() -> Mapping[str, tuple[str, ...]]:
    """The distributions that each extra needs; empty where kquota runs from a zipapp."""
    try:
        lines = metadata.requires("kquota") or []
    except metadata.PackageNotFoundError:
        return {}
    requirements: dict[str, tuple[str, ...]] = {}
    for line in lines:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"""extra\s*==\s*["']([\w-]+)["']""", line)
        if name is not None and extra is not None:
            requirements[extra[1]] = (*requirements.get(extra[1], ()), name[0])
    return requirements


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _java(*, needed: bool) -> Check:
    """The JDK that Spark and the sandbox would start; without the extras for these nobody misses it."""
    java = java_program()
    purpose = "'kquota sandbox' and the engine Spark of 'kquota audit' need it"
    remedy = f"install a JDK {_OLDEST_JAVA} or later, or set JAVA_HOME: apt-get install openjdk-17-jdk-headless"
    if java is None:
        message = f"there is no java on the PATH; {purpose}"
        return warning(HERE, "Java", message, remedy) if needed else ok(HERE, "Java", message)
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return warning(HERE, "Java", f"{java} cannot be run: {type(error).__name__}; {purpose}", remedy)
    version = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    major = re.match(r"(?:1\.)?(\d+)", version[1]) if version else None
    if version is None or major is None:
        return warning(HERE, "Java", f"{java} does not report its version; {purpose}", remedy)
    if int(major[1]) < _OLDEST_JAVA:
        return warning(HERE, "Java", f"{java} is Java {version[1]}, and {_OLDEST_JAVA} is needed; {purpose}", remedy)
    return ok(HERE, "Java", f"{version[1]} at {java}")


def _kafkas_tool() -> Check:
    """Kafka's own tool, which kquota does not need."""
    for name in ("kafka-configs.sh", "kafka-configs"):
        tool = shutil.which(name)
        if tool is not None:
            return ok(HERE, "kafka-configs", f"at {tool}")
    return ok(HERE, "kafka-configs", "not on the PATH, and not needed: 'kquota kafka-configs' does its work for quotas")


def check_journal(folder: Path) -> Check:
    """Whether the journal of writes can be kept in that folder."""
    if folder == CLUSTER:
        return ok("settings", "journal", "in the cluster, as 'kquota help journal' says")
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        return ok("settings", "journal", str(folder))
    return warning(
        "settings",
        "journal",
        f"{folder} cannot be written: kquota changes no quota without its journal",
        "give another folder: --journal DIR or KQUOTA_JOURNAL",
    )


def check_leases(journal: Journal, now: int) -> Iterator[Check]:
    """Whether the values that end have ended in time, as that journal knows them; nothing of no such value."""
    try:
        pages = read_entries(journal)
    except KquotaError as error:
        yield failure("settings", "leases", error)
        return
    if pages.unreadable:
        name, why = pages.unreadable[0]
        yield warning(
            "settings",
            "leases",
            f"{len(pages.unreadable)} of the journal's files cannot be read, such as {name}: {why}",
            "move them out of the journal; 'kquota history' shows them",
        )
    for place, leases in by_place(pages.entries):
        if not leases.on:
            continue
        overdue = leases.overdue(now)
        there = f"--journal {shlex.quote(str(journal.folder))}"
        subject = f"leases of {place.address}"
        if overdue:
            yield warning(
                "settings",
                subject,
                f"{len(overdue)} of {len(leases.on)} are overdue",
                f"run 'kquota reconcile {there}' there, by cron; 'kquota history {there}' lists them",
            )
        else:
            yield ok("settings", subject, f"{len(leases.on)}, none overdue")


def check_login_file(file: Path | None) -> Iterator[Check]:
    """Whether others can read the secrets of a client.properties or JAAS file, where there are any."""
    if file is None:
        return
    try:
        mode = file.stat().st_mode
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        yield failure("settings", str(file), InputError(f"it cannot be read: {(error.strerror or 'unknown').lower()}"))
        return
    if not any(_SECRET.search(line) for line in text.splitlines() if not line.lstrip().startswith(("#", "!"))):
        yield ok("settings", str(file), "without secrets")
    elif mode & 0o044:
        yield warning("settings", str(file), "other users of this host can read it", f"chmod 600 {file}")
    else:
        yield ok("settings", str(file), "readable for its owner only")


def check_cluster(access: Access, ask: Ask = nobody) -> Iterator[Check]:
    """The way to the cluster, the login, and what it may do, each as soon as it is known."""
    try:
        if access.command_config is not None and not access.is_zookeeper:
            from kquota.backends import clientprops

            for unused in clientprops.without_effect(access.command_config):
                remedy = "set security.protocol, or leave out what has no effect"
                yield warning("settings", str(access.command_config), unused, remedy)
            for left in clientprops.left_as_is(access.command_config):
                remedy = "name the provider, as docs/how-to/connect.md shows"
                yield warning("settings", str(access.command_config), left, remedy)
        security: Any = access.security(ask)
    except KquotaError as error:
        yield failure("settings", "login", error)
        return
    try:
        if access.bootstrap_controller:
            yield from _controllers(access, ask)
        elif access.zookeeper and access.is_zookeeper:
            from kquota.backends.zookeeper import ZooKeeperSecurity
            from kquota.backends.zookeeper.checks import check_ensemble

            yield from check_ensemble(access.zookeeper, security or ZooKeeperSecurity(), access.timeout_s)
        elif access.bootstrap_server:
            from kquota.backends.kafka import KafkaSecurity
            from kquota.backends.kafka.checks import check_brokers

            yield from check_brokers(access.bootstrap_server, security or KafkaSecurity(), access.timeout_s)
    except KquotaError as error:
        yield failure("cluster", access.address or "", error)


def _controllers(access: Access, ask: Ask) -> Iterator[Check]:
    """A controller, which alters quotas and does not show them."""
    with access.open(access.kafka_security(ask)) as backend:
        cluster = cluster_of(backend)
    yield ok("cluster", access.address or "", f"controllers of {cluster}" if cluster else "controllers")
    yield warning(
        "cluster",
        "describe quotas",
        "controllers alter quotas and do not show them",
        "use --bootstrap-server to see them",
    )
