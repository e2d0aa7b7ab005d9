from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency import EfficiencyReport, compare
from dask_efficiency.report.sections.comparison import document
from dask_efficiency.show.terminal import plain
from tests.report.comparison_samples import sides
from tests.report.samples import HOSTILE_NAMES, by_hand, report_of, seconds
from tests.show.test_terminal import rich_text

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


@given(sides, sides, st.sampled_from([1, 60, 80, 140]))
def test_plain_text_is_ascii_without_trailing_spaces(
    before: list[EfficiencyReport], after: list[EfficiencyReport], width: int
) -> None:
    text = plain(document(compare(before, after)), width)
    assert all(" " <= character <= "~" or character == "\n" for character in text)
    assert not any(line.endswith(" ") for line in text.split("\n"))


def test_no_line_is_wider_than_eighty_columns() -> None:
    assert max(map(len, plain(document(LONG), 80).splitlines())) <= 80
    assert max(map(len, rich_text(LONG, 80).splitlines())) <= 80


def test_hostile_names_do_not_reach_the_terminal() -> None:
    hostile = {name: seconds(thread_cpu=2, spill=1) for name in HOSTILE_NAMES}
    found = compare(by_hand(name="\x1b]0;title\x07"), by_hand(by_prefix=hostile, notes=HOSTILE_NAMES))
    for text in (plain(document(found)), rich_text(found, 140)):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_both_renderers_say_the_headline_and_every_section() -> None:
    for text in (plain(document(LONG), 300), rich_text(LONG, 300)):
        assert LONG.headline in text
        assert "Mind when comparing" in text
        assert "~ marks" in text


def test_the_representation_is_the_plain_text() -> None:
    assert str(LONG) == plain(document(LONG))
