import re
from dataclasses import replace
from html import escape

import pytest

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals, KernelTotals
from dask_efficiency.report.sections.gpu import gpu_notes, gpus, short_time
from dask_efficiency.report.sections.report import notes
from dask_efficiency.show.document import PAGE, Document, Section
from dask_efficiency.show.drawn_buckets import GPU_COLOURS
from dask_efficiency.show.figures import NAME_LENGTH
from dask_efficiency.show.html.render import fragment
from tests.report.samples import HOSTILE_NAMES, KERNEL, SECOND, by_hand, gpu_totals, with_gpus
from tests.report.test_report_page import Reader


def parts(report: EfficiencyReport) -> tuple[Section, ...]:
    """The section of the GPUs, and those in it."""
    whole = gpus(report)
    return (whole, *whole.sections)


def section(title: str, **fields: object) -> Section:
    (found,) = [part for part in parts(with_gpus(**fields)) if part.title == title]
    return found


def test_a_report_without_gpus_has_no_such_section() -> None:
    assert gpus(by_hand()).blocks == ()
    assert gpu_notes(by_hand()) == ()
    assert gpus(by_hand(gpu={"a": GpuTotals()})).blocks == ()
    assert "GPU" not in repr(by_hand())


def test_the_activity_of_gpus_is_in_sentences() -> None:
    lines = section("GPUs").lines
    assert lines[0] == "kernels ran 30 % of the time, copies alone 5.0 %, and the 2 GPUs were idle 65 %"
    waited = "4.0 thread-seconds while kernels of their own ran (gpu), and for 1.5 thread-seconds while none did"
    assert lines[1] == f"tasks waited for {waited}"
    assert lines[2].startswith("of the work on the GPUs, 300 ms ran while the thread of its task did something else")
    assert lines[2].endswith(", and 200 ms ran after its task had ended")
    assert lines[3].startswith("device parallel efficiency 0.300 = load balance 0.750 x communication 0.800 x orch")
    # 6 s of CPU, 4 s of gpu and 1.5 s of waiting
    assert lines[4].startswith("device offload efficiency 0.522")
    # only poor factors get advice
    assert any(line.startswith("load balance: ") for line in lines)
    assert not any(line.startswith("communication: ") for line in lines)


def test_each_gpu_has_a_row_that_adds_up() -> None:
    part = section("GPUs")
    assert part.rows[0] == ("H100 80GB HBM3 GPU-1f0c2d34", "a", "40.0", "10.0", "50.0", "10.0 s")
    thirds = DeviceTotals("x", elapsed=3, kernels=1, copies=1, idle=1, unattributed=2)
    rows = section("GPUs", gpu={"a": gpu_totals(devices=(thirds,))}).rows
    assert sum(float(cell) for cell in rows[0][2:5]) == pytest.approx(100.0)


def many(count: int) -> dict[str, GpuTotals]:
    """A worker with a GPU for each share of kernels in per cent, from 0 on."""
    devices = [DeviceTotals(f"GPU-{i:08}-x", "", 100, i, idle=100 - i, unattributed=i) for i in range(count)]
    return {f"w{i}": gpu_totals(devices=(device,), kernels=()) for i, device in enumerate(devices)}


def test_of_a_hundred_gpus_the_least_busy_are_listed() -> None:
    part = section("GPUs", gpu=many(100))
    assert [row[1] for row in part.rows] == ["w0", "w1", "w2", "w3", "w4"]
    assert part.lines[-1].startswith("share of kernels: min 0 %, median 50 %, max 99 %; the 5 of 100 with")


def test_gpu_time_by_prefix_adds_up_with_time_of_no_task() -> None:
    shown = (("train", "5.50", "78.6"), ("load", "1.00", "14.3"), ("(no task)", "0.50", "7.1"))
    assert section("GPU time by prefix").rows == shown


def test_kernels_have_short_names_launches_and_a_mean_and_those_beyond_the_eighth_are_one_row() -> None:
    part = section("GPU kernels by time")
    assert part.rows[1] == ("triton_poi_fused_add_0", "train", "500", "0.60", "10.0", "1.2 ms")
    assert part.rows[0][0].startswith("vectorized_elementwise")
    assert part.rows[2][:2] == ("(other kernels)", "")

    kernels = tuple(KernelTotals("p", f"k{i}", 1, 1000 - i) for i in range(12))
    part = section("GPU kernels by time", gpu={"a": gpu_totals(kernels=kernels, kernel_ns=12_000)})
    assert [row[0] for row in part.rows] == [*(f"k{i}" for i in range(7)), "(other kernels)"]
    assert part.rows[-1][2] == "5"
    # a short duration is in microseconds
    assert [short_time(ns) for ns in (3_400, 0, 999_900, 2e9)] == ["3.4 us", "0.0 us", "1.0 ms", "2.0 s"]


