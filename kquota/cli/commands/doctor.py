"""`kquota doctor`."""

import contextlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import click

from kquota import doctor
from kquota.access import Access, config_path, load_config
from kquota.cli import grammar, params, session
from kquota.cli.contexts import Given, journal_folder
from kquota.cli.exit_codes import ExitCode, exit_code_of
from kquota.cli.extras import install_command
from kquota.cli.options import choice
from kquota.cli.security import ask
from kquota.cli.streams import note
from kquota.cli.text import many, safe
from kquota.cli.views import View, show, shown_as
from kquota.core.check import Check, State, failure, ok, warning
from kquota.documents.clusters import doctor_document
from kquota.documents.journal import Journal
from kquota.errors import InputError, KquotaError
from kquota.reconcile import now
from kquota.state import CLUSTER, usual_beside


@grammar.command("doctor")
@shown_as("table", "json", takes_output=True, tables=False)
def command(
    *,
    fail_on: str | None = choice(["warn"], "Exit with 1 when there is a warning and no failure."),
    journal: Path = params.JOURNAL,
    given: Given = params.GIVEN,
    output: str,
) -> int:
    """Check the installation, the settings and the login.

    Each line is ok, warn or fail, and a remedy follows where there is one. The checks begin with the configuration
    file. They go on with host names, addresses, TLS, the login, and its permissions. The installation comes last:
    Java, the extras that are there, and a line with the others, which is no warning.
    Nothing is written. A trial with validate_only, or the ACLs of ZooKeeper, show whether the login may alter quotas.

    The exit code is 0 without a failure, and otherwise the code of the first failure. It is 3 for a wrong setting, 4
    for servers that cannot be reached, and 5 for a login or a permission. It is 6 for a cluster that says no, and 8 for
    a missing extra. A login that may read quotas and not alter them is a warning.

    \b
    Examples:
      kquota doctor
      kquota doctor --bootstrap-server localhost:9092
      kquota doctor --context prod -o json
    """
    named: list[Access] = []
    checks: list[Check] = []
    area = ""
    for check in chain(_of_the_cluster(given, journal, named.append), doctor.check_installation()):
        checks.append(check)
        if output == "table":
            if check.area != area:
                click.echo(click.style(check.area, bold=True))
                area = check.area
            _print(check)
    failures = [check for check in checks if check.state is State.FAIL]
    warnings = [check for check in checks if check.state is State.WARN]
    if output == "json":
        address, context = (named[0].address, named[0].context) if named else (None, None)
        asked = f"--fail-on {fail_on}" if warnings and fail_on is not None and not failures else ""
        show(View(document=lambda: doctor_document(checks, address, context, _remedy), asked=asked), output)
    good = len(checks) - len(failures) - len(warnings)
    note(f"{good} ok, {many(len(warnings), 'warning')}, {many(len(failures), 'failure')}")
    if failures:
        error = failures[0].error
        return ExitCode.INPUT if error is None else exit_code_of(error)
    return ExitCode.DIFFERENT if warnings and fail_on is not None else ExitCode.OK


def _of_the_cluster(given: Given, journal: Path, named: Callable[[Access], None]) -> Iterator[Check]:
    """Checks the settings, then the cluster. `named` is given the cluster once the settings tell it."""
    if not params.on_command_line("journal"):
        with contextlib.suppress(KquotaError, click.UsageError):  # said below
            given.access()  # a context may name the journal
            journal = journal_folder()
    yield doctor.check_journal(journal)
    if journal != CLUSTER:
        yield from doctor.check_leases(Journal(journal), now())
    if usual := usual_beside(journal):
        yield from doctor.check_leases(Journal(usual), now())
    try:
        config = load_config()
        path = config.path
        current = f", current {config.current}" if config.current else ""
        count = f"{many(len(config.contexts), 'context')}{current}"
        message = count if path.exists() else "none yet; options name the cluster"
        yield ok("settings", str(path), message)
        access = given.access()
    except KquotaError as error:
        yield failure("settings", str(config_path()), error)
        return
    except click.UsageError as error:
        yield failure("settings", "cluster", InputError(error.message))
        return
    if access.address is None:
        remedy = "give --bootstrap-server HOST:PORT or --zookeeper HOST:PORT, or 'kquota config set-context'"
        yield warning("settings", "cluster", "no cluster is named, so none was checked", remedy)
        return
    origin = f"context {access.context}" if access.context else "the options or the environment"
    named(access)
    yield ok("settings", "cluster", f"{access.address}, by {origin}")
    login = (access.zk_tls_config_file, access.zk_jaas_file) if access.is_zookeeper else (access.command_config,)
    for file in login:
        yield from doctor.check_login_file(file)
    yield from doctor.check_cluster(access, ask)
    if journal == CLUSTER:
        yield from doctor.check_leases(session.journal(CLUSTER, access), now())


def _remedy(check: Check) -> str:
    """The next step; for a missing extra the command that installs it here."""
    return check.remedy if check.extra is None else install_command(check.extra)


_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def _print(check: Check) -> None:
    state = str(check.state)
    click.echo(
        f"  {click.style(f'{state:<4}', fg=_COLOURS[state], bold=True)}  {safe(check.subject)}: {safe(check.message)}"
    )
    remedy = _remedy(check)
    if remedy:
        click.echo(f"        {safe(remedy)}")
