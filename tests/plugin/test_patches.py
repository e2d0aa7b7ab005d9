"""What is replaced is still there upstream, as it was when it was replaced; and it is put back."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import distributed.broker
import distributed.core
import distributed.scheduler
import distributed.worker
import pytest
import zict
from dask.array.core import Array
from dask.bag.core import Bag
from dask.base import DaskMethodsMixin
from dask.dataframe.dask_expr._collection import FrameBase
from dask.delayed import Delayed
from distributed import Client, Scheduler, SpecCluster, Worker
from distributed.deploy import Cluster
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.shuffle._buffer import ShardsBuffer
from distributed.shuffle._comms import CommShardsBuffer
from distributed.shuffle._worker_plugin import ShuffleWorkerPlugin
from distributed.spill import SpillBuffer
from distributed.system_monitor import SystemMonitor
from distributed.worker_memory import WorkerMemoryManager
from hypothesis import given
from hypothesis import strategies as st

import dask_efficiency.plugin
from dask_efficiency import efficiency_report
from dask_efficiency.plugin import patches
from dask_efficiency.plugin.patches import Patch, Replacements
from dask_efficiency.plugin.scheduler import loop_meter

# -- what an upgrade of upstream broke -------------------------------------------------------------


#: Patches by what has their places.
OWNED = {
    "scheduler": [
        *(patches.UPDATE_GRAPH, patches.LONG_RUNNING, patches.CLIENT_RELEASES_KEYS, patches.STEAL_RESPONSE),
        patches.TICK,
    ],
    "nothing": [
        *(patches.PLAIN, patches.SERIALIZE, patches.OFFLOAD, patches.READ, patches.WRITE),
        *(patches.MESSAGE, patches.PICKLE, patches.UNPICKLE, patches.STEP),
    ],
    "module": [patches.RUN_TASK, patches.RUN_ACTOR],
    "client": [patches.CLIENT_STARTS, patches.CLIENT_CLOSES],
    "array": [patches.MADE_ARRAY],
    "bag": [patches.MADE],
    "delayed": [patches.MADE],
    "dataframe": [patches.MADE],
    "collection": [patches.COLLECTION_CLASS],
    "cluster": [patches.CLUSTER_CLOSES],
    "cluster of specs": [patches.CLUSTER_CLOSES],
    "shards": [patches.SHUFFLE_MESSAGE],
    "worker": [patches.SHUFFLE_RECEIVE, patches.SHUFFLE_INPUTS_DONE, patches.GET_DATA],
    "monitor": [patches.MEMORY_LOOK],
    "results": [patches.READ_BACK, patches.WRITE_OUT, patches.EVICT],
    "loop": [patches.SELECT],
}


@pytest.fixture(scope="module")
def owners(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Objects of upstream in which originals are replaced, without a cluster."""

    async def make() -> tuple[Any, Any]:
        real = Scheduler(dashboard=False)
        names = ("stream_handlers", "handlers", "periodic_callbacks")
        loop: Any = asyncio.get_running_loop()
        return SimpleNamespace(**{name: getattr(real, name) for name in names}), loop._selector

    scheduler, selector = asyncio.run(make())
    state = SimpleNamespace(nthreads=1)
    handlers: dict[str, Any] = {"get_data": partial(Worker.get_data, None)}
    worker = SimpleNamespace(handlers=handlers, stream_handlers={}, extensions={}, state=state, address="tcp://a")
    ShuffleWorkerPlugin().setup(worker)
    return {
        "scheduler": scheduler,
        "nothing": None,
        "module": distributed.worker,
        "client": Client,
        "array": Array,
        "bag": Bag,
        "delayed": Delayed,
        "dataframe": FrameBase,
        "collection": DaskMethodsMixin,
        "cluster": Cluster,
        "cluster of specs": SpecCluster,
        "shards": ShardsBuffer,
        "worker": worker,
        "results": SpillBuffer(str(tmp_path_factory.mktemp("spilled")), target=1_000),
        "monitor": SystemMonitor(),
        "loop": SimpleNamespace(_selector=selector),
    }


@pytest.mark.parametrize(("owner", "patch"), [(owner, patch) for owner, found in OWNED.items() for patch in found])
def test_each_original_is_in_its_place_and_fits(owners: dict[str, Any], owner: str, patch: Patch) -> None:
    places = list(patch.places(owners[owner]))
    assert places, patch.without
    for place in places:
        assert patch.fits(patches._now(*place)), patch.without


