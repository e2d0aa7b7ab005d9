from dask_efficiency.accounts.lines import LOOKS, WAITING, Frame, HolderRow, Stack
from dask_efficiency.plugin.worker.lock_looks import rows_of_look
from tests.accounts.test_waits import GETITEM, OWN, QUEUE, SITE, XARRAY, built_in

READS = GETITEM._replace(line=115)
#: Reads while it holds the lock at which XARRAY waits.
READING: Stack = (XARRAY[0], READS, Frame("getitem", f"{SITE}/netCDF4/utils.py", 9))
WAITS: Stack = (OWN, built_in("acquire"))


def holders(waiting: list[tuple[str, Stack]], others: list[tuple[str, Stack]]) -> dict[tuple[str, Stack], int]:
    rows = rows_of_look(waiting, others)
    return {(row.holder, row.stack): n for row, n in rows.items() if row.holder not in (LOOKS, WAITING)}


def test_a_look_counts_once_and_each_of_the_threads_that_wait() -> None:
    rows = rows_of_look([("load", XARRAY)] * 3 + [("train", WAITS)], [("load", READING), ("load", READING)])
    assert rows == {
        HolderRow("load", LOOKS, ()): 1,
        HolderRow("load", WAITING, ()): 3,
        HolderRow("load", "load", READING[1:2]): 1,
        HolderRow("train", LOOKS, ()): 1,
        HolderRow("train", WAITING, ()): 1,
    }


def test_a_holder_is_in_the_function_that_takes_the_lock_or_in_its_library_or_among_the_same_tasks() -> None:
    opens = (Frame("open_dataset", f"{SITE}/xarray/backends/api.py", 9),)
    computes = (
        OWN._replace(line=13),
        Frame("svd", f"{SITE}/numpy/linalg.py", 5),
        Frame("wrap", f"{SITE}/numpy/x.py", 5),
    )
    elsewhere = (Frame("clean", "/home/me/clean.py", 3),)
    every = [("load", READING), ("open", opens), ("load", elsewhere)]
    assert holders([("load", XARRAY)], every) == {("load", READING[1:2]): 1}
    assert holders([("load", XARRAY)], every[1:]) == {("open", opens): 1}
    assert holders([("load", XARRAY)], every[2:]) == {("load", elsewhere): 1}
    assert holders([("load", XARRAY)], [("clean", elsewhere), ("load", ())]) == {}
    # of the user's own function what it calls is kept, which is what takes the time
    assert holders([("train", WAITS)], [("train", computes), ("x", elsewhere)]) == {("train", computes[:2]): 1}


def test_nothing_holds_what_another_thread_has_yet_to_make() -> None:
    assert rows_of_look([("train", (OWN, *QUEUE)), ("load", ())], [("train", (OWN,))]) == {}
