"""Commit of Git that is checked out around a folder, read from its files: no program of the repository's is run."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

#: Bytes of a file of Git's that are read: 30,000 packed references.
_MOST = 2_000_000


def checked_out() -> dict[str, str]:
    """``commit`` of the folder that this program was started in, or else of its main script's; empty outside of Git."""
    script = os.path.dirname(getattr(sys.modules.get("__main__"), "__file__", None) or "")
    found = commit_of(os.getcwd(), script or os.curdir)
    return {"commit": found} if found else {}


def commit_of(*folders: str) -> str:
    """Hash of the commit that is checked out in the first of some folders that is in a repository; empty in none."""
    for folder in folders:
        for place in (here := Path(os.path.abspath(folder)), *here.parents):
            try:
                return _hash_in(place / ".git")
            except (OSError, ValueError):
                continue  # no repository, or none that can be read
    return ""


def _hash_in(git: Path) -> str:
    if git.is_file():  # of a worktree or a submodule
        git = git.parent / _text(git).removeprefix("gitdir: ")
    found = _text(git / "HEAD")
    if found.startswith("ref: "):
        found = _hash_of(found.removeprefix("ref: "), git)
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", found):
        raise ValueError(f"{git}: HEAD is {found!r:.80}; expected a hash")
    return found


def _hash_of(reference: str, git: Path) -> str:
    common = git / _text(git / "commondir") if (git / "commondir").exists() else git
    if (loose := common / reference).is_file():
        return _text(loose)
    packed = (line.split(" ") for line in _text(common / "packed-refs").splitlines())
    return next((words[0] for words in packed if words[1:] == [reference]), "")


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MOST).decode(errors="replace").strip()
