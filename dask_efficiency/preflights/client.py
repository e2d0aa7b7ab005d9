"""``preflight``: finds slow workers before a job starts."""

from __future__ import annotations

import asyncio
import math
import os
import uuid
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
from dask.utils import parse_timedelta
from distributed import Client, get_client

from dask_efficiency.plugin import names
from dask_efficiency.plugin.client import ask, call, register
from dask_efficiency.plugin.plain import carried
from dask_efficiency.plugin.scheduler.plugin import EfficiencyPlugin
from dask_efficiency.preflights.hardware.host import CALLABLE, SCRIPT
from dask_efficiency.preflights.judge.result import PreflightResult, decode
from dask_efficiency.preflights.scheduler.plan import STOPPED, Plan
from dask_efficiency.show.progress import StoppedWarning, progress
from dask_efficiency.straggler.retirements import RETIRE_SECONDS, RETIRE_SHARE, most_retired

#: Values of the option ``device``.
DEVICES = ("auto", "cpu", "gpu")
#: Backends of torch.
BACKENDS = ("gloo", "nccl")
#: Most bytes of a workload, which is sent to each worker by way of the scheduler.
MAX_WORKLOAD = 10 * 2**20


def preflight(
    client: Client | None = None,
    *,
    device: str = "auto",
    timeout: float | str = "60s",
    workload: Callable[[], Any] | str | os.PathLike[str] | None = None,
    soak: bool = False,
    collective: str | None = None,
    training: str | None = None,
    force: bool = False,
    retire: bool = False,
    retire_share: float = RETIRE_SHARE,
) -> Any:
    """Find the slow workers before a job starts: ``dask_efficiency.preflight(client)``.

    Each worker is measured alone for about a second, in a process next to its own, and then with another, longer
    where one seems slow. Workers of one machine take turns. None of it is a task. If the plugin is not on the
    scheduler, it is registered for the time of the test.

    Parameters
    ----------
    client
        The current client by default.
    device
        ``"auto"``: GPUs too where a worker has NVIDIA's driver, ``"cpu"``: no GPU, or ``"gpu"``: GPUs even where none
        is seen, so that the result gives the reason.
    timeout
        Seconds, or a duration such as ``"60s"``, after which workers that had no turn are not tested.
    workload
        Timed on each worker as well, in that process: a function without arguments, or the path of a local script.
    soak
        Whether each GPU runs a training step of a transformer that fills 80 % of its free memory.
    collective
        ``"gloo"`` or ``"nccl"``: the pairs run an all-reduce of torch as well.
    training
        ``"gloo"`` or ``"nccl"``: the pairs train a small transformer on made-up data with DistributedDataParallel as
        well, on their cores or their GPUs. A step fills 80 % of a GPU's free memory, or 10 % of a worker's at most.
    force
        Whether a busy cluster is tested; its figures then show what its tasks left free.
    retire
        Whether slow workers are retired, as by ``client.retire_workers``, the most certain first.
    retire_share
        Largest share of the workers that is retired, in (0, 1), or one of them; two always stay.

    Returns
    -------
    PreflightResult
        ``findings``, the costs of slow workers, hosts and paths between hosts, from ``slow_workers``, a
        :class:`~dask_efficiency.accounts.slow_worker.SlowWorker` for each worker or host, and ``paths``; ``retired``
        and ``kept``, names of slow workers. An awaitable if the client is asynchronous; else Ctrl-C ends it early, with
        the measurements so far and a note about it, and retires nobody.

    Raises
    ------
    ValueError
        If an option cannot be used, or there is no client; names the option and its value.
    NotRegisteredError
        If the scheduler cannot load the plugin.
    """
    backends = {"collective": collective, "training": training}
    plan = _plan(backends, device=device, timeout=timeout, soak=soak, force=force, retire=retire)
    plan = replace(plan, **_workload(workload))
    most_retired(0, retire_share)
    client = client if client is not None else get_client()
    stop = asyncio.Event()
    testing = _preflight(client, plan, retire_share if retire else None, stop)
    if client.asynchronous:
        return testing
    loop: Any = client.loop
    future = asyncio.run_coroutine_threadsafe(testing, loop.asyncio_loop)
    try:
        return future.result()
    except KeyboardInterrupt:
        loop.add_callback(stop.set)
        result = future.result()
    if not result.tested:
        raise KeyboardInterrupt("preflight: nothing was measured yet")
    stopped = next((note for note in result.notes if note.startswith(STOPPED)), "stopped as the test was at its end")
    warnings.warn(stopped, StoppedWarning, stacklevel=2)
    return result


