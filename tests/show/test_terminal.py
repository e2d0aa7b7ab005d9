import io
import math
import re
import sys
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.buckets import Breakdown
from dask_efficiency.report.sections.report import document
from dask_efficiency.show.document import Document, Share, Table, section
from dask_efficiency.show.drawn_buckets import COLOURS
from dask_efficiency.show.terminal import BAR_LENGTH, BLOCKS, bar_cells, plain, renderables, show, wrapped
from tests.report.samples import HOSTILE_NAMES, breakdowns, by_hand, report_of, reports, seconds, waiting_for_the_gil
from tests.report.test_report_page import HOSTILE


def test_three_percent_of_an_eighty_column_bar_are_two_cells_and_three_eighths() -> None:
    bar = bar_cells([97, 3], 80)
    # 0.03 * 640 = 19.2 eighths
    assert [cell.left for cell in bar].count(1) == 2
    assert (bar[77].left, bar[77].right, bar[77].eighths) == (0, 1, 5)
    assert bar[77].character == BLOCKS[5] == "▋"


@given(st.lists(st.integers(0, 10**12), max_size=17), st.integers(1, 200))
def test_a_bar_fills_its_width_in_the_order_of_its_parts(weights: list[int], width: int) -> None:
    bar = bar_cells(weights, width)
    assert len(bar) == (width if sum(weights) else 0)
    order = [part for cell in bar for part in (cell.left, cell.right)]
    assert order == sorted(order)
    assert all(1 <= cell.eighths <= 8 and (cell.eighths == 8) == (cell.left == cell.right) for cell in bar)


def test_where_three_parts_meet_in_a_cell_the_two_longest_share_it() -> None:
    (cell,) = bar_cells([4, 1, 3], 1)
    assert (cell.left, cell.right, cell.eighths) == (0, 2, 5)


