"""Calls of CUDA's two APIs that launch work or wait for it, by CUPTI's number of each (``cbid``).

Each list has the plain functions and their variants for per-thread default streams (``_ptsz``, ``_ptds``). The numbers
come from ``cupti_runtime_cbid.h`` and ``cupti_driver_cbid.h``. A number never changes its meaning, so the lists hold
for CUDA 12.1 to 13.5: tests/gpu/test_calls.py picks the same calls by name from those headers. Prefetching is left out:
it leaves no record of work on the device.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

#: Effects of a call, in order: launches work and returns at once; copies and waits for the copy; only waits; begins to
#: record a graph, during which launches run nothing; ends the recording.
ASKS, COPIES, WAITS, BEGINS_GRAPH, ENDS_GRAPH = range(1, 6)
#: A launch that takes at least this long, nanoseconds, has waited too: the queue was full, or the memory of the copy
#: was pageable. A launch takes some 5 us.
LONG = 50_000
#: ``ASKS``: kernels, graphs, fills and asynchronous copies. ``WAITS``: synchronisations, and ``cudaFree``, which waits
#: for the device.
_RUNTIME = {
    ASKS: "41-52 142-143 145 161 163 211 214 225-236 243-244 246 250 269-270 272 311-312 430-431 482-485 505-506"
    " 509-512 554-557",
    COPIES: "31-40 144 160 162 215-224 245 249",
    WAITS: "22 126 131 137 165 239 534",
    BEGINS_GRAPH: "315-316 452-453",
    ENDS_GRAPH: "319-320",
}

#: Functions with a second version are left out in their first, which took 32-bit addresses.
_DRIVER = {
    ASKS: "216 218 220 222 224 226 249-254 277 279 281 283 289 291 293 306-307 319 321 411-416 418-433 442 477-478 480"
    " 514-515 652-653 776-779 796-799 837-840",
    COPIES: "276 278 280 282 284-288 290 292 305 318 320 397-410",
    WAITS: "17 121 126 245 440 800",
    BEGINS_GRAPH: "495-496 539-540 720-721",
    ENDS_GRAPH: "497-498",
}


def _table(numbers: Mapping[int, str]) -> NDArray[np.uint8]:
    table = np.zeros(1024, np.uint8)
    for effect, ranges in numbers.items():
        for span in ranges.split():
            first, _, last = span.partition("-")
            assert not table[int(first) : int(last or first) + 1].any(), f"calls {span} have two effects"
            table[int(first) : int(last or first) + 1] = effect
    return table


#: Effect of each call by its number; 0 where it has none here. The last entry stands for all higher numbers.
RUNTIME_TABLE = _table(_RUNTIME)
DRIVER_TABLE = _table(_DRIVER)
#: Numbers for ``cuptiActivityEnableRuntimeApi`` and ``cuptiActivityEnableDriverApi``. Older CUPTIs refuse some.
RUNTIME_CALLS: list[int] = np.flatnonzero(RUNTIME_TABLE).tolist()
DRIVER_CALLS: list[int] = np.flatnonzero(DRIVER_TABLE).tolist()