def _plan(backends: dict[str, Any], *, device: Any, timeout: Any, retire: Any, **given: Any) -> Plan:
    if device not in DEVICES:
        raise ValueError(f"device is {device!r:.80}; expected one of {', '.join(DEVICES)}")
    for name, backend in backends.items():
        if backend is not None and backend not in BACKENDS:
            raise ValueError(f"{name} is {backend!r:.80}; expected one of {', '.join(BACKENDS)}, or None")
    for name, value in {**given, "retire": retire}.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} is {value!r:.80}; expected True or False")
    try:
        seconds = float(parse_timedelta(timeout, default="s"))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ValueError(f"timeout is {timeout!r:.80}; expected a positive duration such as '60s'")
    backends = {name: backend or "" for name, backend in backends.items()}
    return Plan(uuid.uuid4().hex, seconds, device, **given, **backends)


def _workload(workload: Any) -> dict[str, Any]:
    if workload is None:
        return {}
    if isinstance(workload, str | os.PathLike):
        try:
            kind, payload = SCRIPT, Path(workload).read_bytes()
            compile(payload, os.fspath(workload), "exec")
        except (OSError, SyntaxError, ValueError) as error:
            raise ValueError(f"workload is {os.fspath(workload)!r}; expected a script in Python: {error}") from error
    elif callable(workload):
        kind, payload = CALLABLE, cloudpickle.dumps(workload)
    else:
        raise ValueError(f"workload is {workload!r:.80}; expected a function without arguments or the path of a script")
    if len(payload) > MAX_WORKLOAD:
        raise ValueError(f"workload takes {len(payload)} bytes; expected {MAX_WORKLOAD} at most")
    return {"workload": kind, "payload": payload}


async def _preflight(client: Client, plan: Plan, retire_share: float | None, stop: asyncio.Event) -> PreflightResult:
    """Test until the end, or until ``stop`` is set."""
    await register(client, EfficiencyPlugin.leased_to(client.id))
    try:
        content = {**asdict(plan), "payload": carried(np.frombuffer(plan.payload, np.uint8))}
        reply = await _step(client, names.BEGIN_TEST, plan=content, client=client.id)
        if "refused" in reply:
            return PreflightResult(reason=str(reply["refused"]))
        try:
            with progress("preflight", unit="done") as report:
                while "done" not in (reply := await _step(client, names.WAIT_FOR_TEST, test=plan.test)):
                    report(**reply["running"])
                    if stop.is_set():
                        reply = await _step(client, names.STOP_TEST, test=plan.test)
                        break
        except BaseException:
            await _step(client, names.STOP_TEST, test=plan.test)
            raise
        result = await asyncio.to_thread(decode, reply["done"])
        return result if retire_share is None or stop.is_set() else await _retire(client, result, retire_share)
    finally:
        await ask(client, names.RELEASE, client=client.id)


async def _step(caller: Client, step: str, /, **asked: Any) -> dict[str, Any]:
    return await ask(caller, names.PREFLIGHT, preflight={"step": step, **asked})


async def _retire(client: Client, result: PreflightResult, share: float) -> PreflightResult:
    most = most_retired(len(result.subjects), share)
    result = replace(result, kept=result.slow[most:])
    slow = [subject for subject in result.subjects if subject.name in result.slow[:most]]
    if not slow:
        return result
    addresses = [subject.address for subject in slow]
    retiring = call(client, "retire_workers", workers=addresses, close_workers=True, remove=True)
    try:
        retired = await asyncio.wait_for(retiring, RETIRE_SECONDS)
    except TimeoutError:
        note = f"the slow workers were not retired in {RETIRE_SECONDS:g} s"
        return replace(result, notes=(*result.notes, note))
    return replace(result, retired=tuple(subject.name for subject in slow if subject.address in retired))
