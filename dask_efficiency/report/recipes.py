"""Recipes: one table of the cures of known patterns, and the one that fits a loss."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from dask_efficiency.report.computing_recipes import COMPUTING
from dask_efficiency.report.library_recipes import LIBRARIES
from dask_efficiency.report.number_recipes import NUMBERS
from dask_efficiency.report.recipe_text import NOTHING, Recipe, Weighted, read_recipes
from dask_efficiency.show.shown import late

#: Page of the recipes that the package brings along.
PAGE = "docs/recipes.md"


def recipe_for(
    kind: str,
    stacks: Weighted = (),
    *,
    prefixes: Mapping[str, float] = NOTHING,
    lines: Mapping[str, float] = NOTHING,
) -> Recipe | None:
    """Find the recipe for a loss, or None: the user's own come first, then those of this package in their order.

    Parameters
    ----------
    kind
        Kind of the finding: ``"thread-noncpu/lock"``.
    stacks
        Stacks of the threads that have the loss, or cause it, each with its weight. Those without frames do not count.
    prefixes
        Weights of the prefixes of tasks that have it.
    lines
        Weights of the lines that sent these, as :attr:`~dask_efficiency.EfficiencyReport.computed_by` has them.
    """
    rows = [(stack, weight) for stack, weight in stacks if stack]
    files = {frame.file for stack, _ in rows for frame in stack}
    for one in (*(one for one in _own_recipes() if one.is_of(kind)), *_recipes_of(kind)):
        seen = rows if one.may_be_in(files) else ()
        if one.is_in(seen, prefixes, lines):
            return one
    return None


def known_recipes() -> tuple[Recipe, ...]:
    """All recipes: the user's own, then those of this package."""
    return (*_own_recipes(), *RECIPES)


def _own_recipes() -> tuple[Recipe, ...]:
    own: tuple[Recipe, ...] = late("dask_efficiency.report.own_recipes:own_recipes")()
    return own


@lru_cache
def _recipes_of(kind: str) -> tuple[Recipe, ...]:
    return tuple(one for one in RECIPES if one.is_of(kind))


