"""kquota as one zip file, for executors that do not have it: what `--py-files` takes, and what a session ships."""

import io
import zipfile
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from zipimport import zipimporter

import kquota
from kquota.documents.encoding import schemas_folder
from kquota.errors import InputError
from kquota.files import replacing

# Zip files know no time before it. The same code is then the same file, byte for byte, wherever it is packed.
_TIME = (1980, 1, 1, 0, 0, 0)


def is_packed() -> bool:
    """Whether this very code comes out of such a file: whoever brought it has shipped it already."""
    return isinstance(kquota.__spec__.loader, zipimporter)


def write_package(path: Path) -> None:
    """Writes the package to a zip file. Raises InputError when that cannot be."""
    try:
        with replacing(path) as aside:
            aside.write_bytes(_packed())
    except OSError as error:
        raise InputError(f"{path}: cannot write the package: {error.strerror or error}") from None


def named_package() -> tuple[str, bytes]:
    """(file name, content) of the package; the name differs for each content, as nodes may have several."""
    packed = _packed()
    return f"kquota-{kquota.__version__}-{blake2b(packed, digest_size=6).hexdigest()}.zip", packed


def _packed() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(_content()):
            archive.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _content() -> Iterator[tuple[str, bytes]]:
    """(name inside the archive, content) of every file; the driver's too, which may run on the cluster itself."""
    assert kquota.__file__ is not None
    root = Path(kquota.__file__).parent
    for file in root.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts and "schemas" not in file.parts:
            yield file.relative_to(root.parent).as_posix(), file.read_bytes()
    for schema in schemas_folder().iterdir():
        yield f"kquota/documents/schemas/{schema.name}", schema.read_bytes()
