"""Recipes: one table of the cures of known patterns, and the one that fits a loss."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

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
    """
xarray-compares: open_mfdataset compares what all files have
    kinds: client one-by-one loops idle idle/parallelism waits python
    stack: xarray/backends/api.py open_mfdataset > xarray/*/merge.py unique_variable
    stack: xarray/backends/api.py open_mfdataset > xarray/*/concat.py _calc_concat_over*
    stack: xarray/*/concat.py concat > xarray/*/concat.py _calc_concat_over*
    share: 0.3
    Pass compat="override" and coords="minimal": they take coordinates from the first file, unread in others.
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
    Make one graph on the client, where tasks take results as arguments: these hold threads while they wait.
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
json: Parsing JSON text by text, in Python
    kinds: python busy
    stack: json/__init__.py load|loads
    stack: json/decoder.py *
    Read whole files, by pandas.read_json(lines=True) or pyarrow.json, or use orjson; keep them as Parquet.
strptime: Dates that Python parses one by one
    kinds: python busy
    stack: _strptime.py *
    Parse whole columns, by pandas.to_datetime(texts, format=...), or ISO dates by datetime.fromisoformat().
csv-module: Reading rows by Python's csv module
    kinds: python busy
    stack: csv.py DictReader.*
    Use pandas.read_csv or pyarrow.csv, which parse whole blocks of a file without the GIL.
markup: Parsing XML, HTML or YAML in Python
    kinds: python busy
    stack: xml/etree/ElementTree.py XML|fromstring|parse|iterparse|ElementTree.parse
    stack: xml/sax/* *
    stack: xml/dom/expatbuilder.py *
    stack: html/parser.py *
    stack: bs4/* *
    stack: yaml/composer.py *
    Keep what you need of each file as Parquet, once; use lxml for XML, and CSafeLoader for YAML.
excel: Reading Excel files cell by cell, in Python
    kinds: python busy
    stack: openpyxl/* *
    stack: xlrd/* *
    stack: pandas/io/excel/* read_excel|ExcelFile.*
    unless: pandas/io/excel/_calamine.py *
    unless: openpyxl/writer/* *
    unless: openpyxl/cell/_writer.py *
    unless: pandas/core/generic.py NDFrame.to_excel
    Write them as Parquet or CSV once, or pass engine="calamine": here each cell is a Python object.
decompressing: Decompressing whole files, each in one task
    kinds: python busy
    stack: gzip.py GzipFile.read*|_GzipReader.*|decompress
    stack: bz2.py BZ2File.read*
    stack: lzma.py LZMAFile.read*
    Write many files, or Parquet, whose parts are compressed one by one: no task can begin within such a file.
grown: Arrays or frames that grow in a loop
    kinds: python busy
    stack: numpy/lib/*function_base* append
    stack: pandas/core/indexing.py *._setitem_with_indexer_missing
    Collect the parts in a list, and make one array or frame of them at the end: each step copies all rows.
rows-by-loc: Python by row, by loc, iloc or at
    kinds: python busy
    stack: pandas/core/indexing.py *
    also: pandas/core/indexing.py * > pandas/core/frame.py DataFrame._get_value
    also: pandas/core/indexing.py _ScalarAccessIndexer.*|_AtIndexer.*
    also: pandas/core/frame.py DataFrame._ixs > pandas/core/internals/managers.py BlockManager.fast_xs
    Write the loop for whole columns, or at least use itertuples() or arrays of to_numpy().
loads-models: Loading a model in tasks
    kinds: busy thread-noncpu/file thread-noncpu/network
    stack: torch/serialization.py load
    stack: torch/nn/modules/module.py Module.load_state_dict
    stack: transformers/* *.from_pretrained
    stack: keras/* load_model
    stack: spacy/* load
    also: torch/nn/modules/module.py Module.load_state_dict
    also: transformers/* *.from_pretrained
    also: keras/* load_model
    also: spacy/* load
    Load it once in each worker: by functools.cache, a WorkerPlugin, or client.scatter(broadcast=True).
aws-clients: Making a client of AWS in each task
    kinds: python busy waits
    stack: boto3/session.py Session.client|Session.resource|Session.__init__
    stack: botocore/session.py Session.create_client
    Keep one client in each worker, by functools.cache: making one reads hundreds of files and asks for keys.
drawing: Drawing figures, in Python
    kinds: python busy
    stack: matplotlib/* *
    unless-fact: one-thread-each
    Use workers with one thread each, and Figure() in place of pyplot, which is not for threads.
graphs-in-python: Graphs of Python objects, in networkx
    kinds: python busy
    stack: networkx/* *
    unless-fact: one-thread-each
    Use rustworkx, igraph or scipy.sparse.csgraph, whose graphs are arrays, or workers with one thread each.
geometries: Geometries one by one, in Python
    kinds: python busy
    stack: shapely/geometry/* *
    unless: shapely/geometry/* *.__reduce__|*.__setstate__
    unless: shapely/io.py *
    Use functions of whole arrays, shapely.contains(polygons, points), or sjoin() of GeoPandas.
pandas-rows: Python by row, in DataFrame.apply(axis=1)
    kinds: python
    stack: pandas/core/apply.py FrameApply.apply_standard
    stack: pandas/core/apply.py FrameColumnApply.*
    also: pandas/core/apply.py FrameColumnApply.*
    Write it for whole columns, such as df.a / df.b ** 2: that needs no Python by row, and no GIL.
pandas-iterrows: Python by row, in DataFrame.iterrows()
    kinds: python
    stack: pandas/core/frame.py DataFrame.iterrows
    share: 0.2
    Write the loop for whole columns, or at least use itertuples(), which makes no Series of each row.
groupby-apply: Python by group, in groupby().apply
    kinds: python
    stack: pandas/core/groupby/ops.py *.apply_groupwise|*._aggregate_series_pure_python
    stack: pandas/core/groupby/generic.py *._aggregate_frame|*._python_agg_general|*._transform_general
    Use agg() or transform() with names of pandas' own, such as "mean", or whole columns before the groupby.
pandas-values: Python by value, in Series.apply or map
    kinds: python
    stack: pandas/core/apply.py SeriesApply.apply_standard > .
    stack: pandas/core/algorithms.py map_array > .
    Use methods of whole columns: arithmetic, .str, .dt, numpy.where, or map() with a dict.
pandas-text: Text as Python objects, in pandas
    kinds: python
    stack: pandas/core/strings/object_array.py *
    unless: pandas/core/arrays/string_arrow.py *
    unless: pandas/core/arrays/arrow/* *
    Keep text in string[pyarrow] columns, whose methods run without the GIL.
pandas-dates: Dates that pandas parses one by one
    kinds: python
    stack: dateutil/parser/* *
    stack: pandas/core/tools/datetimes.py _array_strptime*
    stack: pandas/core/arrays/datetimes.py objects_to_datetime64
    Pass format= to to_datetime, or date_format= to read_csv, or "ISO8601" where they are.
garbage: Garbage collection of many objects
    kinds: python
    stack: distributed/gc.py GCDiagnosis.*
    share: 0.3
    Make arrays or tables of them, or call gc.freeze() once they are there: each collection visits all.
csv-python: read_csv with its Python engine
    kinds: python
    stack: pandas/io/parsers/python_parser.py *
    Use the C engine, or engine="pyarrow": a separator of one character, and no skipfooter=.
numpy-vectorize: Python by value, in numpy.vectorize
    kinds: python
    stack: numpy/lib/*function_base* vectorize.*
    stack: numpy/lib/*shape_base* apply_along_axis
    Write it with functions of whole arrays, or compile it by numba.vectorize: this is a loop in Python.
bags: Python by item, in a Bag
    kinds: python
    stack: dask/bag/* *
    unless-fact: one-thread-each
    Turn it into a dataframe or array early, by to_dataframe(), or use processes: items are Python objects.
deepcopy: Copies of Python objects, one by one
    kinds: python
    stack: copy.py deepcopy
    Copy less: deepcopy() goes through each object in Python; an array's or a frame's own copy() does not.
csv-one-file: Threads idle: partitions go into one CSV file in turn
    kinds: idle/parallelism
    tasks: *write_csv* *write-csv*
    Write a file for each partition, to_csv("part-*.csv"), or Parquet: single_file=True appends them in turn.
np-load: Reading whole files by numpy.load
    kinds: thread-noncpu/file
    stack: numpy/lib/*npyio* load
    stack: numpy/lib/*format* read_array
    If tasks use parts of files, pass mmap_mode="r", so that they read these only; else, read larger files.
xarray-groupby: Tasks are too small for Dask: groupby cuts chunks by group
    kinds: small-tasks
    stack: xarray/*/groupby.py *
    Give each chunk all of the grouped dimension, and use xarray.map_blocks(); or flox, for reductions alone.
