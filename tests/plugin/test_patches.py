"""What is replaced is still there upstream, as it was when it was replaced; and it is put back."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import distributed.broker
import distributed.core
import distributed.scheduler
import distributed.worker
import pytest
import zict
from distributed import Client, Scheduler, SpecCluster, Worker
from distributed.deploy import Cluster
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.shuffle._buffer import ShardsBuffer
from distributed.shuffle._comms import CommShardsBuffer
from distributed.shuffle._worker_plugin import ShuffleWorkerPlugin
from distributed.spill import SpillBuffer
from hypothesis import given
from hypothesis import strategies as st

import dask_efficiency.plugin
from dask_efficiency import efficiency_report
from dask_efficiency.plugin import patches
from dask_efficiency.plugin.patches import Patch, Replacements
from dask_efficiency.plugin.scheduler import loop_meter

# -- what an upgrade of upstream broke -------------------------------------------------------------


@pytest.fixture(scope="module")
def scheduler() -> SimpleNamespace:
    """As much of a real scheduler as is replaced, without its event loop."""

    async def make() -> SimpleNamespace:
        real = Scheduler(dashboard=False)
        return SimpleNamespace(
            stream_handlers=real.stream_handlers, handlers=real.handlers, periodic_callbacks=real.periodic_callbacks
        )

    return asyncio.run(make())


@pytest.fixture
def spill_buffer(tmp_path: Path) -> SpillBuffer:
    return SpillBuffer(str(tmp_path / "spilled"), target=1_000)


@pytest.mark.parametrize(
    "patch",
    [patches.UPDATE_GRAPH, patches.LONG_RUNNING, patches.CLIENT_RELEASES_KEYS, patches.STEAL_RESPONSE],
    ids=lambda patch: patch.what,
)
def test_stream_handlers_of_the_scheduler(scheduler: SimpleNamespace, patch: Patch) -> None:
    ((handlers, op),) = patch.places(scheduler)
    assert op in handlers, patch.without
    assert patch.fits(handlers[op]), patch.without


@pytest.mark.parametrize(
    ("patch", "kind"),
    [
        (patches.CLIENT_STARTS, Client),
        (patches.CLIENT_CLOSES, Client),
        (patches.CLUSTER_CLOSES, Cluster),
        (patches.CLUSTER_CLOSES, SpecCluster),
    ],
)
def test_clients_and_clusters_start_and_close_in_their_event_loop(patch: Patch, kind: type) -> None:
    ((_, name),) = patch.places(kind)
    assert patch.fits(getattr(kind, name)), patch.without
    assert patch is patches.CLUSTER_CLOSES or name in vars(kind)


def test_handlers_and_periodic_callbacks_are_found_where_they_stand(scheduler: SimpleNamespace) -> None:
    for handlers in (scheduler.stream_handlers, scheduler.handlers):
        for op in handlers:
            assert patches.HANDLER.places((handlers, op)) == [(handlers, op)], patches.HANDLER.without
    for periodic in scheduler.periodic_callbacks.values():
        ((owner, name),) = patches.CALLBACK.places(periodic)
        assert callable(vars(owner)[name]), patches.CALLBACK.without
    # They are looked up where they stand, each time.
    reading = inspect.getsource(distributed.core.Server)
    assert "self.stream_handlers[op]" in reading, patches.HANDLER.without
    assert "self.handlers[op]" in reading, patches.HANDLER.without


def test_hooks_of_plugins_are_looked_up_on_each_plugin() -> None:
    source = "".join(map(inspect.getsource, (distributed.scheduler, distributed.broker)))
    for hook in ("transition", *loop_meter._HOOKS):
        assert inspect.isfunction(getattr(SchedulerPlugin, hook, None)), patches.HOOK.without
        assert f"plugin.{hook}(" in source, patches.HOOK.without
    plugin = SchedulerPlugin()
    assert patches.HOOK.places((plugin, "transition")) == [(plugin, "transition")]


def test_an_event_loop_waits_in_select() -> None:
    async def places() -> list[Any]:
        return list(patches.SELECT.places(asyncio.get_running_loop()))

    ((selector, name),) = asyncio.run(places())
    assert patches.SELECT.fits(getattr(selector, name)), patches.SELECT.without
    assert "self._selector.select(timeout)" in inspect.getsource(asyncio.BaseEventLoop._run_once)


def test_the_tick_of_an_event_loop(scheduler: SimpleNamespace) -> None:
    ((tick, name),) = patches.TICK.places(scheduler)
    assert callable(getattr(tick, name)), patches.TICK.without
    assert 0 < tick.callback_time < 1_000, "expected milliseconds between two ticks"


@pytest.mark.parametrize(
    "patch", [patches.SERIALIZE, patches.OFFLOAD, patches.READ, patches.WRITE], ids=lambda patch: patch.what
)
def test_functions_that_move_data(patch: Patch) -> None:
    for owner, name in patch.places(None):
        assert patch.fits(vars(owner).get(name)), patch.without


@pytest.mark.parametrize("patch", [patches.RUN_TASK, patches.RUN_ACTOR], ids=lambda patch: patch.what)
def test_functions_that_run_tasks_and_methods_of_actors_in_threads(patch: Patch) -> None:
    ((module, name),) = patch.places(distributed.worker)
    assert patch.fits(vars(module)[name]), patch.without
    # It is looked up where it stands each time, with arguments by position.
    executing = inspect.getsource(distributed.Worker)
    assert f" {name},\n" in executing, patch.without


def test_functions_that_send_and_receive_the_parts_of_a_shuffle() -> None:
    ((kind, name),) = patches.SHUFFLE_MESSAGE.places(ShardsBuffer)
    assert patches.SHUFFLE_MESSAGE.fits(vars(kind)[name]), patches.SHUFFLE_MESSAGE.without
    worker = SimpleNamespace(
        handlers={}, stream_handlers={}, extensions={}, state=SimpleNamespace(nthreads=1), address="tcp://a"
    )
    ShuffleWorkerPlugin().setup(worker)
    for patch in (patches.SHUFFLE_RECEIVE, patches.SHUFFLE_INPUTS_DONE):
        ((handlers, op),) = patch.places(worker)
        assert patch.fits(handlers[op]), patch.without
    # It is by what its buffer sends that a worker is known.
    assert vars(CommShardsBuffer).get("process") is None
    assert "self.send = send" in inspect.getsource(CommShardsBuffer.__init__)


def test_a_spill_buffer_reads_back_writes_and_evicts(spill_buffer: SpillBuffer) -> None:
    assert isinstance(spill_buffer, zict.Buffer), patches.READ_BACK.without
    ((buffer, name),) = patches.READ_BACK.places(spill_buffer)
    assert patches.READ_BACK.fits(getattr(buffer, name)), patches.READ_BACK.without
    places = list(patches.WRITE_OUT.places(spill_buffer))
    assert places, patches.WRITE_OUT.without
    for callbacks, i in places:
        assert {"key", "value"} <= inspect.signature(callbacks[i]).parameters.keys(), patches.WRITE_OUT.without
    ((buffer, name),) = patches.EVICT.places(spill_buffer)
    assert not inspect.signature(getattr(buffer, name)).parameters, patches.EVICT.without


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
    """Takes no attributes."""

    __slots__ = ()

    @property
    def fixed(self) -> str:
        return "fixed"


class Fixed:
    """Has an attribute that is always its class's."""

    @property
    def fixed(self) -> str:
        return "fixed"


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
def test_a_place_is_replaced_and_then_as_before(patch: Patch) -> None:
    upstream = Upstream()
    before = upstream.state()
    replacements = Replacements()
    assert replacements.put(patch, upstream, another) == len(patch.places(upstream))
    assert upstream.state() != before
    replacements.put_back()
    replacements.put_back()
    assert upstream.state() == before


@pytest.mark.parametrize("patch", KINDS.values(), ids=KINDS)
def test_a_replacement_of_somebody_else_over_ours_stays(patch: Patch) -> None:
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
        layer.put(patch, upstream, another)
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
def test_a_report_notes_what_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def _run_task(task: Any, data: Any, *rest: Any) -> Any:
        return run_task(task, data, *rest)

    run_task = distributed.worker._run_task
    monkeypatch.setattr(distributed.worker, "_run_task", _run_task)
    with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        with efficiency_report() as report:
            assert client.submit(sum, [1, 2]).result() == 3
        assert distributed.worker._run_task is _run_task
        assert [note for note in report.notes if patches.RUN_TASK.without in note and "_run_task is not as" in note]
