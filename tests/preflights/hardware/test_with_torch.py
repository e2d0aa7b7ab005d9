from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dashboards.monitor.prometheus import free_port
from dask_efficiency.preflights.hardware import host, with_torch
from dask_efficiency.preflights.hardware.host import CannotMeasure
from tests.preflights.hardware.test_child import started


class Tensor:
    def __init__(self, torch: FakeTorch, where: Any) -> None:
        self.torch = torch
        self.where = where

    def copy_(self, source: Tensor, non_blocking: bool = False) -> None:
        self.torch.work.append(("copy", source.where, self.where))


class FakeTorch:
    """As much of torch as is used; each piece of work takes a second of its clock when it is waited for."""

    bfloat16, float16, uint8 = "bfloat16", "float16", "uint8"

    def __init__(self, *, gpus: int = 1, capability: tuple[int, int] = (9, 0), free: int = 80 * 2**30) -> None:
        self.work: list[Any] = []
        self.waited = 0
        self.kinds: list[str] = []
        self.now = 0.0

        def synchronize() -> None:
            self.now += 1.0
            self.waited += 1

        self.cuda = SimpleNamespace(
            is_available=lambda: gpus > 0,
            get_device_capability=lambda gpu: capability,
            device_count=lambda: gpus,
            mem_get_info=lambda gpu: (free, free),
            synchronize=synchronize,
        )

    def device(self, kind: str, number: int) -> str:
        return f"{kind}:{number}"

    def randn(self, *shape: int, device: str, dtype: str = "float32") -> Tensor:
        self.kinds.append(dtype)
        return Tensor(self, device)

    def ones(self, n: int, *, dtype: str, device: str = "cpu", pin_memory: bool = False) -> Tensor:
        return Tensor(self, device)

    def empty(self, n: int, *, dtype: str, device: str) -> Tensor:
        return Tensor(self, device)

    def empty_like(self, tensor: Tensor) -> Tensor:
        return Tensor(self, tensor.where)

    def matmul(self, one: Tensor, other: Tensor) -> None:
        self.work.append("matmul")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    return with_clock(FakeTorch(), monkeypatch)


def with_clock(torch: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    clock = SimpleNamespace(perf_counter=lambda: torch.now)
    monkeypatch.setattr(with_torch, "time", clock)
    monkeypatch.setattr(host, "MAX_SECONDS", 1e9)
    return torch


def test_products_are_in_the_type_that_the_gpu_is_made_for(monkeypatch: pytest.MonkeyPatch, torch: FakeTorch) -> None:
    assert with_torch.matrix_products(torch)["value"] == 2 * with_torch.ROWS**3
    assert set(torch.kinds) == {"bfloat16"}
    older = with_clock(FakeTorch(capability=(7, 0)), monkeypatch)
    with_torch.matrix_products(older)
    assert set(older.kinds) == {"float16"}


def test_work_is_done_once_before_it_is_timed_and_waited_for_each_time(torch: FakeTorch) -> None:
    with_torch.matrix_products(torch)
    assert len(torch.work) == torch.waited == 4


def test_copies_go_both_ways_and_within_the_gpu(torch: FakeTorch) -> None:
    assert with_torch.host_copies(torch)["value"] == with_torch.COPIED_NBYTES
    assert {("copy", "cpu", "cuda:0"), ("copy", "cuda:0", "cpu")} == set(torch.work)
    torch.work.clear()
    assert with_torch.memory(torch)["value"] == 2 * with_torch.COPIED_NBYTES
    assert set(torch.work) == {("copy", "cuda:0", "cuda:0")}


def test_copies_to_each_other_gpu_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = with_clock(FakeTorch(gpus=3), monkeypatch)
    with_torch.peer_copies(torch)
    assert {target for _, _, target in torch.work} == {"cuda:1", "cuda:2"}


def test_missing_hardware_and_memory_are_named(torch: FakeTorch) -> None:
    with pytest.raises(CannotMeasure, match="the worker sees one GPU"):
        with_torch.peer_copies(torch)
    with pytest.raises(CannotMeasure, match="torch sees no GPU"):
        with_torch.memory(FakeTorch(gpus=0))
    with pytest.raises(CannotMeasure, match="too little memory is free for a training step of 512 tokens"):
        with_torch.ON_GPU.trained(torch, None, 0, "cuda")


def in_two_processes(component: str, *memory: int) -> list[dict[str, Any]]:
    """Answers of two processes of a worker each, with so much memory."""
    group = {"backend": "gloo", "address": f"127.0.0.1:{free_port()}", "timeout": 100}
    ranks = [
        started({"components": [component], "threads": 1, "memory": nbytes, "group": {**group, "rank": rank}})
        for rank, nbytes in enumerate(memory)
    ]
    found = [json.loads(process.stdout.readline()) for process in ranks if process.stdout is not None]
    for process in ranks:
        process.communicate()  # it ends with its input
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="interfaces have other names elsewhere")
def test_pairs_meet_on_the_interface_by_which_the_first_is_reached() -> None:
    assert with_torch.interface_to("127.0.0.1") == "lo"
    assert with_torch.interface_to("no such host") == ""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("component", ["collective", "training"])
def test_two_workers_reduce_and_train_together(component: str) -> None:
    found = in_two_processes(component, 2**30, 0)
    assert [one["component"] for one in found] == [component] * 2
    assert all(one["value"] > 0 for one in found)


@pytest.mark.needs("torch")
def test_two_workers_train_no_more_than_the_smaller_one_can() -> None:
    found = in_two_processes("training", 2**40, 2**20)
    assert {one["missing"] for one in found} == {"too little memory is free for a training step of 128 tokens"}
