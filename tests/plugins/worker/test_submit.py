"""Users' executors stay what they are, and each worker meters its own calls on them and no others."""

from __future__ import annotations

import asyncio
import copy
import operator
import pickle
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import permutations
from typing import Any

import dask
import pytest
from distributed import Client, Scheduler, Worker
from distributed.utils import _offload_executor, offload

from dask_efficiency import EfficiencyPlugin, snapshot, unregister
from dask_efficiency.plugins.worker.executor import ActorTimer, TaskMeter, ThreadRun
from dask_efficiency.plugins.worker.submit import MeteredSubmit, WorkerCalls
from tests.plugins.tasks import increment, spin
from tests.plugins.watch import near

MANY = (0,) * 1_000_000


class InlineExecutor(Executor):
    """Runs what is submitted at once, in the thread that submits it."""

    def submit(self, fn, /, *args, **kwargs):
        future: Future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


def calls() -> WorkerCalls:
    """What one worker meters."""
    return WorkerCalls({}, TaskMeter(pytest.fail), ActorTimer())


def task_of(table: dict[Any, Any]) -> Callable[[], dict[str, Any]]:
    """A call as upstream submits a task: a closure over the function and its arguments."""
    args = ("spec", {}, table, threading.Lock(), 0.0)

    def func(*args: Any) -> dict[str, Any]:
        return {"op": "task-finished", "thread": threading.get_ident()}

    return lambda: func(*args)


def metered(executor: Executor, table: dict[Any, Any]) -> bool:
    """Whether a task of this worker is metered."""
    return type(executor.submit(task_of(table)).result()["thread"]) is ThreadRun


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_workers_share_an_executor_whoever_goes_first(order):
    executor = InlineExecutor()
    workers = [calls() for _ in range(3)]
    placed = [MeteredSubmit.attach(executor, worker) for worker in workers]
    assert len(set(placed)) == 1
    there = set(range(3))
    for going in order:
        for i, worker in enumerate(workers):
            assert metered(executor, worker.table) == (i in there)
            assert len(worker.tasks.unclaimed()) == (i in there)
            worker.tasks._done.clear()
        placed[going].detach(workers[going])
        placed[going].detach(workers[going])
        there.remove(going)
    assert vars(executor) == {}


def test_who_comes_again_takes_the_place_of_who_was_there():
    executor = InlineExecutor()
    first = calls()
    second = WorkerCalls(first.table, TaskMeter(pytest.fail), ActorTimer())
    placed = MeteredSubmit.attach(executor, first)
    assert MeteredSubmit.attach(executor, second) is placed
    assert placed is not None
    placed.detach(first)
    metered(executor, first.table)
    assert (len(first.tasks.unclaimed()), len(second.tasks.unclaimed())) == (0, 1)
    placed.detach(second)
    assert vars(executor) == {}


