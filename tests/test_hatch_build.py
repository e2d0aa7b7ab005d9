import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dask_efficiency.gpu.cupti import build

pytest.importorskip("editables", reason="editables, which editable installations need, is not installed")
sdists = pytest.importorskip("hatchling.builders.sdist", reason="hatchling, which builds the package, is not installed")
wheels = pytest.importorskip("hatchling.builders.wheel", reason="hatchling, which builds the package, is not installed")

ROOT = Path(__file__).parents[1]
LIBRARY = f"dask_efficiency/gpu/cupti/{build.LIBRARY_NAME}"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a build reads, with a library that an earlier build has left."""
    checkout = tmp_path / "checkout"
    shutil.copytree(
        ROOT / "dask_efficiency", checkout / "dask_efficiency", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, checkout)
    (checkout / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "buckets.md", checkout / "docs")
    (checkout / LIBRARY).write_bytes(b"of an earlier build")
    return checkout


def wheel(checkout: Path, version: str) -> Path:
    (path,) = wheels.WheelBuilder(str(checkout)).build(directory=str(checkout / "dist"), versions=[version])
    return Path(path)


@pytest.fixture
def compiler() -> None:
    try:
        build.compiler()
    except build.CannotCompile as reason:
        pytest.skip(str(reason))


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)


@pytest.mark.usefixtures("compiler")
def test_a_wheel_has_a_new_library_and_its_platforms_tag(checkout: Path):
    path = wheel(checkout, "standard")
    assert "-py3-none-linux_" in path.name
    with zipfile.ZipFile(path) as content:
        assert content.read(LIBRARY).startswith(b"\x7fELF")
        assert content.read("dask_efficiency/report/buckets.md").startswith(b"# What each bucket means")
    assert (checkout / LIBRARY).read_bytes() == b"of an earlier build"


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_a_wheel_is_pure(checkout: Path, capsys: pytest.CaptureFixture[str]):
    path = wheel(checkout, "standard")
    assert "-py3-none-any" in path.name
    with zipfile.ZipFile(path) as content:
        assert LIBRARY not in content.namelist()
        assert "dask_efficiency/gpu/cupti/callbacks.py" in content.namelist()
    captured = capsys.readouterr()
    assert "built without CUPTI: no C compiler found" in captured.out + captured.err


@pytest.mark.usefixtures("compiler")
def test_a_command_adds_the_library_to_a_pure_wheel(checkout: Path):
    command = [sys.executable, "-m", "dask_efficiency.gpu.cupti"]
    subprocess.run(command, cwd=checkout, check=True)
    assert (checkout / LIBRARY).read_bytes().startswith(b"\x7fELF")


def test_without_a_compiler_the_command_fails_with_one_line(checkout: Path):
    command = [sys.executable, "-m", "dask_efficiency.gpu.cupti"]
    environment = {**os.environ, "PATH": "", "CC": ""}
    ran = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr.startswith("cannot make ")
    assert ran.stderr.count("\n") == 1
    assert (checkout / LIBRARY).read_bytes() == b"of an earlier build"


@pytest.mark.usefixtures("compiler")
def test_an_editable_installation_has_the_library_next_to_its_source(checkout: Path):
    wheel(checkout, "editable")
    assert (checkout / LIBRARY).read_bytes().startswith(b"\x7fELF")


@pytest.mark.usefixtures("no_compiler")
def test_an_editable_installation_without_a_compiler_leaves_no_old_library(checkout: Path):
    wheel(checkout, "editable")
    assert not (checkout / LIBRARY).exists()


def test_a_source_distribution_has_the_sources_of_a_wheel_and_nothing_compiled(checkout: Path):
    (path,) = sdists.SdistBuilder(str(checkout)).build(directory=str(checkout / "dist"), versions=["standard"])
    shutil.unpack_archive(path, checkout / "unpacked", filter="data")
    (unpacked,) = (checkout / "unpacked").iterdir()
    for name in (
        "hatch_build.py",
        "dask_efficiency/gpu/cupti/callbacks.c",
        "dask_efficiency/gpu/cupti/build.py",
    ):
        assert (unpacked / name).read_bytes() == (checkout / name).read_bytes()
    assert not (unpacked / LIBRARY).exists()
