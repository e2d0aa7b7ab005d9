import _ctypes
import ctypes
import threading
from pathlib import Path

import pytest

from dask_efficiency.gpu.cupti import callbacks
from dask_efficiency.gpu.cupti.callbacks import BufferPool, CallbacksUnavailable
from tests.gpu.conftest import compile_callbacks_in_place


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    compile_callbacks_in_place()


REQUEST = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
DONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


def ask(pool: BufferPool) -> tuple[int | None, int, int]:
    """Request a buffer, as CUPTI does: its address, its size, and the most records."""
    buffer, size, records = ctypes.c_void_p(1), ctypes.c_size_t(2), ctypes.c_size_t(3)
    REQUEST(pool.callbacks()[0])(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(records))
    return buffer.value, size.value, records.value


def bring_back(pool: BufferPool, address: int | None, valid: int) -> None:
    DONE(pool.callbacks()[1])(None, 0, address, pool.size, valid)


def test_a_buffer_is_lent_and_returned_with_its_records():
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


def test_requests_without_a_free_buffer_are_counted():
    pool = BufferPool(count=1, size=4096)
    ask(pool)
    assert ask(pool) == (None, 0, 0)
    assert ask(pool) == (None, 0, 0)
    assert pool.refused == 2


@pytest.mark.parametrize("offset", [-1, 2 * 4096, 2**40])
def test_a_foreign_buffer_is_counted(offset: int):
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


def test_the_callbacks_serve_one_pool_at_a_time():
    one, other = BufferPool(count=1, size=4096), BufferPool(count=1, size=4096)
    address = ask(one)[0]
    bring_back(other, address, 5)
    assert (other.foreign, one.filled(), other.filled()) == (1, [], [])
    bring_back(one, address, 5)
    assert [number for number, _ in one.filled()] == [0]
    assert (one.foreign, other.filled()) == (0, [])


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


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, r"installed without x\.so\.1; where Linux has a C compiler"), (b"bad", r"x\.so\.1 cannot be loaded")],
)
def test_a_library_that_is_missing_or_cannot_be_loaded_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None, reason: str
):
    path = tmp_path / "x.so.1"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(callbacks, "LIBRARY", path)
    with pytest.raises(CallbacksUnavailable, match=reason):
        BufferPool()


def test_the_functions_stay_loaded_after_the_library_is_closed(tmp_path: Path):
    copy = tmp_path / "copy.so.1"
    copy.write_bytes(callbacks.LIBRARY.read_bytes())
    _ctypes.dlclose(ctypes.CDLL(str(copy))._handle)
    assert str(copy) in Path("/proc/self/maps").read_text()
