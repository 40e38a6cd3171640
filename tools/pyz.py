"""Writes kquota as one file for machines that have Python and nothing else.

    python -m tools.pyz --out dist/kquota.pyz

It holds the base install. Nothing in it is compiled, so the same file runs on every platform and under every Python
from 3.11 on: pip takes, of each library, the newest version that has a wheel for any.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipapp
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_MAIN = """\
import sys

if sys.version_info < (3, 11):
    sys.exit("kquota: needs Python 3.11 or later, and this is %d.%d" % sys.version_info[:2])

from kquota.__main__ import main

main()
"""


def build(out: Path) -> None:
    """Writes the file, with whatever folders it needs. Raises subprocess.CalledProcessError when pip fails."""
    with tempfile.TemporaryDirectory(prefix="kquota-pyz-") as folder:
        wheels, content = Path(folder, "wheels"), Path(folder, "content")
        _pip("wheel", "--no-deps", "--wheel-dir", str(wheels), str(ROOT), "pyyaml")
        for wheel in wheels.glob("[Pp]y[Yy][Aa][Mm][Ll]-*.whl"):
            # It has no wheel for any platform, and does without the part of this one that is compiled.
            name, version, _ = wheel.name.split("-", 2)
            wheel.rename(wheels / f"{name}-{version}-py3-none-any.whl")
        pure = ("--only-binary=:all:", "--platform=any", "--implementation=py", "--abi=none", "--python-version=3.11")
        _pip("install", *pure, "--no-compile", "--target", str(content), *map(str, wheels.iterdir()))
        for compiled in content.rglob("*.so"):
            compiled.unlink()
        for unused in ("bin", "share"):
            shutil.rmtree(content / unused, ignore_errors=True)
        (content / "__main__.py").write_text(_MAIN, encoding="utf-8")
        out.parent.mkdir(parents=True, exist_ok=True)
        zipapp.create_archive(content, out, interpreter="/usr/bin/env python3", compressed=True)
        out.chmod(0o755)  # everybody may run it, where the usual zipapp is its owner's alone


def _pip(*arguments: str) -> None:
    quiet = ("--quiet", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", arguments[0], *quiet, *arguments[1:]], check=True)


def main() -> None:
    """Builds it where `--out` says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "kquota.pyz")
    out = parser.parse_args().out
    build(out)
    print(f"wrote {out}; on the other host it is a program: 'install -D -m 755 {out.name} ~/.local/bin/kquota'")


if __name__ == "__main__":
    main()
