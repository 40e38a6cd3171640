"""What users install: the wheel in an empty environment, and the zipapp under a bare Python; neither Java nor Spark."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from kquota import __version__
from tests.support.data import data_rows, data_text
from tools import pyz

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "kquota" / "cli" / "completion"
QUOTAS = data_text("install/quotas.yaml")
OTHER = QUOTAS.replace("10MB", "20MB")
WORKLOAD = data_text("install/workload.yaml")
ON_FILES = [
    ("kquota --version", 0, __version__),
    *((line, int(code), says) for line, code, says in data_rows("install/lines.txt")),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a few files."""
    (tmp_path / "quotas.yaml").write_text(QUOTAS)
    (tmp_path / "other.yaml").write_text(OTHER)
    (tmp_path / "workload.yaml").write_text(WORKLOAD)
    (tmp_path / "kafka-request.log").write_text("")
    return tmp_path


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and its base dependencies."""
    folder = tmp_path_factory.mktemp("installed")
    wheels = folder / "wheels"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(ROOT)], check=True)
    venv.create(folder / "venv", with_pip=False)
    [wheel] = wheels.iterdir()
    subprocess.run([*pip, "--python", str(folder / "venv" / "bin" / "python"), "install", str(wheel)], check=True)
    return folder / "venv"


@pytest.fixture(scope="module")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zipapp, as `make zipapp` builds it."""
    out = tmp_path_factory.mktemp("zipapp") / "dist" / "kquota.pyz"
    pyz.build(out)
    return out


def run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs it with a home of its own and without Java, or anything else, on the path."""
    environment = {"PATH": str(folder / "empty"), "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=180, check=False
    )


@pytest.mark.parametrize(("line", "code", "says"), ON_FILES, ids=[line for line, _, _ in ON_FILES])
def test_the_base_install_works(environment: Path, folder: Path, line: str, code: int, says: str) -> None:
    """In an environment that has nothing else."""
    done = run([str(environment / "bin" / "kquota"), *line.split()[1:]], folder)

    assert done.returncode == code, done.stderr
    assert says in done.stdout + done.stderr


def test_the_base_install_has_no_spark(environment: Path, folder: Path) -> None:
    """Nor what comes with it, and no compiler of kernels."""
    heavy = ("pyspark", "py4j", "numpy", "pandas", "pyarrow", "numba", "confluent_kafka", "cryptography")
    code = f"import importlib.util as util; print([name for name in {heavy!r} if util.find_spec(name)])"

    assert run([str(environment / "bin" / "python"), "-c", code], folder).stdout == "[]\n"
    assert shutil.which("java", path=str(folder / "empty")) is None


def test_the_wheel_has_pages_completions_and_schemas(environment: Path) -> None:
    """Each where man and the shells look for it below a prefix, and none left out."""
    share = environment / "share"
    installed = {
        share / "bash-completion" / "completions" / "kquota": SCRIPTS / "kquota.bash",
        share / "zsh" / "site-functions" / "_kquota": SCRIPTS / "_kquota",
        share / "fish" / "vendor_completions.d" / "kquota.fish": SCRIPTS / "kquota.fish",
    }
    installed |= {share / "man" / f"man{page.suffix[1:]}" / page.name: page for page in (ROOT / "man").iterdir()}
    [package] = environment.glob("lib/python*/site-packages/kquota")
    installed |= {package / "documents" / "schemas" / file.name: file for file in (ROOT / "schemas").iterdir()}

    assert {path for path in share.rglob("*") if path.is_file() and "kquota" in path.name} == {
        path for path in installed if share in path.parents
    }
    for path, source in installed.items():
        assert path.read_bytes() == source.read_bytes()


def test_the_drop_in_is_a_command_of_its_own(environment: Path, folder: Path) -> None:
    """For scripts that call Kafka's tool; pipx and `uv tool` link it as well."""
    done = run([str(environment / "bin" / "kquota-kafka-configs"), "--version"], folder)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("line", "code", "says"), ON_FILES, ids=[line for line, _, _ in ON_FILES])
def test_the_zipapp_works(zipapp: Path, folder: Path, line: str, code: int, says: str) -> None:
    """Under a Python that looks at no installed package."""
    done = run([sys.executable, "-I", "-S", str(zipapp), *line.split()[1:]], folder)

    assert done.returncode == code, done.stderr
    assert says in done.stdout + done.stderr


def test_the_zipapp_is_one_program(zipapp: Path, folder: Path) -> None:
    """It can be copied to a folder of the path under any name; and it completes. Everybody may run it."""
    program = folder / "kquota"
    assert zipapp.stat().st_mode & 0o777 == 0o755
    shutil.copy(zipapp, program)
    environment = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}/usr/bin", "HOME": str(folder)}
    done = subprocess.run(
        [str(program)],
        env=environment | {"_KQUOTA_COMPLETE": "bash_source"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == (SCRIPTS / "kquota.bash").read_text()


CONTAINERFILE = [
    line.split(maxsplit=1)
    for line in (ROOT / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    if line and not line.startswith("#")
]


def test_the_container_recipe_is_sound() -> None:
    """A slim image, the base install, nobody's root; and all that it copies is there."""
    words = [(name, rest.split()) for name, rest in CONTAINERFILE]
    images = [rest[0] for name, rest in words if name == "FROM"]
    assert all(image.startswith("docker.io/library/python:3.") and image.endswith("-slim") for image in images)
    copied = [path for name, rest in words if name == "COPY" and "--from=build" not in rest for path in rest[:-1]]
    assert copied
    assert all((ROOT / path).exists() for path in copied)
    # The wheel needs these.
    assert {"pyproject.toml", "README.md", "LICENSE", "kquota", "schemas", "man", "tools"} <= set(copied)
    last = dict(words)
    assert last["USER"] == ["65532:65532"]
    assert last["ENTRYPOINT"] == ['["kquota"]']
    assert "[audit]" not in str(CONTAINERFILE)
