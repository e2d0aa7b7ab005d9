"""JupyterLab as a user has it, with Dask's extension, in a browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Settings of a reader who is not asked for anything, and who has a panel of Dask's beside the notebook.
SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false"},
    "dask-labextension/plugin": {"defaultLayout": {"individual-efficiency-timeline": {"mode": "split-right"}}},
}

OPTIONS = [
    "--no-browser",
    "--allow-root",
    "--port=0",
    "--IdentityProvider.token=",
    "--LabApp.extension_manager=readonly",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    # sockets with names, for another process may take a port between its choice and its use
    "--KernelManager.transport=ipc",
]


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A server of a folder, and its URL; it has configuration and settings of its own."""
    # names of sockets are short on Unix, so not in a test's folder
    with tempfile.TemporaryDirectory() as own:
        for name, settings in SETTINGS.items():
            file = Path(own, "settings", f"{name}.jupyterlab-settings")
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps(settings))
        environment = {f"JUPYTER_{name}_DIR": f"{own}/{name.lower()}" for name in ("CONFIG", "DATA", "RUNTIME")}
        environment |= {f"JUPYTERLAB_{name}_DIR": f"{own}/{name.lower()}" for name in ("SETTINGS", "WORKSPACES")}
        with open(f"{own}/log", "w+") as log:
            command = [sys.executable, "-m", "jupyterlab", *OPTIONS, f"--ServerApp.root_dir={folder}"]
            server = subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)
            try:
                yield _url_of(server, Path(own, "runtime"), Path(own, "log"))
            finally:
                server.terminate()
                server.wait()


def _url_of(server: subprocess.Popen[bytes], runtime: Path, log: Path) -> str:
    """The URL that the server writes down once it listens."""
    file = runtime / f"jpserver-{server.pid}.json"
    while True:
        if server.poll() is not None:
            raise RuntimeError(f"JupyterLab ended: {log.read_text()[-2000:]}")
        try:
            return str(json.loads(file.read_text())["url"])
        except (FileNotFoundError, json.JSONDecodeError):  # not yet, or half of it
            time.sleep(0.1)


def write_notebook(file: Path, cells: list[str]) -> None:
    """A notebook of these cells, for the kernel of this environment."""
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, file)


class Lab:
    """A notebook that is open in a browser."""

    def __init__(self, page: Any, url: str, name: str) -> None:
        self.page = page
        page.goto(f"{url}lab/tree/{name}?reset")
        # before the kernel has started, a cell that is to run would ask for one
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()

    def choose(self, menu: str, item: str) -> None:
        """Choose from a menu, such as "Run All Cells" of "Run"."""
        self.page.locator(f'.lm-MenuBar-itemLabel:text-is("{menu}")').click()
        self.page.locator(f'.lm-Menu-itemLabel:text-is("{item}")').click()

    def output(self, cell: int) -> Any:
        """What stands below a cell."""
        return self.page.locator(".jp-CodeCell").nth(cell).locator(".jp-OutputArea-output")

    def find_dashboard(self, url: str) -> list[str]:
        """The pages that Dask's extension lists for a dashboard."""
        self.page.locator('.lm-TabBar-tab[data-id="dask-dashboard-launcher"]').click()
        field = self.page.locator("#dask-dashboard-launcher input").first
        field.fill(url)
        field.press("Enter")
        self.page.locator(".dask-DashboardListing-item button:enabled").first.wait_for()
        buttons = self.page.locator(".dask-DashboardListing-item button")
        return list(buttons.evaluate_all("all => all.map(each => each.value)"))

    def open_panels(self) -> Any:
        """The frame of the panel beside the notebook, once it is drawn."""
        self.choose("File", "Launch Dask Dashboard Layout")
        element = self.page.locator('iframe[src*="/individual-efficiency-timeline"]')
        frame = element.element_handle().content_frame()
        frame.wait_for_function("window.Bokeh && Bokeh.documents[0] && Bokeh.documents[0].is_idle")
        return frame
