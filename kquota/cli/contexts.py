"""Contexts: which cluster is meant, and where each of its settings comes from.

A setting comes from an option, else from the environment, else from a context of the configuration file. What names the
cluster decides about the rest of it, so that the credentials of one cluster never reach another by accident:

- An address in an option or in the environment leaves out the current context altogether.
- `--context NAME` takes that context as it is: KQUOTA_BOOTSTRAP_SERVER, KQUOTA_COMMAND_CONFIG and the like are left
  out, KQUOTA_ZOOKEEPER_USERNAME and the other credentials of a ZooKeeper too. Options beside it replace what it says,
  an address too: the context was named on purpose.
- KQUOTA_CONTEXT beside an address in the environment is an error.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kquota import state
from kquota.access import FILES, Access, config_path, load_config
from kquota.errors import InputError

if TYPE_CHECKING:
    from kquota.documents.config import Context

ADDRESSES = ("bootstrap_server", "bootstrap_controller", "zookeeper")
SETTINGS = (*ADDRESSES, *FILES, "timeout")
"""The parameters of the cluster options, but for `context`."""
_VARIABLES = {"zk_jaas_file": "KQUOTA_ZOOKEEPER_JAAS_FILE"}
"""The environment variables that are not called after their option."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: `origin` is `option`, `environment`, `context` or `default`."""

    name: str
    """As the parameter of the option is called."""
    value: Any
    origin: str
    where: str | None = None
    """The option, the environment variable or the context."""

    @property
    def is_option(self) -> bool:
        """Whether the command line says it."""
        return self.origin == "option"


@dataclass(frozen=True, slots=True)
class Given:
    """The cluster options of one command line, the environment and the defaults, before a context is looked at."""

    settings: Mapping[str, Setting]
    """By the name of the parameter, `context` among them."""

    @classmethod
    def of(cls, **values: Any) -> Given:
        """Values by the names of their parameters, as the present click context has them; others do not matter."""
        return cls({name: _given(name, values.get(name)) for name in ("context", *SETTINGS)})

    @property
    def names_a_cluster(self) -> bool:
        """Whether the command line itself names one."""
        return any(self.settings[name].is_option for name in ("context", *ADDRESSES))

    @property
    def timeout_s(self) -> float:
        """The time-out of the command line, or its default."""
        return self.settings["timeout"].value or 10.0

    def at(self, parameter: str, address: str) -> Given:
        """The same options for the cluster at an address, as if `parameter` alone had named it."""
        cleared = {name: Setting(name, None, "default") for name in ("context", *ADDRESSES)}
        return Given({**self.settings, **cleared, parameter: Setting(parameter, address, "option", address)})

    def in_effect(self) -> tuple[Context | None, Mapping[str, Setting]]:
        """The context that has a say, if any, and every setting but `context`.

        Raises InputError for an unusable configuration file or a context that is not in it, click.UsageError where
        the environment names two clusters.
        """
        context = self._context()
        given = {name: self.settings[name] for name in SETTINGS}
        if context is None:
            return None, given
        # An address beside the context replaces its own: all of it, or the one of two that it is instead of.
        replaced = len(context.addresses) == 1 and any(given[name].is_option for name in ADDRESSES)
        left_out = ADDRESSES if replaced else ()
        whole = self.settings["context"].is_option
        return context, {
            name: _of_both(setting, context, None if name in left_out else getattr(context, name), whole=whole)
            for name, setting in given.items()
        }

    def both(self) -> Access:
        """All the addresses that are given, for a command that needs two. Raises as `in_effect` does."""
        context, settings = self.in_effect()
        return Access(
            **{name: settings[name].value or None for name in (*ADDRESSES, *FILES)},
            timeout_s=settings["timeout"].value or self.timeout_s,
            # A person who mistypes a port wants the error at once; a script that gives a time-out wants the time.
            patient=self.settings["timeout"].is_option,
            context=None if context is None else context.name,
            isolated=self.settings["context"].is_option,
        )

    def access(self, *, alone: bool = True) -> Access:
        """The one cluster that is meant, without an address where none is given; `alone` where no other one is read.

        The command line wins over the environment. Raises as `in_effect` does, and click.UsageError for two clusters,
        and for an option that logs in to servers of the other kind.
        """
        access = click.get_current_context().meta[_ACCESS] = self._one_of(self.both())
        kind, others = ("brokers", FILES[:1]) if access.is_zookeeper else ("a ZooKeeper", FILES[1:])
        for setting in map(self.settings.__getitem__, others if alone and access.address else ()):
            if setting.is_option:
                raise click.UsageError(f"{setting.where} logs in to {kind}, and the cluster is {access.address}")
        return access

    def _one_of(self, access: Access) -> Access:
        """Of two addresses the one that is meant."""
        typed = {name for name in ADDRESSES if self.settings[name].is_option}
        if access.bootstrap_controller:
            if typed - {"bootstrap_controller"}:
                raise click.UsageError(
                    "Only one of --bootstrap-server, --bootstrap-controller or --zookeeper must be specified"
                )
            return replace(access, bootstrap_server=None, zookeeper=None)
        if access.bootstrap_server and access.zookeeper:
            if not typed:
                raise click.UsageError(_TWO_ADDRESSES)
            if len(typed) != 1:
                raise click.UsageError("Only one of --bootstrap-server or --zookeeper must be specified")
            return replace(access, bootstrap_server=None) if "zookeeper" in typed else replace(access, zookeeper=None)
        return access

    def _context(self) -> Context | None:
        """The context that has a say."""
        setting = self.settings["context"]
        named: str | None = setting.value or None
        if not setting.is_option:
            addressed = [self.settings[name] for name in ADDRESSES if self.settings[name].value]
            if addressed:
                if named is not None and not any(address.is_option for address in addressed):
                    raise click.UsageError(
                        f"KQUOTA_CONTEXT and KQUOTA_{addressed[0].name.upper()} both name a cluster: unset one of "
                        "them, or give --context"
                    )
                return None
        config = load_config()
        name = config.current if named is None else named
        return None if name is None else config.context(name)