def test_a_submit_that_a_user_had_put_there_is_used_and_put_back():
    executor: Any = InlineExecutor()
    seen = []

    def submit(fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        seen.append(fn)
        return InlineExecutor.submit(executor, fn, *args, **kwargs)

    executor.submit = submit
    worker = calls()
    placed = MeteredSubmit.attach(executor, worker)
    assert metered(executor, worker.table)
    assert len(seen) == 1
    assert placed is not None
    placed.detach(worker)
    assert vars(executor) == {"submit": submit}


def test_a_submit_that_a_user_put_over_it_stays():
    executor: Any = InlineExecutor()
    first, second = calls(), calls()
    below = MeteredSubmit.attach(executor, first)
    ours = executor.submit

    def submit(fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return ours(fn, *args, **kwargs)

    executor.submit = submit
    above = MeteredSubmit.attach(executor, second)
    assert below is not None
    assert above is not None
    assert metered(executor, first.table)
    assert metered(executor, second.table)
    below.detach(first)
    above.detach(second)
    assert vars(executor) == {"submit": submit}
    assert not metered(executor, first.table)
    assert not metered(executor, second.table)


class SlotsThreadPoolExecutor:
    """Takes no attributes."""

    __slots__ = ()

    submit = InlineExecutor.submit


class FixedThreadPoolExecutor(InlineExecutor):
    """Has a ``submit`` that is always its class's."""

    @property
    def submit(self):  # type: ignore[override]
        return super().submit


@pytest.mark.parametrize("executor", [SlotsThreadPoolExecutor(), FixedThreadPoolExecutor()])
def test_an_executor_that_takes_no_other_submit_is_left_alone(executor):
    worker = calls()
    assert MeteredSubmit.attach(executor, worker) is None
    assert getattr(executor, "__dict__", {}) == {}
    assert not metered(executor, worker.table)
    assert worker.tasks.unclaimed() == []


def with_an_empty_cell() -> Callable[[], int]:
    if not MANY:
        unset = 0
    return lambda: 7 if MANY else unset


def giving(value: Any) -> Callable[[], Any]:
    """A closure over a value."""
    return lambda: value


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ((int,), 0),
        ((operator.add, 1, 2), 3),
        ((lambda *args: args, {}, {"a": 1}), ({}, {"a": 1})),
        ((with_an_empty_cell(),), 7),
        ((giving(MANY),), MANY),
        ((giving(({}, {"op": 1})),), ({}, {"op": 1})),
    ],
    ids=["builtin", "arguments", "dictionaries", "an empty cell", "a long tuple", "a tuple of dictionaries"],
)
def test_calls_that_are_no_tasks_are_passed_on_as_they_are(call, result):
    seen = []

    class Recorded(InlineExecutor):
        def submit(self, fn, /, *args, **kwargs):
            seen.append((fn, *args))
            return super().submit(fn, *args, **kwargs)

    executor = Recorded()
    worker = calls()
    MeteredSubmit.attach(executor, worker)
    assert executor.submit(*call).result() == result
    assert seen == [call]
    assert list(executor.map(abs, [-1, 2])) == [1, 2]
    assert (worker.tasks.unclaimed(), worker.methods.spent) == ([], 0)


