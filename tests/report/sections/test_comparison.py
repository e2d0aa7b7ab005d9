from decimal import Decimal
from html import unescape

import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport, compare
from dask_efficiency.accounts.gpu import DeviceTotals
from dask_efficiency.report.compare import Comparison
from dask_efficiency.report.sections.comparison import (
    causes,
    context,
    cost,
    document,
    environment,
    factors,
    page,
    prefixes,
    run,
    sections,
    title,
)
from dask_efficiency.report.values import Amount
from dask_efficiency.show.document import Section
from dask_efficiency.show.figures import ROWS_ON_A_SCREEN
from dask_efficiency.show.html import render
from dask_efficiency.show.terminal import plain
from tests.report.comparison_samples import Side, sides
from tests.report.samples import HOSTILE_NAMES, by_hand, gpu_totals, report_of, seconds, with_gpus
from tests.show.test_terminal import rich_text


def figures(section: Section) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in section.rows}


def two_figures(cell: str) -> tuple[Decimal, Decimal]:
    before, after = cell.split(" -> ")
    return Decimal(before), Decimal(after)


def spilling(spill: float) -> EfficiencyReport:
    return report_of(seconds(thread_cpu=10, spill=spill))


def test_the_title_names_a_few_runs_of_each_side_and_the_context_their_number() -> None:
    assert title(compare([by_hand(name=name) for name in "abcde"], by_hand(name="f"))) == "a, b, c and 2 more -> f"
    assert context(compare(by_hand(), by_hand())).startswith("one run per side")
    assert context(compare(by_hand(), [by_hand()] * 3)) == "medians of 1 run before and 3 after"


def test_the_cost_stands_on_the_first_screen_and_by_cause_in_a_table_of_its_own_that_cuts_no_label() -> None:
    priced = {"nthreads": {"w0": 2}, "price_per_worker_hour": 7200.0, "cluster_seconds": 40.0}
    before, after = (
        report_of(seconds(thread_cpu=100, thread_noncpu=noncpu, waiting_on_data=1), **priced) for noncpu in (11, 31)
    )
    found = compare([before, before], [after, after])
    text = plain(document(found))
    assert "; cost 112.00 -> 132.00\n" in text
    assert figures(cost(found))["thread-noncpu"] == ("11.00", "31.00", "+20.00")
    assert text.count("thread-noncpu ") == 2
    assert "..." not in text
    unpriced = compare(spilling(2), spilling(4))
    assert not cost(unpriced).blocks
    assert "cost" not in context(unpriced)


def test_a_change_within_the_spread_is_marked_and_the_mark_explained() -> None:
    section = causes(compare([spilling(2), spilling(4), spilling(6)], spilling(5)))
    assert figures(section)["spill"][2] == "~+1.0"
    assert section.lines[0].startswith("~ marks")
    assert not any("~" in text for text in causes(compare(spilling(4), spilling(5))).lines)
    beyond = causes(compare([spilling(2), spilling(4), spilling(6)], spilling(19)))
    assert figures(beyond)["spill"][2] == "+15.0"


def test_the_run_has_runtime_efficiency_size_tasks_and_data_that_moved_as_far_as_they_are_known() -> None:
    before = by_hand(moved={"spilled": Amount(3 * 2**20, 3)})
    moved = {"spilled": Amount(2**20, 1), "sent": Amount(5, 1)}
    after = by_hand(cluster_seconds=9.0, tasks={"succeeded": 13, "failed": 1}, moved=moved)
    rows = figures(run(compare(before, after)))
    # 5 s, of which 0.5 s were the client's; then 9 s, all of them work on the cluster
    assert rows["wall clock"] == ("5.00 s", "9.00 s", "+80 %")
    assert rows["work on the cluster"] == ("4.50 s", "9.00 s", "+100 %")
    assert rows["on the client"] == ("0.50 s", "0.00 s", "-100 %")
    assert "without any worker" not in rows
    assert rows["efficiency"] == ("59 %", "59 %", "")
    assert rows["threads"] == ("4", "4", "")
    assert rows["tasks succeeded"] == ("12", "13", "+1")
    assert rows["data spilled"] == ("3.0 MiB", "1.0 MiB", "-2.0 MiB")
    assert rows["data sent"] == ("0 B", "5 B", "+5 B")
    nothing = report_of(seconds(no_work=5), cluster_seconds=0.0)
    unknown = {"wall clock", "work on the cluster", "ideal time", "efficiency"}
    assert not unknown & figures(run(compare(nothing, nothing))).keys()


