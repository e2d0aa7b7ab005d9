"""Processes of the package's own modules, which import nothing from the folder that they are started in.

``python -m`` looks for every module in the working directory first, where a ``shutil.py`` may have come with a trace.
So this file is run by its path and with ``-P``, and takes the package from where the file itself is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location


def command(module: str, *arguments: str) -> list[str]:
    """Command that calls ``main`` of a module of ours in a process of its own, with these arguments in ``sys.argv``."""
    return [sys.executable, "-P", __file__, module, *arguments]


@contextmanager
def safe_path() -> Iterator[None]:
    """Let no Python that is started in this block, such as Dask's workers, import from the working directory."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        os.environ.pop("PYTHONSAFEPATH")
        if before is not None:
            os.environ["PYTHONSAFEPATH"] = before


def _main() -> None:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec = spec_from_file_location(os.path.basename(package), os.path.join(package, "__init__.py"))
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    if (folder := os.path.dirname(package)) not in sys.path:
        sys.path.append(folder)  # for processes that this one starts: a checkout need not be installed
    import_module(sys.argv.pop(1)).main()


if __name__ == "__main__":
    _main()
