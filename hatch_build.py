"""Hatchling's hooks: compiled callbacks of CUPTI and a page for the wheel, and a README that an index can show.

Without a C compiler the wheel is pure, and the package works without CUPTI. An editable installation has the library
beside its source.
"""

from __future__ import annotations

import re
import runpy
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

FOLDER = "dask_efficiency/gpu/cupti"

#: What `dask-efficiency explain` prints.
PAGE = "docs/buckets.md"


class CompiledCallbacks(BuildHookInterface):
    """Compiles ``callbacks.c`` before a wheel is put together."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, into the checkout for an editable installation and elsewhere for a wheel."""
        if self.target_name != "wheel":
            return
        if version != "editable":  # a checkout has it among its docs
            build_data["force_include"][str(Path(self.root, PAGE))] = "dask_efficiency/report/buckets.md"
        # The package itself cannot be imported: what it needs is not installed while it is built.
        build = runpy.run_path(str(Path(self.root, FOLDER, "build.py")))
        name = build["LIBRARY_NAME"]
        self._folder = tempfile.TemporaryDirectory()
        library = Path(self.root if version == "editable" else self._folder.name, FOLDER, name)
        library.parent.mkdir(parents=True, exist_ok=True)
        # What an earlier build has left may be of another source, or not wanted any more.
        library.unlink(missing_ok=True)
        try:
            build["compile_callbacks"](library)
        except build["CannotCompile"] as reason:
            self.app.display_warning(f"dask-efficiency is built without CUPTI: {reason}")
            return
        build_data["pure_python"] = False
        # It is no module of Python's, so that one library serves all versions of Python.
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        if version != "editable":
            build_data["force_include"][str(library)] = f"{FOLDER}/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        if self.target_name == "wheel":
            self._folder.cleanup()


class ReadmeWithoutDeadLinks(MetadataHookInterface):
    """Sets the project's description, which is read where no file of the repository is at hand."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Take the README without its pictures, and with the text of its links in place of those that are relative."""
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        readme = re.sub(r"^!\[[^]]*\]\((?!https:)[^)]*\)\n\n?", "", readme, flags=re.MULTILINE)
        readme = re.sub(r"\[([^]]*)\]\((?!https:)[^)]*\)", r"\1", readme)
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
