"""Explanations of findings, from the documentation."""

import pytest
from click.testing import CliRunner

from dask_efficiency.accounts.buckets import CAUSE_NAMES, FINALIZED
from dask_efficiency.cli import main
from dask_efficiency.report.explanations import as_lines, explain, explanations, titles
from dask_efficiency.report.kinds import BESIDE
from dask_efficiency.report.recipes import known_recipes


def explained(*name: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["explain", *name])
    return result.exit_code, result.output


@pytest.mark.parametrize("kind", [*FINALIZED, *CAUSE_NAMES, *BESIDE, "slow-worker"])
def test_every_bucket_every_cause_and_every_other_finding_is_explained(kind: str) -> None:
    found = explain(kind)
    assert found.title.partition(":")[0] == kind
    assert found.blocks
    assert not any(text.startswith("#") or "](" in text or ")=" in text for text in found.lines)


@pytest.mark.parametrize("kind", titles())
def test_the_title_that_a_screen_shows_is_enough(kind: str) -> None:
    shared = [other for other, title in titles().items() if title == titles()[kind] and "/" not in other]
    if len(shared) > 1:
        with pytest.raises(ValueError, match="is several kinds; expected one of "):
            explain(titles()[kind])
    else:
        # a bucket of which the cause is unknown has the title of that cause
        assert explain(f"{titles()[kind]}: ").title.partition(":")[0] in (kind, *shared)


def test_a_part_of_a_title_or_a_cause_alone_is_enough_where_it_is_one_kinds() -> None:
    assert explain("sleep") == explain("thread-noncpu/sleep") == explain("Sleeping")
    counted = "64 tasks were outstanding when the block ended", "1 task was outstanding when the block ended"
    assert {explain(name).title.partition(":")[0] for name in counted} == {"outstanding"}
    assert explain("the gil").title == "thread-noncpu/gil: Waiting for the GIL"
    assert explain("Slow worker, its disk is slow").title.startswith("slow-worker")
    for name in ("unknown", "waiting for"):
        with pytest.raises(ValueError, match=rf"'{name}' is several kinds; expected one of .*thread-noncpu/"):
            explain(name)
    code, text = explained("spil!")
    assert (
        code,
        "'spil!' is no kind; expected one of busy, busy-again, cancelled, client, computed-first" in text,
    ) == (
        1,
        True,
    )


def test_the_command_prints_sentences_in_the_width_of_the_terminal_and_without_a_name_all_kinds() -> None:
    code, text = explained("waiting", "for", "a", "core")
    assert (code, text) == (0, "\n".join([*as_lines(explain("core"), 80), ""]))
    assert text.startswith("thread-noncpu/core: Waiting for a core\n\nThe thread was ready to run")
    assert "\n- Use more cores. Fewer threads are no slower" in text
    assert max(map(len, text.splitlines())) <= 80
    recipes = [f"{one.name}: {one.title}" for one in known_recipes()]
    assert explained()[1].splitlines() == [*(one.title for one in explanations().values()), "", "Recipes:", *recipes]


def test_rows_of_a_table_are_items_and_a_bucket_names_its_causes() -> None:
    assert "- retired: the scheduler" in explain("lost-worker").lines
    assert explain("overhead").lines[-1].startswith("Its causes: `overhead/hand-over`, `overhead/event-loop`")