def notes_of(**fields: object) -> str:
    return " ".join(gpu_notes(with_gpus(gpu={"a": gpu_totals(**fields)})))


def test_reasons_for_uncertain_and_missing_figures_are_noted() -> None:
    whole = {"attributed_ns": 4 * SECOND}
    assert notes_of(**whole) == ""
    assert notes_of().startswith("10 % of the kernel time could not be attributed to tasks")
    assert "upper bound on worker a" in notes_of(meter="torch-events", bounds={"train": SECOND}, **whole)
    assert "7 records of GPU work were lost" in notes_of(dropped=7, **whole)
    assert "gave way to a profiler for 2.0 s" in notes_of(gaps=2 * SECOND, **whole)
    assert "3 tasks were booked before" in notes_of(unknown_tasks=3, **whole)
    late = replace(gpu_totals().devices[0], late=SECOND)
    assert "1.0 s of GPU work became known too late" in notes_of(devices=(late,), **whole)
    # a reason why nothing is measured is given once, with the workers
    refused = GpuTotals(description="another profiler is attached")
    report = with_gpus(gpu={"a": refused, "b": refused})
    assert gpus(report).blocks == ()
    assert notes(report).lines == ("GPU time was not measured on 2 of 2 workers (a, b): another profiler is attached",)


def test_a_shared_gpu_is_named_with_its_workers() -> None:
    shared = {"a": gpu_totals(), "b": gpu_totals()}
    (note,) = [note for note in gpu_notes(with_gpus(gpu=shared)) if "several" in note]
    assert note.startswith("GPU H100 80GB HBM3 GPU-1f0c2d34 was used by several workers (a, b)")
    assert [row[1] for row in section("GPUs", gpu=shared).rows] == ["a (shared)", "b (shared)"]
    assert "counts for each" in section("GPU time by prefix", gpu=shared).lines[1]


def test_upper_bounds_have_a_table_of_their_own() -> None:
    totals = gpu_totals(meter="torch-events", devices=(), kernels=(), kernel_ns=0, bounds={"train": 3 * SECOND})
    part = section("GPU time by prefix, at most", gpu={"a": totals})
    assert part.rows == (("train", "3.0 s"),)
    assert section("GPUs", gpu={"a": totals}).rows == ()


def gpu_section(report: EfficiencyReport) -> str:
    return fragment(Document("", "", "", (gpus(report, PAGE),)))


def test_the_bar_of_a_gpu_is_its_time_by_activity_in_colours_that_are_explained() -> None:
    shown = gpu_section(with_gpus())
    first = re.findall(r'<td class="de-stack">(.*?)</td>', shown)[0]
    widths = re.findall(r'width="([\d.]+)%" height="12" fill="(#\w+)"', first)
    assert widths == [("40.0", GPU_COLOURS["kernels"]), ("10.0", GPU_COLOURS["copies"]), ("50.0", GPU_COLOURS["idle"])]
    assert "<title>kernels 40.0 %, copies 10.0 %, idle 50.0 %</title>" in first
    assert '</svg>copies <span class="de-dim">5.0 %</span></span>' in shown
    assert f'title="{escape(KERNEL)}"' in shown  # the whole name of a kernel is a hint
    # also where nothing can be added up
    shared = gpu_section(with_gpus(gpu={"a": gpu_totals(), "b": gpu_totals()}))
    assert f'fill="{GPU_COLOURS["copies"]}"/></svg>copies</span>' in shared
    assert "(shared)" in shared


def test_of_many_gpus_the_least_busy_have_bars_and_all_unfold() -> None:
    shown = gpu_section(with_gpus(gpu=many(PAGE.gpus + 1)))
    assert f"<summary>All {PAGE.gpus + 1} GPUs</summary>" in shown
    assert shown.partition("</pre>")[2].count("GPU-00000000") == 2


def test_hostile_names_of_kernels_prefixes_and_gpus_are_harmless_and_text() -> None:
    for name in HOSTILE_NAMES:
        device = DeviceTotals(name, name, elapsed=2, kernels=1, idle=1, shares={name: 1})
        kernel = KernelTotals(name, name, 1, 1)
        totals = gpu_totals(devices=(device,), kernels=(kernel,), kernel_ns=1, attributed_ns=1, hidden={name: 1})
        for part in parts(with_gpus(gpu={name: totals})):
            for cell in (cell for row in part.rows for cell in row):
                assert cell.isprintable()
                assert len(cell) <= NAME_LENGTH + len(" (shared)")
        shown = gpu_section(with_gpus(gpu={name: totals}))
        assert "<script>alert" not in shown
        assert "<img src=x" not in shown
        Reader(shown)
