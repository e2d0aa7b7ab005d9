"""Canaries: modules that lie in the working directory under every name that anything could import."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dask_efficiency
from dask_efficiency.files.processes import command, safe_path
from dask_efficiency.preflights.worker import Child
from dask_efficiency.report.demo import local_cluster

PACKAGE = Path(dask_efficiency.__file__).parent
MAIN = "from dask_efficiency.cli import main; main()"
TRACE = Path(__file__).parents[1] / "data" / "simulation" / "one_worker.trace"
OTHERS = ("dask", "dask_efficiency", "distributed", "fsspec", "numpy", "sitecustomize", "torch", "yaml")


@pytest.fixture
def canaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory whose modules leave a file each where they are imported."""
    folder = tmp_path / "here"
    folder.mkdir()
    sung = f"import os\nopen(os.path.join({str(tmp_path)!r}, 'imported-' + __name__), 'w').close()\n"
    for name in {*sys.stdlib_module_names, *OTHERS}:
        (folder / f"{name}.py").write_text(sung)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return tmp_path


def imported(canaries: Path) -> list[str]:
    return sorted(path.name for path in canaries.glob("imported-*"))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    # As a console script, which does not look in the working directory itself
    return subprocess.run([sys.executable, "-P", "-c", MAIN, *arguments], capture_output=True, text=True, timeout=240)


def test_a_module_here_is_what_python_itself_would_import(canaries: Path) -> None:
    subprocess.run([sys.executable, "-m", "shutil"], capture_output=True, check=False)
    assert imported(canaries)


def test_a_script_imports_from_its_own_folder_and_not_from_the_working_directory(canaries: Path) -> None:
    (canaries / "scripts").mkdir()
    (canaries / "scripts" / "job.py").write_text("import colorsys, csv, sys\nprint(colorsys.__file__)\n")
    (canaries / "scripts" / "colorsys.py").write_text("")
    ran = run("run", str(canaries / "scripts" / "job.py"))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"{canaries / 'scripts' / 'colorsys.py'}\n"
    assert imported(canaries) == []


def test_a_safe_path_holds_for_scripts_too(canaries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    (canaries / "here" / "job.py").write_text("import colorsys\nprint(colorsys.__file__)\n")
    ran = run("run", "job.py")
    assert Path(ran.stdout.strip()).parent == Path(os.__file__).parent
    assert imported(canaries) == []


def test_simulations_import_nothing_from_the_working_directory(canaries: Path) -> None:
    ran = run("simulate", str(TRACE), "--seeds", "2", "--force")
    assert ran.returncode == 0, ran.stderr
    assert imported(canaries) == []


def test_measurements_of_a_worker_import_what_the_worker_would(canaries: Path) -> None:
    child = Child()
    request = {"components": ["cpu"], "repetition": 0.001, "repeats": 1}
    assert asyncio.run(child.run(request, b"", seconds=100, ended=lambda: False)) == ""
    assert child.found["cpu"]["value"] > 0
    assert imported(canaries) == []


@pytest.mark.cluster
def test_workers_of_the_demonstration_import_nothing_from_the_working_directory(canaries: Path) -> None:
    with local_cluster(1, 1, dashboard=False):
        pass
    assert imported(canaries) == []
    assert "PYTHONSAFEPATH" not in os.environ


@pytest.mark.parametrize("before", [None, "", "1"])
def test_the_environment_is_afterwards_as_it_was(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONSAFEPATH", before)
    with safe_path():
        assert os.environ["PYTHONSAFEPATH"] == "1"
    assert os.environ.get("PYTHONSAFEPATH") == before


def test_a_checkout_that_is_not_installed_starts_its_own_modules(tmp_path: Path) -> None:
    # -I, and -S: no site-packages, so that the package is found by its path alone
    (tmp_path / "dask_efficiency" / "files").mkdir(parents=True)
    (tmp_path / "dask_efficiency" / "__init__.py").write_text("")
    (tmp_path / "dask_efficiency" / "files" / "__init__.py").write_text("")
    source = (PACKAGE / "files" / "processes.py").read_text()
    (tmp_path / "dask_efficiency" / "files" / "processes.py").write_text(source)
    (tmp_path / "dask_efficiency" / "job.py").write_text(
        "import json, sys\n"
        "def main():\n"
        "    import dask_efficiency\n"
        "    print(json.dumps([__file__, dask_efficiency.__file__, sys.argv[1:]]))\n"
    )
    python, _, _, *arguments = command("dask_efficiency.job", "x", "-y")
    started = [python, "-I", "-S", str(tmp_path / "dask_efficiency" / "files" / "processes.py"), *arguments]
    ran = subprocess.run(started, capture_output=True, text=True, check=True)
    here = str(tmp_path / "dask_efficiency")
    assert json.loads(ran.stdout) == [f"{here}/job.py", f"{here}/__init__.py", ["x", "-y"]]


def test_python_is_started_in_one_place() -> None:
    starts = {path.name for path in PACKAGE.rglob("*.py") if "sys.executable" in path.read_text()}
    # the runner replaces its own process by the command of the other; py-spy is looked for beside Python
    assert starts == {"processes.py", "runner.py", "native_stacks.py"}