def test_handlers_and_periodic_callbacks_are_looked_up_in_their_places_each_time(owners: dict[str, Any]) -> None:
    scheduler = owners["scheduler"]
    for handlers in (scheduler.stream_handlers, scheduler.handlers):
        assert patches.HANDLER.places((handlers, "op")) == [(handlers, "op")], patches.HANDLER.without
    for periodic in scheduler.periodic_callbacks.values():
        ((owner, name),) = patches.CALLBACK.places(periodic)
        assert callable(vars(owner)[name]), patches.CALLBACK.without
    assert 0 < scheduler.periodic_callbacks["tick"].callback_time < 1_000, "expected milliseconds between two ticks"
    plugin = SchedulerPlugin()
    assert patches.HOOK.places((plugin, "transition")) == [(plugin, "transition")]
    hooks = "".join(map(inspect.getsource, (distributed.scheduler, distributed.broker)))
    for hook in ("transition", *loop_meter._HOOKS):
        assert inspect.isfunction(getattr(SchedulerPlugin, hook, None)), patches.HOOK.without
        assert f"plugin.{hook}(" in hooks, patches.HOOK.without


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (distributed.core.Server, "self.stream_handlers[op]"),
        (distributed.core.Server, "self.handlers[op]"),
        (asyncio.BaseEventLoop._run_once, "self._selector.select(timeout)"),
        (distributed.Worker, " _run_task,\n"),  # with arguments by position
        (distributed.Worker, " _run_actor,\n"),
        (WorkerMemoryManager.memory_monitor, "worker.monitor.get_process_memory()"),
        (CommShardsBuffer.__init__, "self.send = send"),  # by which the worker of a buffer is known
    ],
)
def test_upstream_calls_through_the_places_that_are_patched(kind: Any, text: str) -> None:
    assert text in inspect.getsource(kind)


def test_buffers_call_their_hooks_with_these_arguments(owners: dict[str, Any]) -> None:
    assert vars(CommShardsBuffer).get("process") is None
    buffer = owners["results"]
    assert isinstance(buffer, zict.Buffer), patches.READ_BACK.without
    for callbacks, i in patches.WRITE_OUT.places(buffer):
        assert {"key", "value"} <= inspect.signature(callbacks[i]).parameters.keys(), patches.WRITE_OUT.without
    assert not inspect.signature(buffer.evict).parameters, patches.EVICT.without


def test_methods_of_a_client_for_a_graph() -> None:
    for name in ("get", "compute", "persist", "submit", "map", "_graph_to_futures"):
        method = getattr(Client, name, None)
        assert inspect.isfunction(method), f"Client.{name}: {patches.CLIENT_CLASS.without}"
        assert not inspect.iscoroutinefunction(method)
    assert inspect.iscoroutinefunction(Client._gather), patches.CLIENT_CLASS.without
    # Its class is replaced on the object itself.
    assert "__slots__" not in vars(Client)


def test_the_answer_to_a_scrape() -> None:
    pytest.importorskip("prometheus_client", reason="Dask answers no scrape without it")

    async def routes() -> list[Any]:
        async with (
            Scheduler(port=0, host="127.0.0.1", dashboard=False, dashboard_address=":0") as scheduler,
            Worker(scheduler.address, dashboard=False, dashboard_address=":0") as worker,
        ):
            return [list(patches.METRICS.places(server.http_application)) for server in (scheduler, worker)]

    for ((route, name),) in asyncio.run(routes()):
        handler = getattr(route, name)
        assert patches.METRICS.fits(handler), patches.METRICS.without
        assert route.matcher.regex.match("/metrics")


PATCHES = {name: value for name, value in vars(patches).items() if isinstance(value, Patch)}


@pytest.mark.parametrize(("name", "patch"), PATCHES.items())
def test_every_patch_has_its_reasons_and_a_test_here(name: str, patch: Patch) -> None:
    assert all((patch.what, patch.why, patch.without, patch.until, patch.checked))
    assert f"patches.{name}" in Path(__file__).read_text()


def replacements_in(tree: ast.AST) -> Iterable[ast.AST]:
    """Where something is set on an object by name, in its dictionary, or as its class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            yield node
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            text = ast.unparse(target)
            if text.endswith(".__class__") or any(part in text for part in ("vars(", "__dict__[", "_handlers[")):
                yield node


def test_nothing_is_replaced_in_another_file() -> None:
    (folder,) = dask_efficiency.plugin.__path__
    found = {
        path.name for path in Path(folder).rglob("*.py") if any(replacements_in(ast.parse(path.read_text("utf-8"))))
    }
    assert found == {"patches.py"}


# -- how it is replaced and put back ---------------------------------------------------------------


class Upstream:
    """Things that are replaced: an attribute of its class, of its own, of a dictionary and of a list."""

    def __init__(self) -> None:
        self.own = "own"
        self.handlers = {"op": "handler"}
        self.callbacks = ["first", "second"]

    inherited = "inherited"

    def state(self) -> tuple[Any, ...]:
        return type(self), dict(vars(self)), dict(self.handlers), list(self.callbacks)


class Closed:
    """Takes no attributes; one is always its class's."""

    __slots__ = ()

    @property
    def fixed(self) -> str:
        return "fixed"


class Fixed(Closed):
    """Takes others."""


def patch_of(places: Callable[[Any], Any]) -> Patch:
    return Patch("what", "why", "without", "until", places, fits=lambda _: True)


