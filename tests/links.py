"""Links of another user's, for those who cannot make any."""

import os
import stat

import pytest


def links_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all links be another user's."""
    original = os.lstat

    def lstat(path: str) -> os.stat_result:
        about = original(path)
        if not stat.S_ISLNK(about.st_mode):
            return about
        return os.stat_result((*about[:4], about.st_uid + 1, *about[5:]))

    monkeypatch.setattr(os, "lstat", lstat)
