"""What names this package's version, dependencies and supported versions: all say the same."""

import re
import tomllib
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
import yaml

import dask_efficiency
from dask_efficiency.plugin.version import OLDEST_DISTRIBUTED

pytest.importorskip("editables", reason="editables, which editable installations need, is not installed")
pytest.importorskip("hatchling", reason="hatchling, which builds the package, is not installed")

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RECIPE: dict[str, Any] = yaml.safe_load((ROOT / ".ci/conda/recipe.yaml").read_text(encoding="utf-8"))
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def metadata() -> Any:
    """What an index shows of the package, as the wheel and the sdist have it."""
    from hatchling.metadata.core import ProjectMetadata
    from hatchling.metadata.spec import get_core_metadata_constructors
    from hatchling.plugin.manager import PluginManager

    constructor = get_core_metadata_constructors()["2.4"]
    text = constructor(ProjectMetadata(str(ROOT), PluginManager()))
    return message_from_bytes(text.encode(), policy=policy.compat32)


def default(variable: str) -> list[str]:
    """The words of a variable of the Makefile."""
    return re.search(rf"^{variable} \?= (.*)$", MAKEFILE, flags=re.MULTILINE)[1].split()  # type: ignore[index]


def test_the_version_is_everywhere_that_of_the_package(metadata):
    version = dask_efficiency.__version__
    assert metadata["Version"] == version
    assert RECIPE["context"]["version"] == version
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert first[1].rstrip(",") == version  # type: ignore[index]
    assert "release = dask_efficiency.__version__" in (ROOT / "docs/conf.py").read_text(encoding="utf-8")


def test_the_description_has_no_link_that_only_a_checkout_can_follow(metadata):
    description = metadata.get_payload()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "It answers these questions" in description
    assert [link for link in re.findall(r"\]\(([^)]*)\)", description) if not link.startswith("https:")] == []


def test_the_licence_is_named_and_its_file_goes_along(metadata):
    assert metadata["License-Expression"] == RECIPE["about"]["license"] == "BSD-3-Clause"
    assert metadata["License-File"] == RECIPE["about"]["license_file"] == "LICENSE"


def test_each_python_that_is_named_is_tried(metadata):
    prefix = "Programming Language :: Python :: "
    named = [line.removeprefix(prefix) for line in metadata.get_all("Classifier") if line.startswith(f"{prefix}3.")]
    assert named == default("MATRIX_PYTHONS") == WORKFLOW["jobs"]["matrix"]["strategy"]["matrix"]["python"]
    assert metadata["Requires-Python"] == f">={named[0]}"
    assert RECIPE["context"]["python_min"] == named[0]


def test_the_oldest_distributed_that_is_named_is_tried_and_refuses_older_ones():
    oldest, newest = default("MATRIX_DISTRIBUTED")
    assert newest == "newest"
    assert f"distributed>={oldest}" in PROJECT["dependencies"]
    assert tuple(map(int, oldest.split(".")[:2])) == OLDEST_DISTRIBUTED


def test_conda_installs_the_same_packages_as_pip():
    run = {*RECIPE["requirements"]["run"]} - {"__unix", "python >=${{ python_min }}"}
    assert {line.replace(" ", "") for line in run} == {*PROJECT["dependencies"]}
    assert RECIPE["build"]["python"]["entry_points"] == [
        f"{name} = {home}" for name, home in PROJECT["scripts"].items()
    ]


def test_the_workflow_runs_the_same_commands_as_a_developer():
    commands = [step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "run" in step]
    for command in commands:
        program, *target = command.split()
        assert program == ".ci/run" or (program == "make" and f"\n{target[0]}:" in MAKEFILE), command