class Screen(io.TextIOWrapper):
    """A terminal as far as a stream can tell."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)

    def isatty(self) -> bool:
        return True

    def shown(self) -> str:
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode(self.encoding)


def rich_text(shown: Any, width: int, colours: str | None = None, encoding: str = "utf-8") -> str:
    """A document, a whole report, or any other value as rich prints it."""
    console = pytest.importorskip("rich.console")
    screen = Screen(encoding)
    printer = console.Console(file=screen, width=width, color_system=colours, legacy_windows=False)
    whole = document(shown) if isinstance(shown, EfficiencyReport) else shown
    of_document = isinstance(whole, Document)
    printer.print(console.Group(*renderables(whole, printer, printer.options)) if of_document else whole)
    return screen.shown()


def render_plain(report: EfficiencyReport, width: int = 80) -> str:
    return plain(document(report), width)


def table_of(text: str) -> dict[str, list[str]]:
    """The table of lost time in a rendered text: figures by label, each ending where its head ends."""
    lines = iter(re.sub(r"\x1b\[[0-9;]*m", "", text).replace("■", " ").splitlines())
    heads = next(line for line in lines if line.lstrip().startswith("lost time by cause"))
    ends = [match.end() for match in re.finditer(r"\S+( \S+)*", heads)][1:]
    rows: dict[str, list[str]] = {}
    while "total" not in rows:
        line = next(lines)
        if line.strip(" -─"):
            rows[line.split()[0]] = [line[:end].rpartition(" ")[2] for end in ends]
    return rows


def assert_it_adds_up(text: str, columns: int) -> None:
    rows = table_of(text)
    for column in range(columns):
        *parts, total = [Decimal(figures[column] or "0") for figures in rows.values()]
        assert sum(parts) == total


def test_the_report_worked_out_by_hand_as_plain_text() -> None:
    assert render_plain(by_hand()).splitlines()[:25] == [
        "a run",
        "2 workers, 4 threads, a window of 5.0 s; tasks: 12 succeeded, 1 failed",
        "",
        "5.0 s, of which up to 750 ms can be saved (2 workers x 2 threads).",
        "",
        "1. Spilling to disk: saves up to 750 ms. Tasks of load",
        "   Give workers more memory, make partitions smaller, or persist less.",
        "2. No work on the cluster, on the client, mostly its upload: saves up to 500 ms.",
        "   Keep large objects out of graphs: load them in tasks, or send them ahead by",
        "   client.scatter.",
        "3. Tasks failed: saves up to 250 ms. Tasks of sum",
        "   Read the tracebacks: each retry costs the whole task again.",
        "",
        # of 78 cells 45.9, 13.8, 9.2, 4.6 and 4.6
        "[" + 46 * "#" + 14 * "s" + 9 * "n" + 5 * "f" + 4 * "." + "]",
        "# thread-cpu 58.8 %  s spill 17.6 %  n thread-noncpu 11.8 %  f failed 5.9 %",
        ". idle 5.9 %",
        "",
        "More findings",
        "  Threads idle: saves up to 250 ms. 3.8 of 4 threads had a task: there were too",
        "  few at a time, or a busy scheduler.",
        "  Tasks off the CPU, for no known reason: 2.0 s of thread time. Tasks of sum.",
        "  See what they wait for: I/O, sleep, a lock, the GIL, or a library's own",
        "  threads at work.",
        "",
        "Lost time",
    ]


@given(st.lists(breakdowns, min_size=1, max_size=4), st.floats(0.001, 1e6), st.sampled_from([60, 80, 140]))
def test_the_numbers_on_a_plain_screen_add_up(workers: list[Breakdown], wall: float, width: int) -> None:
    report = report_of(*workers, cluster_seconds=wall, price_per_worker_hour=2.0, nthreads={"w0": 4})
    if report.thread_seconds:
        assert_it_adds_up(render_plain(report, width), columns=4)


@pytest.mark.parametrize("width", [60, 80, 140])
@pytest.mark.parametrize("colours", [None, "truecolor"])
def test_the_numbers_on_a_rich_screen_add_up(width: int, colours: str | None) -> None:
    third = seconds(thread_cpu=10 / 3, spill=10 / 3, idle=10 / 3, failed=1e-5, overhead=0.049, running=0.35)
    for report in (by_hand(), report_of(third, price_per_worker_hour=7.0, nthreads={"w0": 1})):
        assert_it_adds_up(rich_text(report, width, colours), columns=3)


@given(reports, st.sampled_from([1, 60, 80, 140]))
def test_plain_text_of_any_report_is_ascii_without_trailing_spaces(report: EfficiencyReport, width: int) -> None:
    text = render_plain(report, width)
    assert all(" " <= character <= "~" or character == "\n" for character in text)
    assert not any(line.endswith(" ") for line in text.split("\n"))
    assert not text.endswith("\n")


@pytest.mark.parametrize("width", [80, 140])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    hostile = {name: seconds(thread_cpu=2, gpu=1, spill=1, cancelled=1) for name in HOSTILE_NAMES}
    report = by_hand(by_prefix=hostile, by_worker=hostile, not_measured={"w": "x" * 999}, details={"y" * 99: 1.0})
    assert max(map(len, render_plain(report, width).splitlines())) <= width
    cells = pytest.importorskip("rich.cells")
    assert max(map(cells.cell_len, rich_text(report, width).splitlines())) <= width


def test_hostile_names_do_not_reach_the_terminal() -> None:
    report = by_hand(**HOSTILE | {"name": "\x1b]0;title\x07"})
    for text in (render_plain(report), rich_text(report, 140)):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert r"\x1b[31mred\x1b[0m" in text
        assert "[bold]markup[/bold][/]" in text


@pytest.mark.parametrize("only", [{}, {"no_work": 5}, {"running": 5}, {"unmeasured": 5}])
def test_a_special_case_shows_its_headline_everywhere(only: dict[str, float]) -> None:
    report = report_of(*([seconds(**only)] if only else []))
    assert " ".join(render_plain(report, 200).split()).count(report.headline) == 1
    assert report.headline in rich_text(report, 200)


def test_an_empty_report_is_three_lines() -> None:
    head = "a run\n0 workers, a window of 5.0 s"
    assert render_plain(report_of()) == f"{head}\n\nNo worker was there in 5.0 s."


def test_causes_are_indented_below_their_bucket() -> None:
    lines = [line[2:45] for line in render_plain(waiting_for_the_gil()).splitlines()]
    start = lines.index("thread-noncpu           23.0     2.9   26.1")
    assert lines[start + 1 : start + 5] == [
        "  gil                   17.2     2.2   19.5",
        "  file                   3.1     0.4    3.5",
        "  core                   2.0     0.2    2.3",
        "  3 more                 0.7     0.1    0.8",
    ]
    for colours, mark, blank in ((None, "", ""), ("truecolor", "■ ", "  ")):
        text = re.sub(r"\x1b\[[0-9;]*m", "", rich_text(waiting_for_the_gil(), 80, colours))
        assert re.search(rf"\n  {mark}thread-noncpu +23\.0 .*\n  {blank}  gil +17\.2 ", text)


def test_the_reason_for_unknown_causes_stands_below_the_table() -> None:
    report = waiting_for_the_gil(causes_by_worker={}, not_sampled={"a": "no /proc", "b": "no /proc"})
    assert "\n  Why threads waited is not known: no /proc\n" in render_plain(report)
    assert "Why threads waited is not known: no /proc" in rich_text(report, 120)
    assert "Why threads" not in render_plain(waiting_for_the_gil())


@pytest.mark.parametrize("colours", [None, "standard", "256", "truecolor"])
def test_a_bar_is_of_blocks_in_enough_colours_and_otherwise_of_letters(colours: str | None) -> None:
    text = rich_text(by_hand(), 80, colours)
    of_blocks = colours in ("256", "truecolor")
    assert ("█" in text) is of_blocks
    assert ("[####" in text) is ("# thread-cpu 58.8 %" in text) is not of_blocks


def test_no_two_buckets_look_the_same_in_256_colours() -> None:
    color = pytest.importorskip("rich.color")
    seen = {color.Color.parse(colour).downgrade(color.ColorSystem.EIGHT_BIT).number for colour in COLOURS.values()}
    assert len(seen) == len(COLOURS)


def test_an_ascii_console_gets_the_plain_text() -> None:
    shown = rich_text(by_hand(), 80, encoding="ascii").splitlines()
    assert [line.rstrip() for line in shown] == render_plain(by_hand(), 80).splitlines()


def test_the_representation_is_a_line_and_the_printed_text_the_first_screen() -> None:
    assert repr(by_hand()) == f"<EfficiencyReport 'a run': {by_hand().headline}>"
    first, whole = str(by_hand()).splitlines(), render_plain(by_hand()).splitlines()
    assert first[:14] == whole[:14]
    assert len(first) <= 24
    assert "report.show()" in " ".join(first[-3:])


def test_sections_are_shown_by_their_titles(capsys: pytest.CaptureFixture[str]) -> None:
    titles = ("Workers", "Client phases", "lost time by cause")
    for asked, shown in ((("workers", "Client phases"), [True, True, False]), ((), [True, True, True])):
        by_hand().show(*asked)
        printed = capsys.readouterr().out
        assert [title in printed for title in titles] == shown
    with pytest.raises(ValueError, match=r"'Pies' is no section of this report; expected one of \['client phases'"):
        by_hand().show("Pies")


@pytest.mark.parametrize("without", ["", "terminal", "rich", "unicode", "colour"])
def test_a_report_is_in_colour_on_a_terminal_and_plain_without(without: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not without:
        pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "dumb" if without == "colour" else "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    if without == "rich":
        monkeypatch.setitem(sys.modules, "rich.console", None)
    screen: Any = io.StringIO() if without == "terminal" else Screen("ascii" if without == "unicode" else "utf-8")
    show(document(by_hand()), screen)
    text = screen.getvalue() if without == "terminal" else screen.shown()
    if without:
        assert text.splitlines() == render_plain(by_hand(), 80).splitlines()
    else:
        assert "\x1b[" in text


@pytest.mark.parametrize("width", range(40, 120, 3))
def test_no_line_ends_within_a_word_with_a_hyphen(width: int) -> None:
    assert not any(line.endswith("-") for line in wrapped(by_hand().headline, width))


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("colours", [None, "truecolor"])
def test_bars_are_shorter_on_a_narrow_screen_and_never_cut(width: int, colours: str | None) -> None:
    name = "(between operators: Python, or nothing recorded)"
    shares = (1.0, 0.5, 0.25)
    table = Table(("name", "time"), tuple((name, "10.2") for _ in shares), drawings=tuple(map(Share, shares)))
    with_table = Document("t", "c", "v", (section("s", table),))
    text = plain(with_table, width) if colours is None else rich_text(with_table, width, colours)
    bars = [len(found) for found in re.findall("[#█]+", text)]
    assert bars == [math.ceil(bars[0] * share) for share in shares]
    assert bars[0] == (BAR_LENGTH if width == 120 else bars[0]) <= BAR_LENGTH


BARS = section(
    "Table",
    "A sentence.",
    Table(("name", "time"), (("a", "1"), ("b", "2")), drawings=(Share(1.0), Share(0.5))),
    section("Moves", Table(("name", "moved", ""), (("a", "onto the path", "new"),), words=(0, 1, 2))),
    section("Folded", "Whoever wants to know.", folded=True),
)
DOCUMENT = Document("Title", "Context", "It took long", (BARS,), ("That is all.",))


def test_everything_not_folded_is_shown_in_order_with_a_full_stop_after_the_headline() -> None:
    before = ["Title", "Context", "It took long.", "Table", "A sentence."]
    for text, bar in ((plain(DOCUMENT), "####"), (rich_text(DOCUMENT, 60), "████")):
        places = [text.index(words) for words in (*before, bar, "Moves", "onto the path  new", "That is all.")]
        assert places == sorted(places)
        assert "Whoever" not in text
    assert rich_text(DOCUMENT, 60, encoding="ascii").isascii()


def test_without_a_context_there_is_no_line_for_it_and_no_width_is_too_narrow() -> None:
    without = Document("Title", "", "Verdict", ())
    assert plain(without) == plain(without, 1) == "Title\n\nVerdict."
    assert rich_text(without, 60) == "Title\nVerdict.\n"
    assert plain(DOCUMENT, 1) == plain(DOCUMENT, 40)
