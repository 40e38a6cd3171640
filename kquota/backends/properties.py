"""Files in the syntax of `java.util.Properties`, and the variables in them (KIP-297).

Configuration providers, such as `${file:/path:key}`, `${directory:/path:name}` and `${env:NAME}`, are replaced as
`org.apache.kafka.common.config.ConfigTransformer` does, for the providers that the properties themselves name in
`config.providers`; but what a variable names has to be there.
"""

import contextlib
import io
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kquota.backends.secrets import java_class
from kquota.errors import InputError
from kquota.files import read_bytes, read_text

LARGEST: Final = 16 << 20
"""Bytes of a file with properties or logins."""
_VARIABLE = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}:]*)\}")
_PACKAGE = "org.apache.kafka.common.config.provider."


def read_properties(path: Path) -> dict[str, str]:
    """The properties of a file in `java.util.Properties` syntax. Raises InputError when it cannot be read."""
    import javaproperties

    try:
        properties: dict[str, str] = javaproperties.load(io.BytesIO(read_bytes(path, LARGEST)))
    except (ValueError, javaproperties.InvalidUEscapeError):
        # Without the library's words, which repeat a piece of the value.
        raise InputError(f"{path}: not a properties file: a backslash and u are not followed by four digits") from None
    return properties


def providers(properties: Mapping[str, str]) -> list[str]:
    """The names of the configuration providers."""
    return [name.strip() for name in properties.get("config.providers", "").split(",") if name.strip()]


def unresolved(properties: Mapping[str, str]) -> list[str]:
    """The variables that name no provider of `config.providers`: Kafka leaves them as they are."""
    known = providers(properties)
    variables = (variable for value in properties.values() for variable in _VARIABLE.finditer(value))
    return [variable[0] for variable in variables if variable[1] not in known]


def resolved(properties: Mapping[str, str], origin: Path) -> dict[str, str]:
    """The properties with their variables replaced. Raises InputError for a provider or a variable that cannot be."""
    names = providers(properties)
    classes = {name: properties.get(f"config.providers.{name}.class", "") for name in names}

    def look_up(variable: re.Match[str]) -> str:
        provider, path, key = variable[1], variable[2] or "", variable[3]
        if provider not in classes:
            return variable[0]
        value = None
        match classes[provider].removeprefix(_PACKAGE):
            case "FileConfigProvider":
                value = read_properties(Path(path)).get(key)
            case "DirectoryConfigProvider":
                with contextlib.suppress(InputError):
                    value = read_text(Path(path, key), LARGEST)
            case "EnvVarConfigProvider":
                value = os.environ.get(key)
            case other:
                named = java_class(other)
                raise InputError(
                    f"{origin}: the configuration provider {provider} is not supported{':' if named else ''}{named}",
                    hint="FileConfigProvider, DirectoryConfigProvider and EnvVarConfigProvider of Kafka are",
                )
        if value is None:
            raise InputError(f"{origin}: {variable[0]} names nothing that is there")
        return value

    return {name: _VARIABLE.sub(look_up, value) for name, value in properties.items()} if names else dict(properties)
