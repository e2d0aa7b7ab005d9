"""Figures of who is slow, compared with those that were saved before."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.who_is_slow import Figure, compared, share

NAMED = replace(share("named", 70, 80, 1), part="tasks")
OTHER = Figure("F1", 0.9, 0.85, 0.95, 1, part="metrics")
WORDS = Figure("a run", "w1 (disk)", part="tasks")


@pytest.mark.parametrize(
    ("figures", "printed", "holds"),
    [
        ([NAMED, WORDS], "0 worse than the spread of those before, 0 gone", True),
        ([replace(NAMED, value=0.5), WORDS], "1 worse than the spread of those before, 0 gone", False),
        # of other runs it is still the same figure
        (
            [replace(share("named", 10, 40, 1), part="tasks"), WORDS],
            "1 worse than the spread of those before, 0",
            False,
        ),
        ([NAMED], "0 worse than the spread of those before, 1 gone", False),
        ([NAMED, replace(WORDS, value="nobody")], "0 worse than the spread of those before, 0 gone", True),
    ],
    ids=["the same", "worse", "another number of runs", "gone", "other words"],
)
def test_worse_and_missing_figures_are_counted_of_the_parts_that_ran(
    figures: list[Figure], printed: str, holds: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tmp_path / "before.json"
    before.write_text(json.dumps([asdict(figure) for figure in (NAMED, WORDS, OTHER)]))
    assert compared(figures, before) is holds
    assert printed in capsys.readouterr().out
