"""`kquota lint`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from kquota import __version__
from kquota.brokers import BrokerFacts
from kquota.cli import grammar, params, session
from kquota.cli.contexts import Given
from kquota.cli.exit_codes import ExitCode
from kquota.cli.leases import leases_of, note_ends
from kquota.cli.options import argument, choice, count, value, values
from kquota.cli.plans import finding_lines, lines_of
from kquota.cli.streams import say
from kquota.cli.text import entity_text, many, safe
from kquota.cli.views import Note, Part, Raw, View, shown_as
from kquota.core.change.broker import callback_of, threads_of
from kquota.core.change.lint import Facts, Finding, Rule, Severity, lint
from kquota.core.quotas.quota import QuotaKey, parse_value
from kquota.core.quotas.selector import NamePatterns
from kquota.core.quotas.version import parse_version
from kquota.documents.encoding import to_json
from kquota.documents.plan import UNREADABLE, Line, lint_document, sarif_document, stated
from kquota.documents.quotas import QuotaFile
from kquota.errors import InputError


@grammar.command("lint")
@shown_as("table", "json", "sarif", "github", tables=False)
def command(
    *,
    file: Path | None = argument(type=click.Path(path_type=Path), required=False),
    cluster: str | None = value("NAME", "The cluster of the file's overlays to look at."),
    columns: Mapping[str, str] = params.COLUMNS,
    capacity: str | None = value("RATE", "What one broker can take, such as 200MB: finds oversubscription."),
    threads: int | None = count(
        "num.io.threads and num.network.threads of a broker together.", show_default="of the live brokers, else 11"
    ),
    internal: tuple[str, ...] = values(
        "USER", "A principal that no default should limit, such as the brokers' own; in addition to those in the file."
    ),
    callback: str | None = value(
        "CLASS", "The brokers' client.quota.callback.class.", show_default="of the live brokers"
    ),
    kafka_version: str | None = value("VERSION", "The brokers' Kafka version: finds quotas that they do not enforce."),
    fail_on: str | None = choice(
        ["note", "warning", "error"], "Exit with 1 when there is a finding of this severity or above."
    ),
    match: NamePatterns = params.MATCH,
    given: Given = params.GIVEN,
) -> View:
    """Find quotas that have no effect or surprise, in FILE or live.

    Every finding says why it is certain and what to do: values that govern no client, names that nobody has, defaults
    that some clients escape, limits that limit nothing. -o github annotates the lines of a pull request, -o sarif is
    for code scanning. There, mistakes for which a file is not read are findings, too.

    \b
    Examples:
      kquota lint quotas.yaml
      kquota lint --bootstrap-server localhost:9092
      kquota lint quotas.yaml --fail-on warning -o github
      kquota lint quotas.yaml --match 'team-a-*'
      kquota lint quotas.yaml --capacity 200MB --internal connect
      kquota lint quotas.yaml --kafka-version 2.6
    """
    most = None if capacity is None else int(parse_value(QuotaKey.PRODUCER_BYTE_RATE, capacity))
    version = None if kafka_version is None else parse_version(kafka_version)
    facts = Facts(threads=threads or 11, capacity=most, internal=internal, callback=callback, version=version)
    if file is None:
        access = given.access()
        session.note_cluster(access)
        if version is None and access.address is not None:
            known = session.with_release(BrokerFacts(), access)
            facts = replace(facts, version=known.version if known != BrokerFacts() else None)
        with session.open_backend(access) as backend:
            snapshot = backend.describe()
            leases = leases_of(backend).shown_in(snapshot.part(match.matches))
        note_ends(leases)
        session.warn_problems(snapshot.problems)
        if threads is None or callback is None:
            brokers = session.live_brokers(access)
            threads, callback = threads or threads_of(brokers) or 11, callback or callback_of(brokers)
            facts = replace(facts, threads=threads, callback=callback)
        findings: Sequence[Finding] = _about(lint(snapshot, facts), match)
        line: Line = lambda entity: None  # noqa: E731
    else:
        try:
            quota_file = session.load_quota_file(file, cluster, columns)
        except InputError as error:
            return _unreadable(error, file)
        findings, line = _lint_file(quota_file, file, facts, match)
    worst = max((finding.severity for finding in findings), default=None)
    bad = fail_on is not None and worst is not None and worst >= Severity[fail_on.upper()]
    findings = sorted(findings, key=lambda finding: (-finding.severity, line(finding.entity) or 0))
    return replace(found_view(findings, file, line), asked=f"--fail-on {fail_on}" if bad else "")


def _about(findings: Sequence[Finding], match: NamePatterns) -> Sequence[Finding]:
    """The findings about entities with such a name; of no patterns, all of them."""
    return [finding for finding in findings if finding.entity and match.matches(finding.entity)] if match else findings


def _lint_file(quota_file: QuotaFile, file: Path, facts: Facts, match: NamePatterns) -> tuple[Sequence[Finding], Line]:
    every = lint(quota_file.snapshot, replace(facts, internal=(*facts.internal, *quota_file.internal)))
    findings = _about(every, match)
    return findings, lines_of(quota_file, file, findings)


_UNREADABLE = Rule(UNREADABLE, Severity.ERROR, "A mistake for which a file is not read.", lambda *_: iter(()))


def _unreadable(error: InputError, file: Path) -> View:
    """The mistakes of a file that is not read: said as everywhere, and for programs as findings."""
    texts = (error.whole, *error.others)
    findings: list[Finding] = []
    lines: list[int | None] = []
    for text in texts:
        say(f"kquota: {' '.join(text.split())}")
        place = re.match(rf"{re.escape(str(file))}(?:, line (\d+))?(?:: )?", text)
        lines.append(int(place[1]) if place and place[1] else None)
        what = text[place.end() :] if place else text
        findings.append(Finding(_UNREADABLE, None, None, what, "the file is not read", "correct it, and lint it again"))
    of_each = iter(lines)  # a format asks once of each finding, in their order
    view = found_view(findings, file, lambda _: next(of_each))
    return replace(view, screen=lambda: (), code=ExitCode.INPUT)


def found_view(findings: Sequence[Finding], file: Path | None, line: Line) -> View:
    """Findings in lint's formats."""
    name = None if file is None else file.as_posix()
    return View(
        screen=lambda: _screen(findings, file, line),
        document=lambda: lint_document(findings, line),
        others={
            "sarif": lambda: [Raw(to_json(sarif_document(findings, __version__, name, line)))],
            "github": lambda: _github(findings, name, line),
        },
    )


def _github(findings: Sequence[Finding], name: str | None, line: Line) -> Iterator[str]:
    """Annotations of the lines of a pull request, as workflow commands."""
    for finding in findings:
        kind = "notice" if finding.severity is Severity.NOTE else str(finding.severity)
        place = "" if name is None else f"file={_property(safe(name))},line={line(finding.entity) or 1},"
        text = "\n".join(map(safe, stated(finding, entity_text).split("\n")))
        yield f"::{kind} {place}title={_property(finding.rule.name)}::{_data(text)}"


def _screen(findings: Sequence[Finding], file: Path | None, line: Line) -> Iterator[Part]:
    yield from finding_lines(findings, file, line, hints=True)
    counts = [(sum(finding.severity is severity for finding in findings), severity) for severity in reversed(Severity)]
    yield Note(", ".join(many(count, str(severity)) for count, severity in counts if count) or "nothing found")


def _data(text: str) -> str:
    """Text of a workflow command (GitHub's toolkit, `escapeData`)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
