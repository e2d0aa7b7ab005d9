import ctypes
import platform
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from dask_efficiency.adapters.cupti import callbacks
from dask_efficiency.adapters.cupti.callbacks import BufferPool, CallbacksUnavailable

pytestmark = pytest.mark.skipif(
    platform.machine() not in callbacks._CODE, reason=f"no callbacks for {platform.machine()}"
)

REQUEST = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
DONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


def ask(pool: BufferPool) -> tuple[int | None, int, int]:
    """As CUPTI asks: what the three places hold afterwards."""
    buffer, size, records = ctypes.c_void_p(1), ctypes.c_size_t(2), ctypes.c_size_t(3)
    REQUEST(pool.request)(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(records))
    return buffer.value, size.value, records.value


def bring_back(pool: BufferPool, address: int | None, valid: int) -> None:
    DONE(pool.done)(None, 0, address, pool.size, valid)


def test_a_buffer_goes_out_and_comes_back_with_what_was_written_there():
    pool = BufferPool(count=3, size=4096)
    first, size, records = ask(pool)
    second = ask(pool)[0]
    assert (size, records) == (4096, 0)
    assert first is not None
    assert second == first + 4096
    assert pool.free().all()
    assert not pool.lent().any()
    ctypes.memmove(first, b"records", 7)
    ctypes.memmove(second, b"records", 7)
    bring_back(pool, second, 7)
    ((number, content),) = pool.filled()
    assert bytes(content) == b"records"
    assert pool.lent().tolist() == [True, False, False]
    assert pool.free().tolist() == [False, False, True]
    pool.release(number)
    assert pool.free().tolist() == [False, True, True]
    assert pool.filled() == []
    assert ask(pool)[0] == second
    assert pool.free().tolist() == [False, True, True]


def test_without_a_free_buffer_cupti_gets_none_and_it_is_counted():
    pool = BufferPool(count=1, size=4096)
    ask(pool)
    assert ask(pool) == (None, 0, 0)
    assert ask(pool) == (None, 0, 0)
    assert pool.refused == 2


@pytest.mark.parametrize("offset", [-1, 2 * 4096, 2**40])
def test_a_buffer_of_somebody_else_is_left_alone_and_counted(offset: int):
    pool = BufferPool(count=2, size=4096)
    first = ask(pool)[0]
    bring_back(pool, first + offset, 100)
    assert (pool.foreign, pool.filled()) == (1, [])


def test_a_buffer_that_is_written_off_counts_again_when_it_comes_back():
    pool = BufferPool(count=2, size=4096)
    address = ask(pool)[0]
    assert address is not None
    ctypes.memmove(address, b"records", 7)
    pool.write_off()
    assert not pool.lent().any()
    bring_back(pool, address, 7)
    pool.release(pool.filled()[0][0])
    ctypes.memmove(ask(pool)[0], b"records", 7)
    assert pool.lent().tolist() == [True, False]


def test_two_pools_do_not_know_each_other():
    one, other = BufferPool(count=1, size=4096), BufferPool(count=1, size=4096)
    bring_back(other, ask(one)[0], 5)
    assert (other.foreign, one.filled(), other.filled()) == (1, [], [])


def test_many_threads_at_once_never_get_the_same_buffer():
    pool = BufferPool(count=40, size=4096)
    got: list[int | None] = []
    barrier = threading.Barrier(8)

    def take() -> None:
        barrier.wait()
        got.extend([ask(pool)[0] for _ in range(5)])

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(got)) == 40
    assert None not in got


def test_on_an_unknown_processor_it_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(CallbacksUnavailable, match="riscv64"):
        BufferPool()


def test_where_no_memory_may_be_executed_it_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(callbacks._libc, "mprotect", lambda *_: -1)
    with pytest.raises(CallbacksUnavailable, match="lets no memory be executed"):
        BufferPool(count=1, size=4096)


#: How the bytes in callbacks.py were made of callbacks.c; other compilers make other bytes that do the same.
FLAGS = (
    [
        "-Os",
        "-ffreestanding",
        "-fPIC",
        "-fno-toplevel-reorder",
        "-fno-stack-protector",
        "-fno-asynchronous-unwind-tables",
    ],
    {"x86_64": ["-fcf-protection=none"], "aarch64": ["-mcmodel=tiny", "-mno-outline-atomics"]},
)


@pytest.mark.skipif(not (shutil.which("cc") and shutil.which("objcopy")), reason="no C compiler")
def test_what_the_source_compiles_to_does_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = Path(callbacks.__file__).with_name("callbacks.c")
    common, own = FLAGS
    linked = tmp_path / "linked"
    run = ["cc", *common, *own[platform.machine()], "-c", str(source), "-o", str(tmp_path / "object")]
    subprocess.run(run, check=True)
    subprocess.run(["ld", "-Ttext=0", "-e", "request", str(tmp_path / "object"), "-o", str(linked)], check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", str(linked), str(tmp_path / "text")], check=True)
    listed = subprocess.run(["nm", str(linked)], check=True, capture_output=True, text=True).stdout
    at = {name: int(address, 16) for address, _, name in map(str.split, listed.splitlines())}
    compiled = callbacks._Code((tmp_path / "text").read_bytes().hex(), at["request"], at["done"], at["pool_address"])
    monkeypatch.setitem(callbacks._CODE, platform.machine(), compiled)
    test_a_buffer_goes_out_and_comes_back_with_what_was_written_there()
    test_without_a_free_buffer_cupti_gets_none_and_it_is_counted()
    test_two_pools_do_not_know_each_other()
    test_many_threads_at_once_never_get_the_same_buffer()
