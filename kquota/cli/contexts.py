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

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from kquota.documents.config import Config, Context

ADDRESSES = ("bootstrap_server", "bootstrap_controller", "zookeeper")
_SETTINGS = (*ADDRESSES, "command_config", "zk_tls_config_file", "zk_jaas_file", "timeout")
_VARIABLES = {"zk_jaas_file": "KQUOTA_ZOOKEEPER_JAAS_FILE"}
"""The environment variables that are not called after their option."""


NAMED = "context_is_named"
"""Among settled options: whether a context was named by hand, which takes nothing of the environment."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in effect: `origin` is `option`, `environment`, `context` or `default`."""

    name: str
    """As the parameter of the option is called."""
    value: str | Path | float | None
    origin: str
    where: str | None = None
    """The option, the environment variable or the context."""


def config_path() -> Path:
    """Where the configuration file is, or would be."""
    named = os.environ.get("KQUOTA_CONFIG")
    if named:
        return Path(named).expanduser()
    return xdg_directory("XDG_CONFIG_HOME", "~/.config") / "kquota" / "config.yaml"


def xdg_directory(variable: str, default: str) -> Path:
    """A base directory of the XDG specification, which has relative ones ignored."""
    value = os.environ.get(variable, "")
    return Path(value) if os.path.isabs(value) else Path(default).expanduser()


def load_config() -> Config:
    """The configuration; without a file an empty one. Raises InputError for what is wrong in it."""
    from kquota.documents.config import Config, read_config

    path = config_path()
    if not os.environ.get("KQUOTA_CONFIG") and not path.exists():
        return Config(path)
    return read_config(path)


def settled(options: dict[str, Any]) -> dict[str, Any]:
    """The cluster options of a command with what the context says, and NAMED; `context` itself is gone.

    What is settled already stays as it is. Raises InputError for an unusable configuration file or a context that is
    not in it, click.UsageError where the cluster is ambiguous or none that the command can talk to.
    """
    if "context" not in options:
        return options
    rest = {name: value for name, value in options.items() if name != "context"}
    return rest | {setting.name: setting.value for setting in settings(options)[1]} | {NAMED: _is_option("context")}


def settings(options: dict[str, Any]) -> tuple[Context | None, list[Setting]]:
    """The context that is used, if any, and every setting of the cluster options; raises as `settled` does."""
    context = _used(options)
    if context is None:
        return None, [_given(name, options[name]) for name in _SETTINGS if name in options]
    whole = _is_option("context")
    # An address beside the context replaces its own: all of it, or the one of two that it is instead of.
    replaced = len(context.addresses) == 1 and any(_is_option(name) for name in ADDRESSES)
    addresses = () if replaced else [name for name in ADDRESSES if name in options]
    if not replaced and not any(getattr(context, name) is not None or _is_option(name) for name in addresses):
        (only,) = context.addresses
        raise click.UsageError(f"context {context.name!r} has a {only}, which this command cannot use")
    found = []
    for name in _SETTINGS:
        if name not in options:
            continue
        value = getattr(context, name) if name in addresses or name not in ADDRESSES else None
        in_environment = _source(name) is ParameterSource.ENVIRONMENT
        if _is_option(name) or (in_environment and not whole):
            found.append(_given(name, options[name]))
        elif value is not None:
            found.append(Setting(name, value, "context", context.name))
        else:
            found.append(Setting(name, None if in_environment else options[name], "default"))
    return context, found


def of_context(name: str, timeout_s: float) -> dict[str, Any]:
    """The cluster options that a context stands for, as they are settled; its own time-out comes before `timeout_s`.

    Raises InputError for one that the configuration file does not have.
    """
    context = load_config().context(name)
    options = {setting: getattr(context, setting) for setting in _SETTINGS}
    return options | {"timeout": timeout_s if context.timeout is None else context.timeout, NAMED: True}


def _used(options: dict[str, Any]) -> Context | None:
    """The context that has a say."""
    named: str | None = options["context"]
    if not _is_option("context"):
        addressed = [name for name in ADDRESSES if options.get(name)]
        if addressed:
            if named is not None and not any(map(_is_option, addressed)):
                raise click.UsageError(
                    f"KQUOTA_CONTEXT and KQUOTA_{addressed[0].upper()} both name a cluster: unset one of them, "
                    "or give --context"
                )
            return None
    config = load_config()
    name = config.current if named is None else named
    return None if name is None else config.context(name)


def _source(name: str) -> ParameterSource | None:
    return click.get_current_context().get_parameter_source(name)


def _is_option(name: str) -> bool:
    return _source(name) is ParameterSource.COMMANDLINE


def _given(name: str, value: str | Path | float | None) -> Setting:
    source = _source(name)
    if source is ParameterSource.COMMANDLINE:
        return Setting(name, value, "option", "--" + name.replace("_", "-"))
    if source is ParameterSource.ENVIRONMENT:
        return Setting(name, value, "environment", _VARIABLES.get(name, f"KQUOTA_{name.upper()}"))
    return Setting(name, value, "default")
