from __future__ import annotations

from dask_efficiency.simulation.model.listed import listed


def test_a_few_names_are_listed_and_the_rest_is_counted() -> None:
    assert listed([]) == ""
    assert listed([*"abcde"]) == "a, b, c, d, e"
    assert listed([*"abcdefg"]) == "a, b, c, d, e and 2 more"
    assert listed([*"abcdefg"], "prefixes") == "a, b, c, d, e and 2 more prefixes"