def test_arguments_named_like_its_own_pass_through():
    def echo(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    executor = InlineExecutor()
    MeteredSubmit.attach(executor, calls())
    assert executor.submit(echo, 1, args=2, kwargs=3, self=4, fn=5).result() == (
        (1,),
        {"args": 2, "kwargs": 3, "self": 4, "fn": 5},
    )


def test_a_method_of_an_actor_is_timed_and_no_task():
    with ThreadPoolExecutor(1) as executor:
        worker = calls()
        placed = MeteredSubmit.attach(executor, worker)
        assert executor.submit(lambda *args: sum(args[0]), (1, 2), {}, worker.table).result() == 3
        assert worker.methods.spent > 0
        assert worker.tasks.unclaimed() == []
        assert placed is not None
        placed.detach(worker)


def test_a_copy_of_an_executor_has_its_own_submit_and_needs_no_package():
    executor = InlineExecutor()
    MeteredSubmit.attach(executor, calls())
    travelled = pickle.dumps(executor)
    assert b"dask_efficiency" not in travelled
    for twin in (pickle.loads(travelled), copy.deepcopy(executor)):
        assert twin.submit.__self__ is twin
        assert twin.submit(int).result() == 0


def test_an_executor_that_was_shut_down_says_so_itself():
    executor = ThreadPoolExecutor(1)
    worker = calls()
    MeteredSubmit.attach(executor, worker)
    executor.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(task_of(worker.table))


# -- on workers of this process -------------------------------------------------------------------


@asynccontextmanager
async def client_of(*executors: Any) -> AsyncIterator[tuple[Client, list[Worker]]]:
    """A client of a metered cluster in this process, with a worker of one thread for each executor."""
    async with AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(Scheduler(port=0, dashboard_address=":0"))
        client = await stack.enter_async_context(Client(scheduler.address, asynchronous=True))
        await client.register_plugin(EfficiencyPlugin())
        workers = [
            await stack.enter_async_context(
                Worker(scheduler.address, nthreads=1, executor=executor, name=str(i), dashboard_address=":0")
            )
            for i, executor in enumerate(executors)
        ]
        yield client, workers


@pytest.mark.cluster
def test_the_executor_that_a_user_gave_is_the_worker_s():
    async def run(own: Any) -> None:
        async with client_of(own, "offload") as (client, workers):
            assert workers[0].executor is own
            assert type(workers[0].executor) is ThreadPoolExecutor
            assert workers[1].executor is _offload_executor
            assert workers[1].executors["offload"] is workers[1].executors["default"] is _offload_executor
            for worker in workers:
                assert await client.submit(increment, 1, workers=[worker.address], pure=False) == 2
            assert own._threads
            assert "submit" in vars(own)
        assert "submit" not in vars(own)
        assert "submit" not in vars(_offload_executor)

    with ThreadPoolExecutor(2) as own:
        asyncio.run(run(own))


@pytest.mark.cluster
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("shared", ["offload", "a pool"])
def test_two_workers_share_an_executor_and_either_closes_first(first, shared):
    """The one that stays goes on metering its own tasks, unless the other has shut the executor down."""

    async def run() -> None:
        executor = _offload_executor if shared == "offload" else ThreadPoolExecutor(1)
        async with client_of(*("offload" if shared == "offload" else executor for _ in range(2))) as (client, workers):

            async def spun(i: int) -> float:
                told = await client.submit(spin, 0.1, workers=[workers[i].address], pure=False)
                return float(told["cpu"])

            async def accounts() -> list[Any]:
                rows = (await snapshot(client)).by_worker
                return [rows[str(i)] for i in range(2)]

            told = [await spun(0), await spun(1)]
            rows = await accounts()
            assert [row["thread-cpu"] for row in rows] == [near(cpu) for cpu in told]
            assert vars(executor)["submit"]._workers.keys() == {id(worker.active_threads) for worker in workers}
            await workers[first].close()
            assert vars(executor)["submit"]._workers.keys() == {id(workers[1 - first].active_threads)}
            if shared == "offload":
                more = await spun(1 - first)
                after = await accounts()
                assert after[1 - first]["thread-cpu"] == near(told[1 - first] + more)
                assert after[first]["thread-cpu"] == rows[first]["thread-cpu"]
            await workers[1 - first].close()
        assert "submit" not in vars(executor)

    asyncio.run(run())


@pytest.mark.cluster
def test_calls_that_are_no_tasks_are_not_metered_on_a_worker():
    async def run() -> None:
        async with client_of("offload") as (client, (worker,)):
            meters = worker.plugins["dask-efficiency-worker"].meter._threads.metered
            live: list[Any] = []

            def look() -> int:
                live.extend(meter.live for meter in meters if meter.live)
                return 7

            loop = asyncio.get_running_loop()
            assert await offload(look) == 7
            assert await loop.run_in_executor(worker.executor, look) == 7
            assert await asyncio.wrap_future(worker.executor.submit(look)) == 7
            assert live == []
            assert [run for meter in meters for run in meter.unclaimed()] == []
            row = (await snapshot(client)).by_worker["0"]
            assert row["thread-cpu"] == row["thread-noncpu"] == 0

    asyncio.run(run())


@pytest.mark.cluster
@pytest.mark.parametrize("leaving", ["unregister", "restart", "register again", "remove the plugin", "close"])
def test_nothing_is_left_on_an_executor(leaving):
    async def run(own: Any) -> None:
        async with client_of(own) as (client, (worker,)):
            assert "submit" in vars(own)
            executors = [executor for executor in worker.executors.values() if "submit" in vars(executor)]
            assert executors == list(worker.executors.values())
            if leaving == "unregister":
                await unregister(client)
            elif leaving == "restart":
                await client.restart(timeout=5, wait_for_workers=False)
                await worker.close()
            elif leaving == "register again":
                await client.register_plugin(EfficiencyPlugin(max_prefixes=7))
                assert type(vars(own)["submit"]) is MeteredSubmit
                assert type(vars(own)["submit"]._submit) is not MeteredSubmit
                assert len(vars(own)["submit"]._workers) == 1
                await unregister(client)
            elif leaving == "remove the plugin":
                await worker.plugin_remove(name="dask-efficiency-worker")
            else:
                await worker.close()
            assert [executor for executor in executors if "submit" in vars(executor)] == []

    with ThreadPoolExecutor(1) as own:
        asyncio.run(run(own))


@pytest.mark.cluster
def test_tasks_of_processes_and_of_executors_that_are_left_alone_run_and_are_said_not_to_be_measured():
    async def run(processes: Any) -> None:
        async with client_of({"processes": processes, "fixed": fixed}) as (client, _):
            for name in ("processes", "fixed"):
                with dask.annotate(executor=name):
                    assert await client.submit(increment, 1, pure=False) == 2
            assert "submit" not in vars(processes)
            assert "submit" not in vars(fixed)
            report = await snapshot(client)
            assert "thread-noncpu: CPU not measured" in report.details

    fixed = FixedThreadPoolExecutor()
    with ProcessPoolExecutor(1) as processes:
        asyncio.run(run(processes))