def test_gpus_are_compared_where_both_sides_have_them() -> None:
    idle = gpu_totals(devices=(DeviceTotals("x", elapsed=10, kernels=1, idle=9, unattributed=1),))
    rows = figures(run(compare(with_gpus(), with_gpus(gpu={"a": idle}))))
    assert rows["GPU kernels"] == ("30 %", "10 %", "-20.0 points")
    assert rows["GPU copies"] == ("5.0 %", "0 %", "-5.0 points")
    assert rows["GPU idle"] == ("65 %", "90 %", "+25.0 points")
    assert not any(row.startswith("GPU") for row in figures(run(compare(with_gpus(), by_hand()))))


def test_factors_are_shown_where_any_has_changed() -> None:
    assert factors(compare(by_hand(), by_hand())).rows == ()
    # 10 of 12 and 10 of 15 thread-seconds are no spill
    assert figures(factors(compare(spilling(2), spilling(5)))) == {"memory": ("0.833", "0.667", "-0.167")}


def test_prefixes_show_the_largest_change_first_new_and_gone_ones_and_of_many_a_few() -> None:
    before = report_of(seconds(), by_prefix={"a": seconds(thread_cpu=4), "old": seconds(failed=3)})
    after = report_of(seconds(), by_prefix={"a": seconds(thread_cpu=9, spill=1), "new": seconds(thread_cpu=2)})
    section = prefixes(compare(before, after))
    assert section.rows == (
        ("a", "4.0 -> 9.0", "+5.0", "0.0 -> 1.0", "+1.0", ""),
        ("old", "0.0 -> 0.0", "0.0", "3.0 -> 0.0", "-3.0", "gone"),
        ("new", "0.0 -> 2.0", "+2.0", "0.0 -> 0.0", "0.0", "new"),
        ("total", "4.0 -> 11.0", "+7.0", "3.0 -> 1.0", "-2.0", ""),
    )
    assert section.lines == ("new: new", "gone: old")
    many = {f"p{i:02}": seconds(spill=i) for i in range(1, 20)}
    section = prefixes(compare(report_of(seconds(), by_prefix={}), report_of(seconds(), by_prefix=many)))
    assert [row[0] for row in section.rows[-3:]] == ["p12", f"{19 - ROWS_ON_A_SCREEN} more prefixes", "total"]


@given(sides, sides)
def test_the_prefixes_add_up_in_every_column(before: Side, after: Side) -> None:
    section = prefixes(compare(before, after))
    if not section.rows:
        return
    *rows, total = section.rows
    for column in (1, 3):
        pairs = [two_figures(row[column]) for row in (*rows, total)]
        changes = [Decimal(row[column + 1]) for row in (*rows, total)]
        assert tuple(map(sum, zip(*pairs[:-1], strict=True))) == pairs[-1]
        assert [first + change for (first, _), change in zip(pairs, changes, strict=True)] == [p[1] for p in pairs]


def test_the_environment_lists_differences_but_not_the_size_which_the_run_has() -> None:
    old = by_hand(environment={"distributed": "2026.1.0", "threads": "4"})
    new = by_hand(environment={"distributed": "2026.8.0", "threads": "8", "x\x1b": "y" * 999})
    assert environment(compare(old, new)).lines[0] == "distributed: 2026.1.0 -> 2026.8.0"
    assert environment(compare(old, new)).lines[1].startswith(r"x\x1b: unknown -> yyy")
    assert len(environment(compare(old, new)).lines) == 2