_ACCESS = "kquota.access"
_TWO_ADDRESSES = (
    "two addresses are set: choose one by --bootstrap-server or --zookeeper; 'kquota config view --show-origin' says"
    " where each comes from"
)


def journal_folder() -> Path:
    """The journal that no option names: by KQUOTA_JOURNAL, else by the cluster's context, else the usual folder.

    Raises InputError.
    """
    ctx = click.get_current_context(silent=True)
    access = None if ctx is None or os.environ.get("KQUOTA_JOURNAL") else ctx.meta.get(_ACCESS)
    context = None if access is None else _ruling(access, "journal")
    return (context and context.journal) or state.journal_folder()


def of_writes(access: Access) -> Iterator[Setting]:
    """Where writes are written down, and whether they need a reason, where something says so."""
    if named := os.environ.get("KQUOTA_JOURNAL"):
        yield Setting("journal", named, "environment", "KQUOTA_JOURNAL")
    elif (context := _ruling(access, "journal")) is not None:
        yield Setting("journal", context.journal, "context", context.name)
    if (requiring := requiring_reason(access)) is not None:
        yield Setting("require_message", True, "context", requiring)


def requiring_reason(access: Access) -> str | None:
    """The context that has writes to that cluster give a reason (`-m`), as `_ruling` finds it."""
    context = _ruling(access, "require_message")
    return None if context is None else context.name


def _ruling(access: Access, rule: str) -> Context | None:
    """The context that has that rule for a cluster's writes, also where one of its servers was given instead.

    Raises InputError for an unusable file: what it rules is not known.
    """
    from kquota.core.change.plan import servers_of

    given = (access.bootstrap_server, access.bootstrap_controller, access.zookeeper)
    servers = {server for address in given if address for server in servers_of(address)}
    for context in load_config().contexts.values():
        is_it = (
            access.context == context.name
            if access.context
            else any(not servers.isdisjoint(servers_of(address)) for address in context.addresses.values())
        )
        if is_it and getattr(context, rule):
            return context
    return None


def choices() -> str:
    """The contexts of the file, for the end of a message that none is chosen; nothing where there are none."""
    with contextlib.suppress(InputError):  # the file is not needed
        if names := load_config().contexts:
            return f"; contexts of {config_path()}: {', '.join(names)} ('kquota config use-context NAME')"
    return ""


def _of_both(given: Setting, context: Context, of_context: Any, *, whole: bool) -> Setting:
    """A setting of the command line or the environment, else of the context, which may be taken as a whole."""
    in_environment = given.origin == "environment"
    if given.is_option or (in_environment and not whole):
        return given
    if of_context is not None:
        return Setting(given.name, of_context, "context", context.name)
    return Setting(given.name, None if in_environment else given.value, "default")


def _given(name: str, value: Any) -> Setting:
    source = click.get_current_context().get_parameter_source(name)
    if source is ParameterSource.COMMANDLINE:
        return Setting(name, value, "option", "--" + name.replace("_", "-"))
    if source is ParameterSource.ENVIRONMENT:
        return Setting(name, value, "environment", _VARIABLES.get(name, f"KQUOTA_{name.upper()}"))
    return Setting(name, value, "default")
