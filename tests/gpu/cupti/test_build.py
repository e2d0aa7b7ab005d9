import os
import shutil
import sys
from pathlib import Path

import pytest

from dask_efficiency.gpu.cupti import build
from dask_efficiency.gpu.cupti.build import CannotCompile, compile_callbacks, compiler


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux, without variables of compilers."""
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("CC", build.NO_EXTENSION):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Empty folder, the only one on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(path: Path) -> None:
    path.write_text("#!/bin/sh\necho of the test >&2\nexit 1\n")
    path.chmod(0o755)


def test_the_variable_with_its_arguments_takes_precedence_over_the_usual_names(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(CannotCompile, match=r"no C compiler found: neither \$CC, nor cc, gcc or clang"):
        compiler()
    for name in ("clang", "gcc", "cc"):
        program(path / name)
        assert compiler() == [name]
    for variable, command in (("gcc -m64", ["gcc", "-m64"]), ("nowhere-cc", ["cc"])):
        monkeypatch.setenv("CC", variable)
        assert compiler() == command


def test_only_linux_compiles(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(CannotCompile, match="on Linux only, and this is darwin"):
        compiler()


@pytest.mark.parametrize(("value", "refused"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_a_variable_of_the_environment_switches_compiling_off(
    path: Path, monkeypatch: pytest.MonkeyPatch, value: str, refused: bool
):
    program(path / "cc")
    monkeypatch.setenv(build.NO_EXTENSION, value)
    if refused:
        with pytest.raises(CannotCompile, match="DASK_EFFICIENCY_NO_EXTENSION is set"):
            compiler()
    else:
        assert compiler() == ["cc"]


def test_output_of_a_failing_compiler_is_the_reason_and_the_former_library_stays(path: Path, tmp_path: Path):
    program(path / "cc")
    library = tmp_path / "library"
    library.write_text("as before")
    with pytest.raises(CannotCompile, match="cc failed: of the test"):
        compile_callbacks(library)
    assert library.read_text() == "as before"


@pytest.mark.skipif(not (shutil.which("cc") and sys.platform == "linux"), reason="no C compiler on Linux here")
def test_the_source_compiles_without_a_warning_and_leaves_one_file(tmp_path: Path):
    compile_callbacks(tmp_path / "library", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
    assert os.listdir(tmp_path) == ["library"]
