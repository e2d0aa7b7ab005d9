"""The magics in a plain IPython shell, with a cluster in this process."""

from collections.abc import Iterator
from typing import Any

import dask.datasets
import pytest
from distributed import Client, LocalCluster
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from dask_efficiency import EfficiencyReport, RunTrace, unregister
from dask_efficiency.report.notebook import NO_CLIENT, plain_cell
from tests.docs.markdown import ROOT, blocks


class Notebook:
    """A shell, and the output of its last cell."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell

    def run(self, cell: str) -> Any:
        """Run a cell as a person does, and keep its output."""
        with capture_output() as captured:
            self.result = self.shell.run_cell(cell, store_history=True)
        self.outputs = captured.outputs
        self.stdout, self.stderr = captured.stdout, captured.stderr
        return self.result.result

    @property
    def reports(self) -> list[dict[str, str]]:
        """Displayed reports, by kind."""
        return [output.data for output in self.outputs if "dask-efficiency" in output.data.get("text/html", "")]

    def __getitem__(self, name: str) -> Any:
        return self.shell.user_ns[name]


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    notebook = Notebook(InteractiveShell.instance())
    notebook.run("%load_ext dask_efficiency")
    yield notebook
    notebook.run("%unload_ext dask_efficiency")
    InteractiveShell.clear_instance()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    options = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": ":0", "silence_logs": False}
    with LocalCluster(processes=False, **options) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        InteractiveShell.instance().push({"client": client})
        yield client
        unregister(client)


def plugins(client: Client) -> list[str]:
    return client.run_on_scheduler(lambda dask_scheduler: [n for n in dask_scheduler.plugins if "efficiency" in n])


def test_without_a_client_the_cell_does_not_run_and_a_line_has_the_cure(notebook: Notebook) -> None:
    notebook.run("%%efficiency\nx = 1")
    assert notebook.stderr.splitlines()[-1] == f"UsageError: {NO_CLIENT}"
    assert "x" not in notebook.shell.user_ns
    notebook.run("y = %efficiency 1 + 1")
    assert NO_CLIENT in notebook.stderr
    assert "y" not in notebook.shell.user_ns


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%efficiency --trce\n1", "option --trce not recognized"),
        ("%%efficiency df.compute()\n1", "%%efficiency takes no expression, but lines below it; got 'df.compute()'"),
        ("%%efficiency -o my-report\n1", "-o is 'my-report'; expected the name of a variable"),
        ("%%efficiency --savings 60\n1", "--savings is for the simulation of a recorded run; expected --trace with it"),
        ("%%efficiency --trace --savings soon\n1", "--savings is 'soon'; expected seconds, 0 or more"),
        ("%efficiency --trace --savings=nan 1", "--savings is 'nan'; expected seconds, 0 or more"),
        ("%efficiency --trace", "%efficiency takes an expression, such as"),
        ("%%efficiency", "but the cell body is empty. Did you mean the line magic %efficiency"),
    ],
)
def test_an_error_of_a_magic_is_one_line(notebook: Notebook, cell: str, message: str) -> None:
    notebook.run(cell)
    assert message in notebook.stderr
    assert "Traceback" not in notebook.stdout + notebook.stderr
    # a terminal waits for the lines below
    assert notebook.shell.check_complete("%%efficiency\nx = 1")[0] == "incomplete"
    assert notebook.shell.check_complete("%%efficiency\nx = 1\n\n")[0] == "complete"


def test_lines_below_keep_their_numbers_and_other_cells_stay_as_they_are() -> None:
    begin, *rest = plain_cell(["%%efficiency  --trace\n", "x = 1\n", "x\n"])
    assert begin.endswith(".begin('--trace')\n")
    assert rest == ["x = 1\n", "x\n"]
    for cell in ([], ["x = 1\n"], ["%%efficiency?\n"], ["%%efficiency\n", "  \n"], ["%%efficiency_of\n", "x\n"]):
        assert plain_cell(cell) is cell


def test_options_are_those_of_a_report(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def refuse(**options: Any) -> None:
        asked.append(options)
        raise RuntimeError

    monkeypatch.setattr("dask_efficiency.report.notebook.get_client", lambda: None)
    monkeypatch.setattr("dask_efficiency.report.notebook.efficiency_report", refuse)
    notebook.run("%%efficiency --trace --savings 60.5\n1")
    notebook.run("%efficiency --only 1")
    assert asked == [
        {"client": None, "trace": True, "savings": 60.5, "only": False},
        {"client": None, "trace": False, "savings": None, "only": True},
    ]


def test_help_names_the_options_and_unloading_leaves_nothing() -> None:
    shell = InteractiveShell.instance()
    callbacks = {name: list(found) for name, found in shell.events.callbacks.items()}
    notebook = Notebook(shell)
    notebook.run("%load_ext dask_efficiency")
    text = shell.find_cell_magic("efficiency").__doc__
    assert all(option in text for option in ("-o NAME", "--trace", "--savings SECONDS", "--only"))
    notebook.run("%reload_ext dask_efficiency")
    notebook.run("%unload_ext dask_efficiency")
    assert shell.find_cell_magic("efficiency") is None
    assert shell.find_line_magic("efficiency") is None
    assert plain_cell not in shell.input_transformers_cleanup
    assert shell.events.callbacks == callbacks
    InteractiveShell.clear_instance()


@pytest.mark.cluster
def test_a_cell_has_its_value_its_output_and_its_report_below(notebook: Notebook, client: Client) -> None:
    value = notebook.run("%%efficiency -o report\nx = client.submit(sum, [1, 2])\nprint('sent')\nx.result()")
    assert value == notebook["_"] == notebook["Out"][2] == 3
    assert notebook["x"].key.startswith("sum-")
    assert "sent" in notebook.stdout
    assert "Out[2]: 3" in notebook.stdout
    report = notebook["report"]
    assert isinstance(report, EfficiencyReport)
    assert report.tasks["succeeded"] == 1
    assert report.name == "cell 2"
    assert report.code == ("%%efficiency -o report\nx = client.submit(sum, [1, 2])\nprint('sent')\nx.result()",)
    assert "efficiency_report/In[2]:2" in report.by_span
    (shown,) = notebook.reports
    assert report.headline in shown["text/plain"]
    assert "report.show() prints all of it" in shown["text/plain"]
    assert shown["text/html"] == report._repr_html_()
    with dask.config.set({"efficiency.source": False}):
        notebook.run("%%efficiency -o report\nsecret = client.submit(sum, [1, 2]).result();")
    assert "Out" not in notebook.stdout  # a semicolon hides the value
    assert len(notebook.reports) == 1
    assert notebook["report"].code == ()
    assert "secret" not in str(notebook["report"].to_dict())


@pytest.mark.cluster
def test_a_cell_that_awaits_is_reported(notebook: Notebook, client: Client) -> None:
    cell = "%%efficiency -o r\nimport asyncio\nawait asyncio.sleep(0.01)\ny = client.submit(sum, [4]).result()\ny"
    assert notebook.run(cell) == 4
    assert notebook["r"].tasks["succeeded"] == 1


@pytest.mark.cluster
def test_a_cell_of_an_asynchronous_client_runs_without_a_report_and_a_line_says_so(
    notebook: Notebook, cluster: LocalCluster
) -> None:
    notebook.run(
        "from distributed import Client\n"
        f"client = await Client({cluster.scheduler_address!r}, asynchronous=True)\n"
        "await client.run_on_scheduler(lambda: 1)"
    )
    assert notebook.run("%%efficiency -o r\nx = await client.submit(sum, [4])\nx") == 4
    assert "use `async with efficiency_report()`" in notebook.stderr
    assert notebook.run("%efficiency 1 + 1") == 2
    assert "r" not in notebook.shell.user_ns
    notebook.run("await client.close()")


@pytest.mark.cluster
def test_a_cell_that_fails_fails_as_it_does_without_and_has_a_report(notebook: Notebook, client: Client) -> None:
    notebook.run("%%efficiency -o r\nclient.submit(sum, [1]).result()\n1 / 0")
    assert isinstance(notebook.result.error_in_exec, ZeroDivisionError)
    assert notebook.result.error_in_exec.__traceback__.tb_next.tb_lineno == 3
    assert notebook.stdout.count("division by zero") == 1
    assert notebook["r"].tasks["succeeded"] == 1
    assert notebook["r"].ended_by == "ZeroDivisionError: division by zero"
    notebook.run("%%efficiency -o interrupted\nraise KeyboardInterrupt")
    assert notebook["interrupted"].ended_by == "KeyboardInterrupt"
    notebook.run("%%efficiency -o outer\n%%capture\n1 / 0")
    assert notebook["outer"].ended_by == ""  # the cell within failed, and IPython goes on
    notebook.run("%efficiency -o line client.submit(sum, [1]).result() / 0")
    assert notebook["line"].ended_by == "ZeroDivisionError: division by zero"
    notebook.run("%%efficiency\nclient.gather([client.submit(int, 'x')])")
    assert "invalid literal for int" in notebook.stdout
    assert "client_watch" not in notebook.stdout
    notebook.run("%%efficiency -o wrong\nx = (")
    assert isinstance(notebook.result.error_before_exec, SyntaxError)
    assert "wrong" not in notebook.shell.user_ns
    assert notebook.run("1") == 1
    assert notebook.reports == []
    assert plugins(client) == []


@pytest.mark.cluster
def test_showing_the_traceback_of_a_cell_is_not_part_of_its_window(
    notebook: Notebook, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[list[str]] = []
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *_, **__: registered.append(plugins(client)))
    notebook.run("%reload_ext dask_efficiency")
    notebook.run("%%efficiency\n1 / 0")
    assert registered == [[]]  # the plugin was there for the report only
    assert len(notebook.reports) == 1


@pytest.mark.cluster
def test_magics_around_and_within_work_and_each_cell_has_one_report(notebook: Notebook, client: Client) -> None:
    for cell in ("%%time\n%%efficiency\nclient.submit(sum, [1]).result()", "%%efficiency\n%%time\n1 + 1"):
        notebook.run(cell)
        assert "Wall time" in notebook.stdout
        assert len(notebook.reports) == 1
    # what is captured is the cell, so its report is shown
    notebook.run("%%efficiency\n%%capture inner\nprint('x')")
    assert len(notebook.reports) == 1
    assert notebook["inner"].stdout == "x\n"
    notebook.run("%%capture outer\n%%efficiency\nprint('x')")
    assert notebook.reports == []
    assert "dask-efficiency" in notebook["outer"].outputs[-1].data["text/html"]
    notebook.shell.run_cell_magic("efficiency", "-o called", "z = 5")
    assert notebook["z"] == 5
    assert notebook["called"].code == ("%%efficiency -o called\nz = 5",)


@pytest.mark.cluster
def test_an_expression_has_its_value_and_a_trace_if_that_is_asked_for(notebook: Notebook, client: Client) -> None:
    notebook.shell.push({"numbers": [1, 2]})
    notebook.run("y = %efficiency --trace -o report client.submit(sum, numbers).result()")
    assert notebook["y"] == 3
    assert len(notebook["report"].trace.runs) == 1
    assert notebook["report"].code == ("%efficiency --trace -o report client.submit(sum, numbers).result()",)
    assert notebook.run("%efficiency client.submit(sum, numbers).result()") == 3
    assert notebook.run("%efficiency client.submit(sum, numbers).result();") is None
    notebook.run("%efficiency w = {1: '$numbers {y}'}; v = w[1]")
    assert notebook["v"] == "$numbers {y}"
    notebook.run("def f(a):\n    b = %efficiency a + 1\n    return b\n")
    assert notebook.run("f(6)") == 7
    notebook.run("%efficiency 1 / 0")
    assert isinstance(notebook.result.error_in_exec, ZeroDivisionError)
    assert len(notebook.reports) == 1


@pytest.mark.cluster
def test_a_report_that_cannot_be_shown_takes_no_value_away(notebook, client, monkeypatch):
    def fail(document: Any) -> str:
        raise ValueError("no words")

    monkeypatch.setattr("dask_efficiency.report.notebook.plain", fail)
    with pytest.warns(RuntimeWarning, match="the report 'cell 2' cannot be shown: ValueError"):
        assert notebook.run("%efficiency -o report 1 + 1") == 2
    assert isinstance(notebook["report"], EfficiencyReport)
    assert notebook.reports == []


@pytest.mark.cluster
def test_the_cells_of_the_documentation_run(client: Client) -> None:
    cells = [block.text for block in blocks((ROOT / "docs" / "notebooks.md").read_text()) if block.language == "text"]
    notebook = Notebook(InteractiveShell.instance())
    notebook.shell.push({"df": dask.datasets.timeseries(end="2000-01-02", freq="1min", seed=1)})
    for cell in cells:
        notebook.run(cell)
        assert notebook.result.success, (cell, notebook.stdout, notebook.stderr)
    assert isinstance(notebook["report"].trace, RunTrace)
    assert notebook["total"] != 0
    InteractiveShell.clear_instance()
