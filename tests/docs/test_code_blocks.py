"""The code on the pages: Python runs, commands are taken by the command line, YAML can be read."""

import ast
import re
import shlex
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.datasets
import pytest
import yaml
from click import Context, Group, UsageError
from distributed import Client, LocalCluster

import dask_efficiency
from dask_efficiency.cli import main
from dask_efficiency.plugin.options import OPTIONS
from dask_efficiency.report import own_recipes
from dask_efficiency.simulation import calls as predictions
from tests.docs.markdown import PAGES, ROOT, Block, blocks
from tests.mpi.programs import transposition
from tests.simulation.fake_engine import FakeEngine, recorded

BLOCKS = {page: blocks(page.read_text(encoding="utf-8")) for page in PAGES}

#: Modules that an extra brings, so that a block may lack them.
EXTRAS = ("pandas", "prometheus_client", "bokeh", "torch", "sklearn")

COMMAND = re.compile(r"^(?:\$ )?dask[ -]efficiency (?P<words>.+)$", re.MULTILINE)


def of_language(*languages: str) -> list[Any]:
    return [
        pytest.param(block, id=f"{page.relative_to(ROOT)}:{block.line}")
        for page, found in BLOCKS.items()
        for block in found
        if block.language in languages
    ]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": False}
    with LocalCluster(processes=False, **options) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        yield client
        dask_efficiency.unregister(client)


@pytest.mark.cluster
@pytest.mark.parametrize(
    "page",
    [page for page, found in BLOCKS.items() if any(block.language == "python" for block in found)],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_python_blocks_of_a_page_run_in_order(page: Path, client: Client, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with dask.config.set({"dataframe.convert-string": False}):
        df = dask.datasets.timeseries(end="2000-01-03", seed=1)
        if page.stem == "waiting":  # long enough to be sampled, however busy the machine is
            df = df.map_partitions(slowly, meta=df._meta)
        if page.stem == "simulation":  # its blocks are about a run and a cluster in files
            monkeypatch.setattr(predictions, "engine", FakeEngine())
            write_simulation_files()
        if page.stem == "mpi":  # its blocks are about a program, a cluster and hosts in files
            shutil.copytree(ROOT / "docs" / "lab", tmp_path, dirs_exist_ok=True)
            Path("traces").mkdir()
            Path("traces/list").write_text("\n".join(transposition(24)))
        namespace: dict[str, Any] = {"__name__": page.stem, "client": client, "df": df}
        for block in BLOCKS[page]:
            if block.language == "python":
                run(block, page, namespace)


def write_simulation_files() -> None:
    recorded().save("run.trace")
    (described,) = (block.text for block in BLOCKS[ROOT / "docs" / "simulation.md"] if block.language == "yaml")
    Path("lab.yaml").write_text(described)
    Path("one-room.hosts").write_text("pc01:2\npc02:2\n")
    Path("both-rooms.hosts").write_text("pc01:2\npc30:2\n")


def slowly(partition: Any) -> Any:
    time.sleep(1)
    return partition


def run(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    """Run a block; errors name its lines in the page."""
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    try:
        exec(code, namespace)
    except ImportError as error:
        if error.name is None or error.name.split(".")[0] not in EXTRAS:
            raise
        pytest.skip(f"{page.name}, line {block.line}: {error.name} is not installed")


@pytest.mark.parametrize("block", of_language("python notest"))
def test_blocks_that_cannot_run_here_are_python(block: Block) -> None:
    assert ast.parse(block.text).body


@pytest.mark.parametrize("block", of_language("yaml"))
def test_yaml_can_be_read_and_sets_options_that_there_are(block: Block) -> None:
    content = yaml.safe_load(block.text)
    assert content
    beside = {own_recipes.KEY.rpartition(".")[2]}  # read where a report is shown, by no plugin
    for key, value in ((key, value) for key, value in content.get("efficiency", {}).items() if key not in beside):
        OPTIONS[key.replace("-", "_")].read(value)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_environment_variables_are_of_options_that_there_are(page: Path) -> None:
    names = re.findall(r"DASK_EFFICIENCY__(\w+)", page.read_text(encoding="utf-8"))
    assert {name.lower() for name in names} <= OPTIONS.keys()


def commands() -> list[str]:
    """Commands in blocks and within lines, without comments and what comes after a pipe."""
    found = []
    for page in PAGES:
        markdown = page.read_text(encoding="utf-8")
        inline = re.findall(r"`(dask[ -]efficiency [^`\n.]*)`", markdown)
        shown = [block.text for block in BLOCKS[page] if block.language in ("", "console")]
        for text in (*inline, *shown):
            found += [match["words"] for match in COMMAND.finditer(text)]
    return sorted({re.split(r" \| |  +#", command)[0].strip() for command in found})


@pytest.mark.parametrize("command", commands())
def test_a_command_is_one_that_the_command_line_takes(command: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name in re.findall(r"[\w/]+\.pem", command):  # options of files look whether they are there
        (tmp_path / name).touch()
    name, *words = shlex.split(command)
    subcommand = main.get_command(Context(main), name)
    if isinstance(subcommand, Group) and words:
        name, *words = words
        subcommand = subcommand.get_command(Context(subcommand), name)
    assert subcommand is not None
    if not words:  # named in a sentence
        return
    try:
        subcommand.make_context(name, words)
    except UsageError as error:
        pytest.fail(f"dask-efficiency {command}: {error.format_message()}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_block_is_of_a_language_that_is_checked(page: Path) -> None:
    known = {"", "python", "python notest", "yaml", "text", "console", "{toctree}", "{eval-rst}"}
    assert {block.language for block in BLOCKS[page]} <= known


def test_targets_of_make_that_the_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"(?:`|^ {4})make ([a-z-]+)", text, flags=re.MULTILINE)
        assert set(named) <= targets, page
        benchmarks = set(re.findall(r"\bBENCH=(\w+)", text)) | set(re.findall(r"-m benchmarks\.(\w+)", text))
        for name in benchmarks:
            assert list((ROOT / "benchmarks").glob(f"{name}*")), f"{page}: {name}"


def test_a_recipe_for_ci_keeps_the_run_that_failed_and_runs_no_name_of_a_branch() -> None:
    github, gitlab = (
        yaml.safe_load(block.text) for block in BLOCKS[ROOT / "docs" / "history.md"] if block.language == "yaml"
    )
    assert not [step["run"] for step in github["steps"] if "${{" in step.get("run", "")]
    restored, saved = (step for step in github["steps"] if "cache" in step.get("uses", ""))
    assert (restored["with"]["key"], saved["if"]) == (saved["with"]["key"], "always()")
    assert gitlab["nightly"]["cache"]["when"] == "always"
