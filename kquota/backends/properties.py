"""Files in the syntax of `java.util.Properties`."""

import io
from pathlib import Path
from typing import Final

from kquota.errors import InputError
from kquota.files import read_bytes

LARGEST: Final = 16 << 20
"""Bytes of a file with properties or logins."""


def read_properties(path: Path) -> dict[str, str]:
    """The properties of a file in `java.util.Properties` syntax. Raises InputError when it cannot be read."""
    import javaproperties

    try:
        properties: dict[str, str] = javaproperties.load(io.BytesIO(read_bytes(path, LARGEST)))
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory, not a file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (ValueError, javaproperties.InvalidUEscapeError):
        # Without the library's words, which repeat a piece of the value.
        raise InputError(f"{path}: not a properties file: a backslash and u are not followed by four digits") from None
    return properties
