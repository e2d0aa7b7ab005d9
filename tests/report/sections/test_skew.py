from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.sections.report import document, page, sections
from dask_efficiency.report.sections.skew import MAX_SENTENCES
from dask_efficiency.report.sections.skew import skew as said
from dask_efficiency.report.sections.stragglers import long_tail
from dask_efficiency.runs.stragglers.long_tail import LongTask
from dask_efficiency.show.document import Section, Table
from dask_efficiency.show.extent import MAX_ROWS, PAGE, SCREEN
from dask_efficiency.show.figures import NAME_LENGTH
from dask_efficiency.show.html.render import fragment
from dask_efficiency.show.html.render import page as html_page
from dask_efficiency.show.terminal.plain import plain
from tests.report.samples import HOSTILE_NAMES, report_of, seconds, skew

SENTENCE = "The largest of 200 join took 21.0 s, 40 times the median; for 19.0 s nothing else ran"
KNOWN = LongTask("join", "('join', 13)", "w1", 200, 0.525, 21.0, 1e6, 20e6)


def tables(found: Section) -> list[Table]:
    return [block for block in found.blocks if isinstance(block, Table)]


def skewed_report(**fields: object) -> EfficiencyReport:
    given = {"skew": {"join": skew(), "even": skew(max_seconds=0.6, max_bytes=2.0**20)}, "cluster_seconds": 40.0}
    return report_of(seconds(thread_cpu=70, idle=90), **(given | fields))


def test_a_prefix_whose_tasks_differ_is_said_in_a_sentence_and_with_its_figures() -> None:
    found = said(skewed_report())
    assert found.title == "Skew"
    assert found.lines == (SENTENCE,)
    times, sizes = tables(found)
    assert times.heads == ("prefix", "tasks", "median", "95 %", "max", "times", "longest task")
    assert times.rows == (("join", "200", "525 ms", "610 ms", "21.0 s", "40x", "('join', 13)"),)
    assert sizes.heads == ("prefix", "tasks", "median", "95 %", "max", "times", "largest result")
    assert sizes.rows == (("join", "200", "1.0 MiB", "1.5 MiB", "40.0 MiB", "40x", "('join', 13)"),)


def test_where_no_tasks_differ_a_screen_says_nothing_and_a_page_folds_the_figures_away() -> None:
    even = skewed_report(skew={"even": skew(max_seconds=0.6, max_bytes=2.0**20)})
    assert not said(even).blocks
    (inner,) = said(even, PAGE).blocks
    assert isinstance(inner, Section)
    assert (inner.title, inner.folded) == ("Tasks by prefix", True)
    assert not said(report_of(), PAGE).blocks


def test_many_prefixes_are_bounded_and_their_names_harmless() -> None:
    names = (*HOSTILE_NAMES, *map(str, range(2 * MAX_ROWS)))
    report = skewed_report(skew={name: skew(longest_key=name, largest_key=name or "x") for name in names})
    for extent in (SCREEN, PAGE):
        found = said(report, extent)
        assert len(found.lines) == MAX_SENTENCES
        for table in tables(found):
            assert len(table.rows) == extent.prefixes
            assert all(len(str(cell)) <= NAME_LENGTH and str(cell).isprintable() for row in table.rows for cell in row)
    inner = said(report, PAGE).sections[0]
    assert inner.title == f"Tasks of {MAX_ROWS} of {len(names)} prefixes"
    assert [len(table.rows) for table in tables(inner)] == [MAX_ROWS, MAX_ROWS]


def test_results_whose_size_nobody_knows_are_in_no_table() -> None:
    unknown = skew(median_bytes=0.0, p95_bytes=0.0, max_bytes=0.0, largest_key="")
    (inner,) = said(skewed_report(skew={"join": unknown}), PAGE).sections
    assert [table.heads[-1] for table in tables(inner)] == ["longest task"]


def test_it_stands_behind_the_long_tail_which_says_what_both_know() -> None:
    report = skewed_report(long_tail=(KNOWN,))
    titles = [part.title for part in sections(report)]
    assert titles.index("Skew") == titles.index("Long tail") + 1
    assert said(report).lines == ()
    assert len(tables(said(report))) == 2
    (line,) = long_tail(report).lines
    assert line.endswith("its input is 20 times as large; for 19.0 s nothing else ran")


def test_terminal_notebook_and_page_show_it() -> None:
    report = skewed_report()
    text = plain(document(report), 80)
    assert all(len(line) <= 80 for line in text.splitlines())
    row = next(line for line in text.splitlines() if line.split()[:2] == ["join", "200"])
    assert row.split()[2:9] == ["525", "ms", "610", "ms", "21.0", "s", "40x"]
    assert SENTENCE in " ".join(text.split())
    for html in (fragment(document(report)), html_page(page(report))):
        assert SENTENCE in html
        assert "largest result" in html
        assert "40.0 MiB" in html