xarray-groups: groupby builds tasks for each group of each chunk
    kinds: client
    stack: xarray/*/groupby.py * > dask/* *
    Use xarray.map_blocks() on chunks with all of the grouped dimension, or flox: these build few tasks.
parquet-files: Tasks are too small for Dask; many read Parquet files
    kinds: small-tasks
    tasks: read*parquet* *readparquet*
    share: 0.2
    Write fewer and larger files, of some 100 MB, or read several at a time by blocksize= of read_parquet.
parquet-metadata: Reading the metadata of many Parquet files
    kinds: client
    stack: dask/dataframe/*parquet* *_collect_statistics*|*.fragments*|*_dataset_info|*.checksum|*_plan|*aggregate*
    stack: dask/dataframe/io/parquet/* *
    Write fewer and larger files, of some 100 MB: the client looks at each before the work begins.
set-index: set_index computes its column first
    kinds: client repeats loops idle idle/parallelism
    stack: dask/dataframe/*shuffle.py *_calculate_divisions|*_get_divisions|*._divisions*
    Pass divisions=, or sorted=True for sorted data, or persist() before: it computes the column twice.
repartition-size: repartition(partition_size=) computes all sizes first
    kinds: client repeats loops idle idle/parallelism
    stack: dask/dataframe/*repartition.py RepartitionSize.*
    Pass npartitions=, or read partitions of that size: else everything is computed to know their sizes.
from-delayed: from_delayed computes its first part for its columns
    kinds: client one-by-one idle idle/parallelism
    stack: dask/dataframe/*delayed.py from_delayed|FromDelayed._meta > dask/base.py *compute
    Pass meta=, an empty frame with the columns, or use from_map(), for which Dask plans better.
len-of-frame: len() computes the whole dataframe
    kinds: client repeats one-by-one idle idle/parallelism
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
repartition: Small tasks of repartition
    kinds: small-tasks
    tasks: repartition*
    Read or write partitions of the right size from the start, or join fewer: npartitions= of repartition.
""",
    PAGE,
)
