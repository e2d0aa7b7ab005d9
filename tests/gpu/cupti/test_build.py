import os
import shutil
import sys
from pathlib import Path

import pytest

from dask_efficiency.gpu.cupti import build
from dask_efficiency.gpu.cupti.build import CannotCompile, compile_callbacks, compiler


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Linux, with nothing said about compilers."""
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("CC", build.NO_EXTENSION):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only folder where programs are looked for, which is empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(path: Path) -> None:
    path.write_text("#!/bin/sh\necho of the test >&2\nexit 1\n")
    path.chmod(0o755)


def test_the_variable_goes_before_the_usual_names_and_may_have_arguments(path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("clang", "gcc", "cc"):
        program(path / name)
        assert compiler() == [name]
    monkeypatch.setenv("CC", "gcc -m64")
    assert compiler() == ["gcc", "-m64"]


def test_a_variable_that_names_no_program_is_passed_over(path: Path, monkeypatch: pytest.MonkeyPatch):
    program(path / "cc")
    monkeypatch.setenv("CC", "nowhere-cc")
    assert compiler() == ["cc"]


def test_without_a_compiler_it_says_so(path: Path):
    with pytest.raises(CannotCompile, match=r"no C compiler found: neither \$CC, nor cc, gcc or clang"):
        compiler()


def test_elsewhere_than_on_linux_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(CannotCompile, match="on Linux only, and this is darwin"):
        compiler()


@pytest.mark.parametrize(("value", "refused"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_a_variable_of_the_environment_switches_it_off(
    path: Path, monkeypatch: pytest.MonkeyPatch, value: str, refused: bool
):
    program(path / "cc")
    monkeypatch.setenv(build.NO_EXTENSION, value)
    if refused:
        with pytest.raises(CannotCompile, match="DASK_EFFICIENCY_NO_EXTENSION is set"):
            compiler()
    else:
        assert compiler() == ["cc"]


def test_what_a_failing_compiler_writes_is_the_reason_and_what_was_there_stays(path: Path, tmp_path: Path):
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