#: Recipes of this package, the surer ones first: docs/recipes.md explains the form.
RECIPES = read_recipes(
    f"""
xarray-compares: open_mfdataset compares what all files have
    kinds: client one-by-one loops idle idle/parallelism waits python
    stack: xarray/backends/api.py open_mfdataset > xarray/*/merge.py unique_variable
    stack: xarray/backends/api.py open_mfdataset > xarray/*/concat.py _calc_concat_over*
    stack: xarray/*/concat.py concat > xarray/*/concat.py _calc_concat_over*
    share: 0.3
    Pass compat="override" and coords="minimal": they take coordinates from the first file, unread in others.
xarray-coordinates: xarray compares coordinates that are Dask arrays
    kinds: client computed-first repeats one-by-one loops idle idle/parallelism
    stack: xarray/*/merge.py unique_variable > xarray/core/variable.py *equals|*.no_conflicts
    share: 0.3
    Leave them out by drop_vars(), or load() them once: each operation computes both sides to compare them.
xarray-opens: open_mfdataset opens one file after the other
    kinds: client
    stack: xarray/backends/api.py open_mfdataset > xarray/backends/api.py open_dataset
    Pass parallel=True to open files in tasks, or write one Zarr store, or one index of all files, once.
to-netcdf: Writing netCDF, one task at a time
    kinds: waits
    stack: xarray/backends/* *Wrapper.__setitem__
    stack: dask/array/core.py *store* > xarray/backends/* *
    stack: xarray/backends/writers.py *
    Use to_zarr(), which writes chunks in parallel, or several files by save_mfdataset().
store-lock: Storing an array, one task at a time
    kinds: thread-noncpu/lock thread-noncpu/cluster
    stack: dask/array/core.py *store_chunk
    Pass lock=False to store() if the target takes parallel writes, as Zarr does, or store to several files.
xarray-lock: Waiting for xarray's lock on netCDF and HDF5 files
    kinds: thread-noncpu/lock
    stack: xarray/backends/netCDF4_.py *
    stack: xarray/backends/h5netcdf_.py *
    stack: xarray/backends/locks.py *
    unless-fact: one-thread-each
    Use workers with one thread each: threads of a process read these files in turns. Zarr needs no lock.
hdf5-lock: Waiting for HDF5, which serves one thread of a process
    kinds: thread-noncpu/lock thread-noncpu thread-noncpu/unknown
    stack: h5py/* *
    stack: tables/* *
    stack: h5netcdf/* *
    stack: pandas/io/pytables.py *
    unless: xarray/* *
    share: 0.3
    unless-fact: one-thread-each
    Use workers with one thread each, or write Zarr or Parquet, which threads read at once.
rasterio-lock: Waiting for the lock on a raster file
    kinds: thread-noncpu/lock
    stack: rioxarray/* *
    stack: rasterio/* *
    Open with lock=False where reading allows it: each thread then opens the file itself.
s3fs-lists: Listing an object store
    kinds: waits client
    stack: s3fs/core.py *._ls*|*._find*|*._walk*|*._glob*|*._info*
    stack: fsspec/* *.glob|*.find|*.walk|*.ls|*.info|*.exists > fsspec/asyn.py sync
    List the files once, on the client, and pass their paths to the tasks.
zarr: Waiting for Zarr's chunks
    kinds: thread-noncpu/lock thread-noncpu/network thread-noncpu/file
    stack: zarr/core/sync.py sync
    stack: zarr/core.py *Array.*
    stack: zarr/storage.py *
    Give each Dask chunk whole Zarr chunks, of some MB each, or raise Zarr's async.concurrency.
object-store: Waiting for the network, for an object store
    kinds: thread-noncpu/lock thread-noncpu/network thread-noncpu
    stack: s3fs/* *
    stack: gcsfs/* *
    stack: adlfs/* *
    stack: fsspec/caching.py * > fsspec/asyn.py sync
    stack: fsspec/implementations/http.py *
    stack: fsspec/asyn.py sync
    stack: botocore/* *
    stack: google/cloud/storage/* *
    unless-fact: threads-in-vain
    Use more threads per worker, so that requests overlap, and read larger pieces at a time.
requests-connects: Connecting anew for each HTTP request
    kinds: waits
    stack: requests/api.py * > urllib3/* *connect*|*_new_conn|*_prepare_proxy|*ssl_wrap_socket
    share: 0.2
    Use one requests.Session in each worker: requests.get() and its like connect anew each time.
http: Waiting for the network, for HTTP answers
    kinds: thread-noncpu/network thread-noncpu/lock thread-noncpu
    stack: requests/* *
    stack: urllib3/* *
    stack: httpx/* *
    stack: http/client.py *
    stack: urllib/request.py *
    unless-fact: threads-in-vain
    Use more threads per worker, so that requests overlap, and ask for more at a time.
sql-connects: Connecting to a database in each task
    kinds: waits python
    stack: sqlalchemy/pool/base.py *.__connect
    stack: sqlalchemy/engine/create.py *
    share: 0.3
    Keep one engine in each worker, such as in a function under functools.cache, not one for each task.
sql-pool: Waiting for a connection of SQLAlchemy's pool
    kinds: waits
    stack: sqlalchemy/pool/* *_do_get > sqlalchemy/util/queue.py *
    stack: sqlalchemy/pool/* *_do_get > *threading.py *
    Give create_engine(pool_size=) as many connections as the worker has threads.
sqlite-lock: Waiting for SQLite's lock on its file
    kinds: thread-noncpu/lock
    stack: sqlalchemy/engine/default.py *.do_*
    stack: pandas/io/sql.py *
    stack: sqlite3/* *
    Write in one task, in one transaction: SQLite lets one connection write at a time.
sql: Waiting for the network, for a database
    kinds: thread-noncpu/network thread-noncpu/lock thread-noncpu
    stack: sqlalchemy/engine/* *
    stack: pandas/io/sql.py *
    stack: psycopg*/* *
    stack: pymysql/* *
    unless-fact: threads-in-vain
    Let the database filter and add up, and use more threads per worker, up to what it serves at once.
joblib: joblib's workers inside tasks
    kinds: waits
    stack: joblib/parallel.py Parallel.__call__
    stack: joblib/externals/loky/* *
    unless: joblib/parallel.py Parallel._get_sequential_output
    Set n_jobs=1 in tasks: Dask runs these in parallel. Or call it on the client, by parallel_config("dask").
processes: Processes that tasks start
    kinds: waits python
    stack: multiprocessing/pool.py *
    stack: multiprocessing/process.py *
    stack: multiprocessing/popen_*.py *
    stack: multiprocessing/connection.py *
    stack: multiprocessing/context.py *
    stack: concurrent/futures/process.py *
    stack: dask/multiprocessing.py *
    Call the function in the task itself: Dask runs tasks in parallel, and each process imports all anew.
pools: Pools of processes in tasks
    kinds: thread-noncpu/child-process
    stack: concurrent/futures/*.py *
    Call the function in the task itself: Dask runs tasks in parallel, and each process imports all anew.
nested-compute: Tasks that compute a graph of their own
    kinds: thread-noncpu thread-noncpu/lock thread-noncpu/cluster
    stack: dask/base.py *compute* > *
    stack: dask/local.py *
    stack: dask/threaded.py *
    unless: dask/local.py get_sync
    Make one graph on the client, where tasks take results as arguments, or use pandas and NumPy in tasks.
imports: Importing modules
    kinds: waits python
    stack: <frozen?importlib*
    Import before the work, by client.run or a preload: the first tasks of each worker wait for its imports.
models: Models that travel, pickled
    kinds: loops client
    stack: */pickle.py * > sklearn/* *
    stack: */pickle.py * > torch/* *
    stack: */pickle.py * > xgboost/* *
    stack: */pickle.py * > lightgbm/* *
    stack: */pickle.py * > tensorflow/* *
    stack: */pickle.py * > keras/* *
    stack: */cloudpickle.py * > torch/* *
    unless: */*pickle.py * > * _find_and_load
    share: 0.2
    Send a model once, by client.scatter(model, broadcast=True), or load it from a file in the tasks.
logging: Logging
    kinds: waits python
    stack: logging/__init__.py *
    stack: loguru/* *
    Log less in tasks: the threads of a process take turns at each handler.
printing: Printing
    kinds: waits python
    stack: ipykernel/iostream.py *
    stack: distributed/worker.py print|warn
    stack: tqdm/* *
    stack: rich/* *
    Print less in tasks: each line goes through a lock, and from Dask's print() to the client.
meta: Dask calls your function, on the client, to learn what it returns
    kinds: client
    stack: dask/dataframe/* *emulate* > .
    stack: dask/array/* compute_meta > .
    share: 0.3
    Pass meta=, an empty result of the same columns and types: without it, Dask tries the function each time.
vindex: Points of an array picked one by one
    kinds: client busy python
    stack: dask/array/core.py *_vindex*
    share: 0.3
    If all rows are wanted of all columns, use x[rows][:, columns]: this picks each point by itself.
delayed-takes-collections: Calls of delayed functions optimize the graphs of what they take
    kinds: client
    stack: dask/delayed.py *unpack_collections > dask/array/optimization.py *
    stack: dask/delayed.py *unpack_collections > dask/highlevelgraph.py *
    share: 0.3
    Use map_blocks(), or pass parts, by one to_delayed(): each call goes through all of the graph.
joblib-on-dask: joblib sends its calls to Dask
    kinds: client
    stack: joblib/parallel.py Parallel.__call__
    also: joblib/_dask.py *
    share: 0.3
    Do whole fits in tasks, or name arrays in scatter= and pass these same: each call sends its arguments.
actors: Waiting for answers of actors, which are sent to whoever asked
    kinds: client waits
    stack: distributed/actor.py *
    Do more in the actor, such as to reduce there: each answer is waited for, and all of it is sent.
scatter-in-turn: The client waited for each scatter
    kinds: small-tasks
    stack: distributed/client.py Client.scatter|Client._scatter
    Send all in one scatter(), as a list, or pass what is small as an argument: each call is waited for.
scatter: Sending data to workers by scatter, to each process that needs them
    kinds: client
    stack: distributed/client.py Client.scatter|Client._scatter
    share: 0.3
    Load them in tasks, from files, or use fewer processes with more threads: each process has its own copy.
sizes-of-chunks: compute_chunk_sizes() computes the array to know its sizes
    kinds: client computed-first repeats one-by-one idle idle/parallelism
    stack: dask/array/core.py Array.compute_chunk_sizes
    share: 0.3
    Call persist() before, as all that the array is made of is computed, or select so that sizes are known.
array-on-client: A function of NumPy computes a whole Dask array on the client
    kinds: client computed-first repeats one-by-one
    stack: dask/array/core.py Array.__array__
    unless: xarray/core/common.py *.__float__|*.__int__|*.__bool__|*.__complex__
    share: 0.3
    Use the function of dask.array, or compute() a reduced result: the client gets, and works on, all of it.
frame-by-row: The client goes through a dataframe's partitions, one by one
    kinds: client computed-first one-by-one repeats
    stack: dask/dataframe/*collection.py DataFrame.iterrows|DataFrame.itertuples|*.__iter__|Series.items
    share: 0.3
    Do it in tasks, by map_partitions: here each partition is computed in turn, and comes to the client.
asking-scheduler: Asking the scheduler, again and again
    kinds: client one-by-one
    stack: distributed/client.py Client.who_has|Client.has_what|Client.scheduler_info|Client.nthreads|Client.ncores
    stack: distributed/client.py Client.processing|Client.list_datasets|Client.get_metadata|Client.get_versions
    share: 0.3
    Ask once, before the loop: each call is a round trip, and its answer describes all of the cluster.
rebalance: Moving results between workers, by hand
    kinds: client
    stack: distributed/client.py Client.rebalance|Client._rebalance|Client.replicate|Client._replicate
    share: 0.3
    Leave it out: tasks go to where their inputs are, and results are copied as they are needed.
visualized: Drawing the graph
    kinds: client
    stack: dask/base.py visualize*
    stack: dask/dot.py *
    stack: graphviz/* *
    share: 0.3
    Draw a small example of it, or leave it out: a graph of thousands of tasks takes long, and shows nothing.
restart: Restarting all workers
    kinds: client
    stack: distributed/client.py Client.restart|Client._restart
    share: 0.3
    Release results instead, by deleting their futures: a restart starts all processes and imports anew.
wait-for-workers: Waiting until workers have joined
    kinds: client
    stack: distributed/client.py Client.wait_for_workers|Client._wait_for_workers
    share: 0.3
    Start workers sooner, or begin with those that are there: Dask gives work to others once they join.
many-positions: Selecting by an array of positions, which goes into the graph
    kinds: client
    stack: dask/array/slicing.py take > dask/array/_shuffle.py *
    stack: xarray/core/indexing.py DaskIndexingAdapter._oindex_get
    share: 0.3
    Select on the workers: by slices, or by flags that are an array in chunks, as in map_blocks() or where().
partition-on: Writing a file for each value of partition_on, in each partition
    kinds: busy
    stack: dask/dataframe/io/parquet/arrow.py _write_partitioned
    share: 0.3
    Where it has many values, shuffle by that column first, so that the rows of each come together.
{NUMBERS}{LIBRARIES}{COMPUTING}csv-one-file: Threads idle: partitions go into one CSV file in turn
    kinds: idle/parallelism
    tasks: *write_csv* *write-csv*
    Write a file for each partition, to_csv("part-*.csv"), or Parquet: single_file=True appends them in turn.
database-scans: Queries go through the same table again and again
    kinds: reads-again
    stack: pandas/io/sql.py *
    stack: sqlalchemy/* *
    stack: sqlite3/* *
    stack: <built-in> execute|execute(*|executemany(*|fetchall*|fetchmany*|fetchone*
    share: 0.3
    Index what they select by, and ask by ranges of a key, not by OFFSET: each goes through the table's rows.
np-load: Reading whole files by numpy.load
    kinds: thread-noncpu/file
    stack: numpy/lib/*npyio* load
    stack: numpy/lib/*format* read_array
    If tasks use parts of files, pass mmap_mode="r", so that they read these only; else, read larger files.
xarray-groupby: groupby cuts chunks by group, into small tasks
    kinds: small-tasks
    stack: xarray/*/groupby.py *
    Give each chunk all of the grouped dimension, and use xarray.map_blocks(); or flox, for reductions alone.
xarray-groups: groupby builds tasks for each group of each chunk
    kinds: client
    stack: xarray/*/groupby.py * > dask/* *
    Use xarray.map_blocks() on chunks with all of the grouped dimension, or flox: these build few tasks.
parquet-files: Small Parquet files, each read by small tasks
    kinds: small-tasks
    tasks: read*parquet* *readparquet*
    share: 0.2
    Write fewer and larger files, of some 100 MB, or read several at a time by blocksize= of read_parquet.
set-index: set_index computes its column first
    kinds: client computed-first repeats loops idle idle/parallelism
    stack: dask/dataframe/*shuffle.py *_calculate_divisions|*_get_divisions|*._divisions*
    Pass divisions=, or sorted=True for sorted data, or persist() before: it computes the column twice.
set-index-again: set_index computes its input, and computes it again to sort it
    kinds: repeats
    stack: dask/dataframe/*shuffle.py *_calculate_divisions|*_get_divisions|*._divisions*
    share: 0.1
    Pass sort=False if no order is needed, divisions= if known, or persist() before: input is computed twice.
repartition-size: repartition(partition_size=) computes all sizes first
    kinds: client computed-first repeats loops idle idle/parallelism
    stack: dask/dataframe/*repartition.py RepartitionSize.*
    Pass npartitions=, or read partitions of that size: else everything is computed to know their sizes.
from-delayed: from_delayed computes its first part for its columns
    kinds: client computed-first one-by-one idle idle/parallelism
    stack: dask/dataframe/*delayed.py from_delayed|FromDelayed._meta > dask/base.py *compute
    Pass meta=, an empty frame with the columns, or use from_map(), for which Dask plans better.
len-of-frame: len() computes the whole dataframe
    kinds: client computed-first repeats one-by-one idle idle/parallelism
    stack: dask/dataframe/*collection.py FrameBase.__len__|DataFrame.__len__|Series.__len__
    stack: dask/dataframe/core.py *.__len__
    sent: *`len(*
    sent: *`[a-zA-Z_]* = len(*
    sent: *`print(len(*
    sent: *`return len(*
    sent: *`if len(*
    Call persist() before len(), or do without: it computes all that the frame is made of, and keeps nothing.
tokenize: Hashing large objects
    kinds: client
    stack: dask/tokenize.py register_*|*normalize_pickle|normalize_seq|normalize_dict
    stack: dask/hashing.py *
    unless: dask/_expr.py *
    Load large objects in tasks, or name them: name= of from_array, dask_key_name= or pure=False.
parquet-metadata: Reading the metadata of many Parquet files
    kinds: client
    stack: dask/dataframe/*parquet* *_collect_statistics*|*.fragments*|*_dataset_info|*.checksum|*_plan|*aggregate*
    stack: dask/dataframe/io/parquet/* *
    share: 0.3
    Read a dataset once, or by the folder that you want, and write larger files: each is looked at first.
overlaps: Overlaps of chunks, or moving windows, made by small tasks
    kinds: small-tasks
    tasks: *overlap*
    share: 0.1
    Pass depth= for just the axes that need it, or larger chunks; moving sums are differences of cumsum().
reshaped: Reshaping cuts and joins chunks, by small tasks
    kinds: small-tasks
    tasks: reshape reshape-* *-reshape *-reshape-*
    also-tasks: rechunk-* *-rechunk-*
    share: 0.1
    Work block by block, as by map_blocks, or cut the first dimension only: a reshape joins all others.
rechunked: rechunk cuts and joins chunks, by small tasks
    kinds: small-tasks
    tasks: rechunk-* *-rechunk-*
    share: 0.3
    Read in the chunks that are needed, or keep whole dimensions in each: every piece of a chunk is a task.
rows-in-any-order: Rows picked by positions in any order, by small tasks
    kinds: small-tasks
    tasks: shuffle-split* shuffle-taker* *-shuffle-split*
    share: 0.3
    Sort the positions, or shuffle within chunks and change the order of these: each is cut for each other.
shuffled-by-tasks: A shuffle by tasks, one for each part of each partition
    kinds: small-tasks
    tasks: split-taskshuffle* group-taskshuffle* taskshuffle* split-stage* group-stage*
    share: 0.3
    Pass shuffle_method="p2p", or have fewer partitions: by tasks, each part of each has a task of its own.
sorted-by-small-tasks: set_index computes its input, and shuffles it, by small tasks
    kinds: small-tasks
    tasks: repartitionquantiles* set_partitions_pre* shuffle-transfer* p2pshuffle* sort_index* min max
    also-tasks: repartitionquantiles*
    share: 0.3
    Do without it, or pass divisions= or sorted=True, or have fewer partitions: it reads its input twice.
repartition: Small tasks of repartition
    kinds: small-tasks
    tasks: repartition*
    Read or write partitions of the right size from the start, or join fewer: npartitions= of repartition.
cut-overlaps: Overlaps of chunks, cut and joined by small tasks
    kinds: small-tasks
    tasks: getitem* concatenate* *overlap*
    also-tasks: *overlap*
    Pass depth= for just the axes that need it, or larger chunks: each is cut for all of its neighbours.
""",
    PAGE,
)
