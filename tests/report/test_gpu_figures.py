import re

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.gpu.totals import DeviceTotals, GpuTotals, KernelTotals
from dask_efficiency.report.sections import report as sections
from dask_efficiency.report.sections.gpu import gpus
from dask_efficiency.show.colours import GPU_COLOURS
from dask_efficiency.show.document import Document
from dask_efficiency.show.extent import PAGE
from dask_efficiency.show.html.render import fragment, page
from tests.report.samples import HOSTILE_NAMES, KERNEL, by_hand, gpu_totals, with_gpus
from tests.report.test_fragment import Reader


def gpu_section(report: EfficiencyReport) -> str:
    """What a page says of the GPUs."""
    return fragment(Document("", "", "", (gpus(report, PAGE),)))


def test_a_page_without_gpus_has_no_section_of_them() -> None:
    for report in (by_hand(), with_gpus(gpu={"a": GpuTotals(description="no CUPTI here")})):
        assert gpus(report, PAGE).blocks == ()
        assert "<h2>GPUs" not in page(sections.page(report))


def test_the_bar_of_a_gpu_is_its_time_by_activity() -> None:
    shown = gpu_section(with_gpus())
    first = re.findall(r'<td class="de-stack">(.*?)</td>', shown)[0]
    widths = re.findall(r'width="([\d.]+)%" height="12" fill="(#\w+)"', first)
    assert widths == [("40.0", GPU_COLOURS["kernels"]), ("10.0", GPU_COLOURS["copies"]), ("50.0", GPU_COLOURS["idle"])]
    assert "<title>kernels 40.0 %, copies 10.0 %, idle 50.0 %</title>" in first


def test_the_colours_are_explained_where_nothing_can_be_added_up_too() -> None:
    shared = gpu_section(with_gpus(gpu={"a": gpu_totals(), "b": gpu_totals()}))
    assert f'fill="{GPU_COLOURS["copies"]}"/></svg>copies</span>' in shared
    assert "(shared)" in shared
    assert '</svg>copies <span class="de-dim">5.0 %</span></span>' in gpu_section(with_gpus())


def test_the_whole_name_of_a_kernel_is_a_hint() -> None:
    shown = gpu_section(with_gpus())
    assert f'title="{KERNEL.replace("<", "&lt;").replace(">", "&gt;")}"' in shown


def test_of_many_gpus_the_least_busy_have_bars_and_all_unfold() -> None:
    def watched(i: int) -> GpuTotals:
        device = DeviceTotals(f"GPU-{i:08}-x", elapsed=100, kernels=i, idle=100 - i, unattributed=i)
        return gpu_totals(devices=(device,), kernels=())

    many = PAGE.gpus + 1
    shown = gpu_section(with_gpus(gpu={f"w{i}": watched(i) for i in range(many)}))
    assert f"<summary>All {many} GPUs</summary>" in shown
    assert shown.partition("</pre>")[2].count("GPU-00000000") == 2


def test_hostile_names_are_text() -> None:
    for name in HOSTILE_NAMES:
        device = DeviceTotals(name, name, elapsed=2, kernels=1, idle=1, shares={name: 1})
        kernel = KernelTotals(name, name, 1, 1)
        totals = gpu_totals(devices=(device,), kernels=(kernel,), kernel_ns=1, attributed_ns=1, hidden={name: 1})
        shown = gpu_section(with_gpus(gpu={name: totals}))
        assert "<script>alert" not in shown
        assert "<img src=x" not in shown
        Reader(shown)
