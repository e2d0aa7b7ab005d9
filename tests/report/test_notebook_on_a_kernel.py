"""A notebook with its own kernel, as nbclient and nbconvert run it."""

import tempfile
from typing import Any

import pytest

CELLS = [
    "%load_ext dask_efficiency",
    """\
from distributed import Client, LocalCluster
client = Client(LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"))""",
    "def double(x):\n    return sum(2 * x for _ in range(100_000)) // 100_000",
    """\
%%efficiency -o report --trace
import asyncio
await asyncio.sleep(0.01)
future = client.submit(double, 21)
future.result()""",
    "%%efficiency\nclient.submit(double, 4).result();",
    "%%efficiency\nclient.submit(double, 5).result()\n1 / 0",
    "report",
    "client.shutdown()",
]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The cells, once they have run."""
    import nbformat
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    resources = {"metadata": {"path": str(tmp_path_factory.mktemp("notebook"))}}
    # Sockets with names, for another process may take a port between its choice and its use; names are short on Unix.
    with tempfile.TemporaryDirectory() as sockets:
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{sockets}/kernel")
        NotebookClient(notebook, km=kernel, timeout=240, allow_errors=True, resources=resources).execute()
    nbformat.validate(notebook)
    return notebook.cells


pytestmark = [pytest.mark.cluster, pytest.mark.needs("nbclient", "ipykernel")]


def test_a_cell_that_awaits_has_its_value_and_below_it_its_report_and_so_has_a_page(cells: list[Any]) -> None:
    import nbformat
    from nbconvert import HTMLExporter

    assert [output.output_type for output in cells[3].outputs] == ["execute_result", "display_data"]
    value, report = cells[3].outputs
    assert value.data["text/plain"] == "42"
    assert value.execution_count == cells[3].execution_count == 4
    assert report.data["text/plain"].startswith("cell 4\n1 worker, 2 threads, a window of ")
    assert "<script" not in report.data["text/html"]
    assert cells[6].outputs[0].data["text/html"] == report.data["text/html"]
    page, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=cells))
    assert page.count('class="de-headline"') == 4