def hostile(runs: int) -> Comparison:
    """Names that try to break out, everywhere."""
    by_prefix = {name: seconds(thread_cpu=2, spill=i) for i, name in enumerate(HOSTILE_NAMES)}
    texts = dict.fromkeys(HOSTILE_NAMES, "\x1b</script><script>alert(2)</script>")
    before = [by_hand(name=name, environment=texts, notes=HOSTILE_NAMES) for name in HOSTILE_NAMES[:runs]]
    return compare(before, by_hand(by_prefix=by_prefix, tasks=dict.fromkeys(HOSTILE_NAMES, 1), notes=HOSTILE_NAMES))


@pytest.mark.parametrize("runs", [1, 3])
def test_every_name_is_harmless_and_bounded(runs: int) -> None:
    found = hostile(runs)
    shown = [title(found), context(found)]
    for section in sections(found):
        shown += [section.title, *section.lines, *section.table.heads, *(cell for row in section.rows for cell in row)]
    assert all(text.isprintable() or not text for text in shown)
    assert max(map(len, shown)) < 500
    texts, pages = (plain(document(found)), rich_text(found, 140)), (render.page(page(found)), found._repr_html_())
    assert not any(character in text for text in (*texts, *pages) for character in "\x1b\u202e")
    for smuggled in ("<script>alert", "<img", 'onerror=alert(1)>"'):
        assert not any(smuggled in text for text in pages)


def test_a_comparison_of_nothing_has_few_sections_and_no_bars() -> None:
    nothing = compare(report_of(), report_of())
    assert [section.title for section in sections(nothing)] == ["The run"]
    html = render.page(page(nothing))
    assert "Nothing to compare" in html
    assert "<rect" not in html


LONG = compare(
    [report_of(seconds(thread_cpu=1, waiting_on_data=1000 + i), nthreads={"w": 2}) for i in range(3)],
    report_of(seconds(thread_cpu=1, waiting_on_data=1500), by_prefix={"x" * 99: seconds(spill=5)}, nthreads={"w": 4}),
)


def test_the_comparison_worked_out_by_hand_as_plain_text() -> None:
    before = report_of(seconds(thread_cpu=10, spill=2), name="old", cluster_seconds=4.0, window_seconds=4.0)
    after = report_of(seconds(thread_cpu=10, spill=5), name="new", cluster_seconds=5.0)
    assert plain(document(compare(before, after))).splitlines()[:17] == [
        "old -> new",
        "one run per side, so the spread of the runs is unknown",
        "",
        "25 % slower: 4.00 -> 5.00 s; lost time rose by 150 %, 2.0 -> 5.0 thread-seconds.",
        "",
        "1. Grown: spilling to disk: saves up to 1.0 s. 2.0 -> 5.0 thread-seconds",
        "   Give workers more memory, make partitions smaller, or persist less.",
        "",
        "Thread time by cause (thread-s)",
        "  cause   before  after  change  wall s +/-      share, %",
        "  spill      2.0    5.0    +3.0       +1.00  16.7 -> 33.3",
        "  -------------------------------------------------------",
        "  lost       2.0    5.0    +3.0       +1.00  16.7 -> 33.3",
        "  useful    10.0   10.0     0.0        0.00  83.3 -> 66.7",
        "  -------------------------------------------------------",
        "  total     12.0   15.0    +3.0       +1.00",
        "",
    ]


def test_no_line_is_wider_than_eighty_columns_and_everything_is_in_every_renderer() -> None:
    assert max(map(len, plain(document(LONG), 80).splitlines())) <= 80
    assert max(map(len, rich_text(LONG, 80).splitlines())) <= 80
    assert str(LONG) == plain(document(LONG))
    assert LONG._repr_html_() == render.fragment(page(LONG))
    for text in (plain(document(LONG), 300), rich_text(LONG, 300), render.page(page(LONG)), LONG._repr_html_()):
        for words in (LONG.headline, "Mind when comparing", "~ marks", "Thread time by cause", "The run"):
            assert words in unescape(text)
