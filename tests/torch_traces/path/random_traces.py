"""Random traces such as Kineto writes, small and valid: threads that ask GPUs for work, and wait for it.

Times are whole microseconds, so that no reader rounds them, and often equal. Work on a stream is in the order in which
it was asked for; a call that waits ends no sooner than what it waits for.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

#: A thread of a program: it yields before each call of CUDA, so that calls of all threads happen in time order.
Body = Iterator[None]

HOST = 4_000
EPOCH = 1_700_000_000_000_000
#: Streams as files number them; one that all work of a rank may be on is 7.
STREAMS = (7, 20, 24)
DATA_LOADING = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
#: Calls that ask for work, the category of the work, and its names.
LAUNCHES = (
    ("cuda_runtime", "cudaLaunchKernel", "kernel", "void gemm<float, 4>(int, float*)"),
    ("cuda_runtime", "cudaLaunchKernel", "kernel", "ncclDevKernel_AllReduce_Sum_f32"),
    ("cuda_runtime", "cudaLaunchKernelExC", "kernel", "elementwise_kernel"),
    ("cuda_driver", "cuLaunchKernel", "kernel", "triton_poi_fused_add_0"),
    ("cuda_runtime", "cudaMemcpyAsync", "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)"),
    ("cuda_runtime", "cudaMemsetAsync", "gpu_memset", "Memset (Device)"),
)
OTHER_CALLS = ("cudaHostAlloc", "cudaMalloc", "cudaGetDevice", "cudaMemcpy")
#: Longer than a gap between two kernels can be that the second one's queue explains.
LONG_GAP = 1_600


@dataclass
class _Program:
    """State that all threads of a process share."""

    chance: random.Random
    #: Events by what they are written after: operators, then calls and their work.
    operators: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    correlation: int = 100_000
    #: By stream, when the last work ends that was asked for.
    ends: dict[int, int] = field(default_factory=dict)
    #: Of each recorded CUDA event its call's correlation, the stream, and when the work before it ends.
    recorded: list[tuple[int, int, int]] = field(default_factory=list)
    streams: tuple[int, ...] = STREAMS[:1]
    #: Whether synchronisations are written (``cuda_sync``).
    syncs: bool = True

    def pause(self) -> int:
        """Microseconds, often none."""
        return self.chance.choice((0, 0, 1, 1, 2, 3, 7, 20))

    def next_correlation(self) -> int:
        self.correlation += 1
        return self.correlation


@dataclass
class _Thread:
    """One thread, at its own time."""

    program: _Program
    tid: int
    now: int

    def add(self, category: str, name: str, start: int, **args: Any) -> None:
        """An event on this thread that ends now."""
        when = {"pid": HOST, "tid": self.tid, "ts": start, "dur": self.now - start}
        operators = category in ("cpu_op", "user_annotation", "python_function")
        events = self.program.operators if operators else self.program.calls
        events.append({"ph": "X", "cat": category, "name": name, **when, "args": args})

    def on_gpu(
        self, category: str, name: str, start: int, stop: int, stream: int, correlation: int, **args: Any
    ) -> None:
        """An event of the GPU; a stream of -1 is all of them."""
        when = {"pid": 0, "tid": stream, "ts": start, "dur": stop - start}
        args = {"device": 0, "context": 1, "stream": stream, "correlation": correlation, **args}
        self.program.calls.append({"ph": "X", "cat": category, "name": name, **when, "args": args})

    def operator(self, names: tuple[str, ...], depth: int) -> Body:
        chance, start = self.program.chance, self.now
        self.now += self.program.pause()
        for _ in range(chance.choice((0, 1, 1, 2, 3)) if depth else 0):
            if chance.random() < 0.45:
                yield from self.operator(names, depth - 1)
            else:
                yield from self.call()
            self.now += self.program.pause()
        kind = chance.choices(("cpu_op", "python_function", "user_annotation"), (12, 2, 1))[0]
        self.add(kind, chance.choice(names), start, **{"External id": self.program.next_correlation()})

    def call(self) -> Body:
        yield
        chance, program = self.program.chance, self.program
        sorts = [self.launch] * 6 + [self.other] + [self.synchronise] * 2
        if program.syncs:
            sorts += [self.record, self.record, self.wait_for_event, self.stream_waits, self.stream_waits]
        chance.choice(sorts)()

    def launch(self) -> None:
        """Ask for work; now and then it is in the file without the call, or the call without it."""
        program, chance, start = self.program, self.program.chance, self.now
        call_category, call, category, name = chance.choice(LAUNCHES)
        stream, correlation = chance.choice(program.streams), program.next_correlation()
        lost = chance.random()
        self.now += chance.choice((1, 2, 5, 9))
        if lost > 0.03:
            self.add(call_category, call, start, correlation=correlation)
        if 0.03 < lost < 0.06:
            return
        gap = chance.choice((0, 0, 1, 2, 4, LONG_GAP if chance.random() < 0.1 else 3))
        begun = max(start + chance.choice((1, 3, 6, 15)), program.ends.get(stream, 0) + gap)
        program.ends[stream] = begun + chance.choice((1, 2, 5, 30, 30, 120))
        self.on_gpu(category, name, begun, program.ends[stream], stream, correlation)

    def other(self) -> None:
        start = self.now
        self.now += self.program.chance.choice((1, 4, 30))
        name = self.program.chance.choice(OTHER_CALLS)
        self.add("cuda_runtime", name, start, correlation=self.program.next_correlation())

    def synchronise(self) -> None:
        stream = self.program.chance.choice((*self.program.streams, None))
        streams = self.program.streams if stream is None else (stream,)
        until = max(self.program.ends.get(one, 0) for one in streams)
        if stream is None:
            self.wait("cudaDeviceSynchronize", "Context Sync", until, -1)
        else:
            self.wait("cudaStreamSynchronize", "Stream Sync", until, stream)

    def wait(self, call: str, sync: str, until: int, stream: int, **args: Any) -> None:
        """A call that ends when something on the GPU has ended."""
        start, correlation = self.now, self.program.next_correlation()
        begun = start + self.program.chance.choice((0, 1))
        ended = max(begun + 1, until + self.program.chance.choice((0, 1)))
        self.now = ended + self.program.chance.choice((0, 0, 1, 2))
        self.add("cuda_runtime", call, start, correlation=correlation)
        if self.program.syncs:
            self.on_gpu("cuda_sync", sync, begun, ended, stream, correlation, cuda_sync_kind=sync, **args)

    def record(self) -> None:
        start, correlation = self.now, self.program.next_correlation()
        stream = self.program.chance.choice(self.program.streams)
        self.now += self.program.chance.choice((1, 2))
        self.add("cuda_runtime", "cudaEventRecord", start, correlation=correlation)
        self.program.recorded.append((correlation, stream, self.program.ends.get(stream, 0)))

    def wait_for_event(self) -> None:
        if not self.program.recorded:
            return
        record, stream, until = self.program.chance.choice(self.program.recorded[-3:])
        source = {"wait_on_stream": stream, "wait_on_cuda_event_record_corr_id": record}
        call = "cudaEventQuery" if until <= self.now else "cudaEventSynchronize"
        self.wait(call, "Event Sync", until, -1, **source)

    def stream_waits(self) -> None:
        """Make the next work on a stream wait for a CUDA event of another one."""
        others = [event for event in self.program.recorded[-3:] if len(self.program.streams) > 1]
        if not others:
            return
        record, source, until = self.program.chance.choice(others)
        stream = self.program.chance.choice([one for one in self.program.streams if one != source])
        start, correlation = self.now, self.program.next_correlation()
        self.now += self.program.chance.choice((1, 2))
        self.add("cuda_runtime", "cudaStreamWaitEvent", start, correlation=correlation)
        waits_on = {"wait_on_stream": source, "wait_on_cuda_event_record_corr_id": record}
        kind = {"cuda_sync_kind": "Stream Wait Event"}
        self.on_gpu("cuda_sync", "Stream Wait Event", start, self.now, stream, correlation, **kind, **waits_on)
        self.program.ends[stream] = max(self.program.ends.get(stream, 0), until)


def _main(thread: _Thread, steps: int, backward: _Thread | None) -> Body:
    """Steps of a training program; the autograd thread works while this one waits for it."""
    chance = thread.program.chance
    for step in range(steps):
        start = thread.now
        if chance.random() < 0.5:
            loading = thread.now
            thread.now += chance.choice((1, 5, 60))
            thread.add("user_annotation", DATA_LOADING, loading)
        for _ in range(chance.choice((1, 2, 3))):
            thread.now += thread.program.pause()
            yield from thread.operator(("aten::forward", "aten::add", "aten::mm"), 3)
        if backward is not None:
            backward.now = thread.now + thread.program.pause()
            yield from backward.operator(("autograd::engine::evaluate_function: MmBackward0", "aten::mm"), 3)
            thread.now = backward.now + thread.program.pause()
        yield from thread.operator(("Optimizer.step", "aten::add"), 2)
        thread.now += 1
        thread.add("user_annotation", f"ProfilerStep#{step + 3}", start)
        thread.now += thread.program.pause()


def _beside(thread: _Thread, count: int) -> Body:
    for _ in range(count):
        yield from thread.operator(("aten::copy_", "aten::empty"), 2)
        thread.now += thread.program.pause()


def random_trace(seed: int) -> dict[str, Any]:
    """A trace with one to three threads, streams and steps; the same for the same seed."""
    chance = random.Random(seed)
    program = _Program(chance, streams=STREAMS[: chance.choice((1, 2, 3))], syncs=chance.random() < 0.8)
    main = _Thread(program, HOST, EPOCH)
    backward = _Thread(program, HOST + 1, EPOCH) if chance.random() < 0.6 else None
    bodies = [(main, _main(main, chance.choice((1, 2, 3)), backward))]
    if chance.random() < 0.5:
        beside = _Thread(program, HOST + 2, EPOCH + program.pause())
        bodies.append((beside, _beside(beside, chance.choice((1, 3, 6)))))
    # A first launch, so that the file has a kernel; the thread that is earliest goes on.
    main.launch()
    while bodies:
        bodies.sort(key=lambda each: max(each[0].now, backward.now if backward and each[0] is main else 0))
        if next(bodies[0][1], True):
            bodies.pop(0)
    events = [*sorted(program.operators, key=lambda event: (event["ts"], -event["dur"])), *program.calls]
    if chance.random() < 0.25:
        chance.shuffle(events)
    # HTA takes position 0 for no event.
    name = {"ph": "M", "name": "process_name", "pid": HOST, "tid": 0, "ts": EPOCH, "args": {"name": "python"}}
    return {"schemaVersion": 1, "traceEvents": [name, *events]}
