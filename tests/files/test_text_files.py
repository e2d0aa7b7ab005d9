from __future__ import annotations

import difflib

import pytest

from dask_efficiency.files import text_files
from dask_efficiency.files.text_files import known_names


def test_the_most_similar_names_come_first() -> None:
    assert known_names("cpv", ["disk", "cpu", "net"]) == "there is: 'cpu', 'disk', 'net'"


def test_of_very_many_names_only_the_first_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def close(name: str, names: list[str], n: int) -> list[str]:
        compared.append(len(names))
        return difflib.get_close_matches(name, names[:10], n)

    monkeypatch.setattr(text_files, "get_close_matches", close)
    assert known_names("n7x", [f"n{i}" for i in range(1_000_000)]).endswith(" and 999990 more")
    assert compared[0] <= 10_000
