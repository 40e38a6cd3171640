"""`kquota audit --report`: the findings as one HTML page that an application team understands.

The page is all there is: no script, no font, no picture from elsewhere. Its charts are SVG in the page, drawn here,
because a page without scripts opens wherever pages are kept (mail, artifact stores with a strict policy), prints, and
cannot be made to run the names that are in it. What a chart would tell on hovering is in a table below it.
"""

from pathlib import Path
from typing import Final

import click

from kquota.errors import InputError, MissingDependency

MOST: Final = 8
"""Counters that get a chart."""


def check_report(path: Path) -> None:
    """Says early what would fail late: the name, the folder, the libraries.

    Raises click.UsageError, InputError and MissingDependency.
    """
    if path.suffix not in (".html", ".htm"):
        raise click.UsageError(f"--report: {path} must end in .html")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: there is no such folder")
    try:
        import jinja2  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise MissingDependency(f"--report needs {error.name}", extra="audit") from None
