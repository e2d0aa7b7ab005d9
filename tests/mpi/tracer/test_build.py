from pathlib import Path

import pytest

from dask_efficiency.mpi.tracer.build import CannotCompileTracer, compile_tracer, preloaded


def test_a_compilers_error_is_passed_on_and_no_file_is_left(tmp_path: Path) -> None:
    compiler = tmp_path / "mpicc"
    compiler.write_text("#!/bin/sh\necho mpi.h is not there >&2\nexit 1\n")
    compiler.chmod(0o755)
    with pytest.raises(CannotCompileTracer, match="mpicc failed: mpi.h is not there"):
        compile_tracer(str(compiler), tmp_path / "tracer.so")
    assert list(tmp_path.iterdir()) == [compiler]


def test_without_zlib_the_library_is_compiled_all_the_same(tmp_path: Path) -> None:
    compiler = tmp_path / "mpicc"
    # Fails where it is asked for zlib, and else writes what it was called with to the file after -o.
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in *-lz*) exit 1;; esac\n'
        'all="$*"\nwhile [ "$1" != -o ]; do shift; done\necho "$all" > "$2"\n'
    )
    compiler.chmod(0o755)
    assert not compile_tracer(str(compiler), tmp_path / "tracer.so")
    assert "WITH_ZLIB" not in (tmp_path / "tracer.so").read_text()


def test_other_preloaded_libraries_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    environment = preloaded(Path("/lab/tracer.so"), Path("/lab/trace"))
    assert environment == {"LD_PRELOAD": "/lab/tracer.so:libother.so", "DASK_EFFICIENCY_MPI_TRACE": "/lab/trace"}


def test_a_path_that_cannot_be_preloaded_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a path without spaces and colons"):
        preloaded(Path("/my lab/tracer.so"), Path("/lab/trace"))