KINDS = {
    "an attribute of its class": patch_of(lambda it: [(it, "inherited")]),
    "an attribute of its own": patch_of(lambda it: [(it, "own")]),
    "an item of a dictionary": patch_of(lambda it: [(it.handlers, "op")]),
    "items of a list": patch_of(lambda it: [(it.callbacks, 0), (it.callbacks, 1)]),
    "its class": patch_of(lambda it: [(it, "__class__")]),
}


class Over(str):
    """What is put in place of a text: as functions and classes, and unlike texts, it can be referred to weakly."""


def another(original: Any) -> Any:
    return type("Subclass", (original,), {}) if isinstance(original, type) else Over(f"over {original}")


@pytest.mark.parametrize("patch", KINDS.values(), ids=KINDS)
def test_a_foreign_replacement_over_ours_stays(patch: Patch) -> None:
    upstream = Upstream()
    ours, theirs = Replacements(), Replacements()
    ours.put(patch, upstream, another)
    theirs.put(patch, upstream, another)
    with_theirs = upstream.state()
    ours.put_back()
    assert upstream.state() == with_theirs


@given(st.sampled_from(list(KINDS.values())), st.permutations(range(4)))
def test_upstream_is_as_before_in_whatever_order_replacements_are_put_back(patch: Patch, order: list[int]) -> None:
    upstream = Upstream()
    before = upstream.state()
    layers = [Replacements() for _ in order]
    for layer in layers:
        assert layer.put(patch, upstream, another) == len(patch.places(upstream))
    assert upstream.state() != before
    for _ in layers:
        for i in order:
            layers[i].put_back()
    assert upstream.state() == before


@pytest.mark.parametrize(
    "places",
    [
        lambda it: [(it, "renamed")],
        lambda it: [(it.renamed, "op")],
        lambda it: [(it.handlers, "renamed")],
        lambda it: [(it.handlers["renamed"], "callback")],
    ],
    ids=["an attribute", "what has it", "an item", "an item that has it"],
)
def test_renamed_attributes_are_left_alone(places: Callable[[Any], Any]) -> None:
    upstream = Upstream()
    before = upstream.state()
    replacements = Replacements()
    assert replacements.put(patch_of(places), upstream, pytest.fail) == 0
    replacements.put_back()
    assert upstream.state() == before


def test_inherited_attributes_are_replaced_where_they_are_defined() -> None:
    class Derived(Upstream):
        pass

    assert Replacements().put(patch_of(lambda it: [(it, "inherited")]), Derived, another) == 0
    assert "inherited" not in vars(Derived)
    replacements = Replacements()
    assert replacements.put(patch_of(lambda it: [(it, "inherited")]), Upstream, another) == 1
    assert Derived.inherited == "over inherited"
    replacements.put_back()
    assert Derived.inherited == "inherited"


def test_objects_that_allow_no_replacement_are_left_alone() -> None:
    fixed = Fixed()
    assert Replacements().put(patch_of(lambda it: [(it, "fixed")]), fixed, another) == 0
    assert vars(fixed) == {}
    assert Replacements().put(patch_of(lambda it: [(it, "fixed")]), Closed(), another) == 0


# -- on a version that nobody tried --------------------------------------------------------------------


def changed(somebody: Any, elses: Any) -> None:
    """What stands in the place of what a patch was written for."""


@pytest.mark.parametrize("patch", PATCHES.values(), ids=PATCHES)
def test_only_functions_with_the_expected_arguments_fit(patch: Patch) -> None:
    assert not patch.fits(None)
    assert not patch.fits("a text")
    assert patch.fits is callable or not patch.fits(changed)


@pytest.mark.parametrize("optional", [False, True])
def test_a_changed_or_missing_function_is_left_alone_and_reported_until_it_can_be_replaced(optional: bool) -> None:
    upstream = SimpleNamespace(run=changed)
    patch = Patch("it", "why", "that is missing", "until", lambda it: [(it, "run")], lambda _: False, optional)
    assert Replacements().put(patch, upstream, pytest.fail) == 0
    assert upstream.run is changed
    (loss,) = patches.stays_off()
    assert loss.startswith("that is missing: it is not as")
    fitting = replace(patch, fits=callable)
    assert Replacements().put(fitting, upstream, lambda original: lambda *args: None) == 1
    assert not patches.stays_off()
    assert Replacements().put(fitting, SimpleNamespace(), pytest.fail) == 0
    assert bool(patches.stays_off()) is not optional  # which may be absent


@pytest.mark.cluster
def test_a_report_notes_a_patch_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def _run_task(task: Any, data: Any, *rest: Any) -> Any:
        return run_task(task, data, *rest)

    run_task = distributed.worker._run_task
    monkeypatch.setattr(distributed.worker, "_run_task", _run_task)
    with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        with efficiency_report() as report:
            assert client.submit(sum, [1, 2]).result() == 3
        assert distributed.worker._run_task is _run_task
        assert [note for note in report.notes if patches.RUN_TASK.without in note and "_run_task is not as" in note]
