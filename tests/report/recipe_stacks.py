"""Stacks for the recipes: recorded of real threads, or written after the source of libraries that are not installed.

A stack is written as ``"FILE FUNCTION > FILE FUNCTION"``, the outermost frame first: a file is one of an installed package,
after ``~`` one of the standard library, after ``me/`` the user's own.
"""

# ruff: noqa: E501

from __future__ import annotations

from dask_efficiency.accounts.lines import Frame, Stack


def stack_of(*frames: str) -> Stack:
    """Stack of such frames."""
    return tuple(map(_frame, frames))


def _frame(text: str) -> Frame:
    file, _, function = text.rpartition(" ")
    if file.startswith("<"):
        return Frame(function, file, 1)
    if file.startswith("~"):
        return Frame(function, f"/usr/lib/python3.12/{file[1:]}", 1)
    if file.startswith("me/"):
        return Frame(function, f"/home/me/project/{file[3:]}", 1)
    return Frame(function, f"/opt/venv/lib/python3.12/site-packages/{file}", 1)


def _seen(name: str, kind: str, *stacks: str) -> tuple[str, str, dict[Stack, int]]:
    return name, kind, _stacks(*stacks)


def _stacks(*stacks: str) -> dict[Stack, int]:
    """Stacks, each ``WEIGHT: frame > frame``."""
    found = {}
    for text in stacks:
        weight, _, frames = text.partition(": ")
        found[stack_of(*frames.split(" > "))] = int(weight)
    return found


_LOCK, _GIL, _NETWORK, _FILE = "thread-noncpu/lock", "thread-noncpu/gil", "thread-noncpu/network", "thread-noncpu/file"
_CHILD, _SCHEDULER, _CLUSTER = "thread-noncpu/child-process", "idle/scheduler", "thread-noncpu/cluster"

_XARRAY_READ = (
    "dask/array/core.py getter > xarray/core/indexing.py ImplicitToExplicitIndexingAdapter.__array__ > "
    "xarray/core/indexing.py explicit_indexing_adapter > xarray/backends/netCDF4_.py NetCDF4ArrayWrapper._getitem"
)
_APPLY = (
    "dask/dataframe/core.py apply_and_enforce > dask/utils.py methodcaller.__call__ > pandas/core/frame.py DataFrame.apply > "
    "pandas/core/apply.py FrameApply.apply"
)
_OPEN = "me/load.py main > xarray/backends/api.py open_mfdataset"
_FSSPEC = "fsspec/asyn.py sync_wrapper.<locals>.wrapper > fsspec/asyn.py sync > ~threading.py Event.wait"

#: Recipe, kind of finding, and stacks with their weights.
SEEN = [
    _seen(
        "xarray-groupby",
        "small-tasks",
        "6: me/days.py main > xarray/core/groupby.py GroupBy._binary_op > xarray/core/common.py full_like",
        "3: me/days.py main > dask/array/core.py elemwise",
    ),
    _seen(
        "xarray-groups",
        "client",
        "9: me/days.py main > xarray/core/groupby.py GroupBy._binary_op > dask/array/core.py map_blocks",
    ),
    _seen("xarray-lock", _LOCK, f"9: {_XARRAY_READ} > dask/utils.py SerializableLock.__enter__", f"1: {_XARRAY_READ}"),
    _seen("xarray-lock", _LOCK, "5: me/load.py f > xarray/backends/locks.py CombinedLock.__enter__"),
    _seen(
        "xarray-compares",
        "client",
        f"4: {_OPEN} > xarray/structure/combine.py _nested_combine > xarray/structure/concat.py _dataset_concat > "
        "xarray/structure/merge.py unique_variable > xarray/core/variable.py Variable.compute > distributed/client.py Client.get",
        f"3: {_OPEN} > xarray/backends/api.py open_dataset > xarray/backends/netCDF4_.py NetCDF4DataStore.open",
    ),
    _seen(
        "xarray-compares",
        "idle/parallelism",
        "2: me/load.py main > xarray/structure/concat.py concat > xarray/structure/concat.py _calc_concat_over > "
        "dask/base.py DaskMethodsMixin.compute",
    ),
    _seen(
        "xarray-coordinates",
        "computed-first",
        "4: me/melt.py main > xarray/core/dataarray.py DataArray._binary_op > xarray/structure/merge.py unique_variable > "
        "xarray/core/variable.py Variable.broadcast_equals > dask/base.py DaskMethodsMixin.compute",
    ),
    _seen(
        "set-index-again",
        "repeats",
        "5: me/a.py f > dask/base.py DaskMethodsMixin.compute > distributed/client.py Client.gather",
        "1: me/a.py f > dask/base.py DaskMethodsMixin.compute > dask/dataframe/dask_expr/_shuffle.py _get_divisions > "
        "dask/dataframe/dask_expr/_shuffle.py _calculate_divisions > dask/base.py compute",
    ),
    _seen("xarray-opens", "client", f"9: {_OPEN} > xarray/backends/api.py open_dataset", f"4: {_OPEN} > x/y.py z"),
    _seen(
        "to-netcdf",
        _LOCK,
        "7: dask/array/core.py load_store_chunk > xarray/backends/netCDF4_.py NetCDF4ArrayWrapper.__setitem__ > "
        "xarray/backends/locks.py CombinedLock.__enter__",
    ),
    _seen("store-lock", _LOCK, "7: dask/array/core.py load_store_chunk > dask/utils.py SerializableLock.acquire"),
    _seen("hdf5-lock", _LOCK, "7: me/load.py read > h5py/_hl/dataset.py Dataset.__getitem__"),
    _seen("hdf5-lock", _LOCK, "7: me/load.py read > pandas/io/pytables.py HDFStore.select > tables/file.py open_file"),
    _seen("rasterio-lock", _LOCK, "7: dask/array/core.py getter > rioxarray/_io.py RasterioArrayWrapper._getitem"),
    _seen(
        "s3fs-lists",
        _LOCK,
        f"7: me/load.py read > fsspec/spec.py AbstractFileSystem.glob > {_FSSPEC}",
    ),
    _seen("s3fs-lists", _NETWORK, "7: me/load.py read > s3fs/core.py S3FileSystem._lsdir"),
    _seen(
        "zarr", _LOCK, "7: dask/array/core.py getter > zarr/core/array.py Array.__getitem__ > zarr/core/sync.py sync"
    ),
    _seen("zarr", _FILE, "7: dask/array/core.py getter > zarr/core.py Array._chunk_getitem > zarr/storage.py get"),
    _seen(
        "object-store",
        _LOCK,
        "7: me/load.py read > fsspec/spec.py AbstractBufferedFile.read > fsspec/caching.py ReadAheadCache._fetch > "
        f"s3fs/core.py S3File._fetch_range > {_FSSPEC}",
    ),
    _seen("object-store", _LOCK, f"7: me/load.py read > gcsfs/core.py GCSFile._fetch_range > {_FSSPEC}"),
    _seen(
        "requests-connects",
        _NETWORK,
        "3: me/get.py page > requests/api.py get > urllib3/connectionpool.py HTTPConnectionPool.urlopen > "
        "urllib3/connection.py HTTPSConnection.connect > urllib3/util/ssl_.py ssl_wrap_socket > ~ssl.py SSLSocket.do_handshake",
        "7: me/get.py page > requests/api.py get > urllib3/connectionpool.py HTTPConnectionPool._make_request > ~ssl.py read",
    ),
    _seen("http", _NETWORK, "7: me/get.py page > requests/sessions.py Session.send > ~socket.py SocketIO.readinto"),
    _seen("http", _NETWORK, "7: me/get.py page > ~urllib/request.py urlopen > ~http/client.py HTTPResponse.begin"),
    _seen(
        "sql-pool",
        _LOCK,
        "7: me/db.py rows > sqlalchemy/engine/base.py Engine.connect > sqlalchemy/pool/impl.py QueuePool._do_get > "
        "sqlalchemy/util/queue.py Queue.get",
    ),
    _seen(
        "sql-connects",
        _NETWORK,
        "4: me/db.py rows > sqlalchemy/pool/base.py _ConnectionRecord.__connect > psycopg2/__init__.py connect",
        "5: me/db.py rows > sqlalchemy/engine/default.py DefaultDialect.do_execute",
    ),
    _seen(
        "sqlite-lock",
        _LOCK,
        "7: me/db.py add > sqlalchemy/engine/base.py Connection.execute > sqlalchemy/engine/default.py DefaultDialect.do_execute",
    ),
    _seen("sql", _NETWORK, "7: me/db.py rows > sqlalchemy/engine/default.py DefaultDialect.do_execute"),
    _seen("sql", _NETWORK, "7: dask/dataframe/io/sql.py _read_sql_chunk > pandas/io/sql.py read_sql > pymysql/x.py f"),
    _seen(
        "joblib",
        _LOCK,
        "7: me/fit.py fit > sklearn/ensemble/_forest.py BaseForest.fit > sklearn/utils/parallel.py Parallel.__call__ > "
        "joblib/parallel.py Parallel.__call__ > joblib/parallel.py Parallel._retrieve",
    ),
    _seen("processes", _LOCK, "7: me/blur.py blur > ~multiprocessing/pool.py Pool.map > ~threading.py Event.wait"),
    _seen("processes", _CHILD, "7: me/blur.py blur > dask/multiprocessing.py get > ~concurrent/futures/process.py f"),
    _seen("pools", _CHILD, "7: me/blur.py blur > ~concurrent/futures/_base.py Future.result"),
    _seen(
        "nested-compute",
        _LOCK,
        "7: me/nest.py total > dask/base.py DaskMethodsMixin.compute > dask/base.py compute > distributed/client.py Client.get",
    ),
    _seen("nested-compute", _CLUSTER, "7: me/nest.py total > dask/base.py compute > distributed/client.py Client.get"),
    _seen(
        "nested-compute",
        _LOCK,
        "7: me/nest.py total > dask/base.py compute > dask/threaded.py get > dask/local.py get_async > ~queue.py Queue.get",
    ),
    _seen(
        "imports",
        _GIL,
        "7: me/fit.py fit > <frozen importlib._bootstrap> _find_and_load > sklearn/__init__.py <module>",
    ),
    _seen(
        "models",
        _SCHEDULER,
        "3: distributed/protocol/pickle.py dumps > sklearn/base.py BaseEstimator.__getstate__",
        "7: distributed/protocol/pickle.py dumps",
    ),
    _seen("models", _SCHEDULER, "7: distributed/protocol/pickle.py loads > torch/storage.py _load_from_bytes"),
    _seen(
        "logging",
        _LOCK,
        "7: me/etl.py f > ~logging/__init__.py Logger.info > ~logging/__init__.py Logger._log > ~logging/__init__.py Handler.acquire",
    ),
    _seen("printing", _LOCK, "7: me/etl.py f > distributed/worker.py print"),
    _seen("printing", _LOCK, "7: me/etl.py f > tqdm/std.py tqdm.update > tqdm/std.py TqdmDefaultWriteLock.acquire"),
    _seen(
        "pandas-rows",
        _GIL,
        f"4: {_APPLY}_standard > pandas/core/apply.py FrameApply.apply_series_generator > me/bmi.py body_mass_index > "
        "pandas/core/series.py Series.__getitem__",
        f"3: {_APPLY}_standard > pandas/core/apply.py FrameApply.apply_series_generator > "
        "pandas/core/apply.py FrameColumnApply.series_generator > pandas/core/internals/managers.py SingleBlockManager.set_values",
    ),
    _seen("json", _GIL, "7: me/a.py parse > ~json/__init__.py loads > ~json/decoder.py JSONDecoder.decode"),
    _seen(
        "json",
        "busy",
        "7: dask/bag/core.py reify > me/a.py f > ~json/decoder.py JSONDecoder.raw_decode",
        "3: me/a.py f",
    ),
    _seen("strptime", _GIL, "7: me/a.py f > ~_strptime.py _strptime_datetime > ~_strptime.py _strptime"),
    _seen("csv-module", "busy", "7: me/a.py rows > ~csv.py DictReader.__next__"),
    _seen("markup", "busy", "7: me/a.py f > ~xml/etree/ElementTree.py XML"),
    _seen("markup", _GIL, "7: me/a.py f > yaml/__init__.py safe_load > yaml/composer.py Composer.compose_node"),
    _seen("excel", _GIL, "7: me/a.py f > pandas/io/excel/_base.py read_excel > openpyxl/worksheet/_reader.py x"),
    _seen(
        "decompressing",
        "loading",
        "7: pandas/io/parsers/readers.py read_csv > pandas/io/parsers/c_parser_wrapper.py CParserWrapper.read > "
        "~gzip.py GzipFile.read > ~_compression.py DecompressReader.readinto > ~gzip.py _GzipReader.read",
        "4: pandas/io/parsers/readers.py read_csv > pandas/io/parsers/c_parser_wrapper.py CParserWrapper.read",
    ),
    _seen("grown", "busy", "7: me/a.py f > numpy/lib/_function_base_impl.py append"),
    _seen(
        "grown",
        _GIL,
        "7: me/a.py f > pandas/core/indexing.py _LocationIndexer.__setitem__ > "
        "pandas/core/indexing.py _iLocIndexer._setitem_with_indexer_missing > pandas/core/frame.py DataFrame._append_internal",
    ),
    _seen(
        "rows-by-loc",
        _GIL,
        "2: me/a.py f > pandas/core/indexing.py _LocationIndexer.__getitem__ > pandas/core/frame.py DataFrame._get_value",
        "2: me/a.py f > pandas/core/indexing.py _LocationIndexer.__getitem__ > "
        "pandas/core/indexing.py _iLocIndexer._getitem_axis > pandas/core/frame.py DataFrame._ixs",
        "3: me/a.py f > pandas/core/indexing.py _LocationIndexer.__getitem__",
        "2: me/a.py f",
    ),
    _seen(
        "loads-models",
        "busy",
        "7: me/a.py f > torch/serialization.py load > torch/serialization.py _load",
        "1: me/a.py f > torch/nn/modules/module.py Module.load_state_dict",
    ),
    _seen(
        "aws-clients",
        "busy",
        "7: me/a.py f > boto3/session.py Session.client > botocore/session.py Session.create_client",
    ),
    _seen("drawing", _GIL, "7: me/a.py plot > matplotlib/figure.py Figure.savefig > matplotlib/axes/_base.py draw"),
    _seen(
        "graphs-in-python",
        "busy",
        "7: me/a.py f > networkx/algorithms/shortest_paths/weighted.py _dijkstra_multisource",
    ),
    _seen(
        "geometries",
        _GIL,
        "7: me/a.py f > shapely/geometry/base.py BaseGeometry.contains > shapely/predicates.py contains",
    ),
    _seen("pandas-iterrows", _GIL, "4: me/a.py f > pandas/core/frame.py DataFrame.iterrows", "6: me/a.py f"),
    _seen(
        "groupby-apply",
        _GIL,
        "7: dask/dataframe/dask_expr/_groupby.py _groupby_slice_apply > pandas/core/groupby/groupby.py GroupBy.apply > "
        "pandas/core/groupby/ops.py BaseGrouper.apply_groupwise > me/a.py ratio",
    ),
    _seen("groupby-apply", _GIL, "7: pandas/core/groupby/ops.py BaseGrouper._aggregate_series_pure_python > me/a.py f"),
    _seen(
        "pandas-values", _GIL, "7: pandas/core/series.py Series.map > pandas/core/algorithms.py map_array > me/a.py f"
    ),
    _seen(
        "arrays-by-value",
        "busy",
        "7: pandas/core/algorithms.py map_array > me/a.py height > numpy/lib/_function_base_impl.py interp > "
        "<built-in> interp_func(float,list)",
    ),
    _seen(
        "pandas-text",
        _GIL,
        "7: me/a.py f > pandas/core/strings/accessor.py StringMethods.upper > "
        "pandas/core/strings/object_array.py ObjectStringArrayMixin._str_map",
    ),
    _seen(
        "xarray-map",
        "busy",
        "6: me/dry.py tile > xarray/core/groupby.py DataArrayGroupByBase.map > xarray/structure/concat.py concat > me/dry.py spell > "
        "xarray/core/_aggregations.py DataArrayAggregations.cumsum",
        "3: me/dry.py tile > xarray/core/groupby.py DataArrayGroupByBase._iter_grouped",
    ),
    _seen(
        "database-scans",
        "reads-again",
        "7: me/day.py read > pandas/io/sql.py read_sql_query > pandas/io/sql.py SQLDatabase.execute",
    ),
    _seen("sorting", "busy", "7: dask/utils.py methodcaller.__call__ > pandas/core/frame.py DataFrame.sort_values"),
    _seen("compressing", "busy", "7: zarr/core/array.py Array.__setitem__ > numcodecs/blosc.py Blosc.encode"),
    _seen(
        "written",
        "busy",
        "7: pyarrow/parquet/core.py write_table > pyarrow/parquet/core.py ParquetWriter.write_table",
    ),
    _seen(
        "written",
        "busy",
        "7: me/a.py f > xarray/core/dataset.py Dataset.to_netcdf > xarray/backends/netCDF4_.py NetCDF4DataStore.close",
    ),
    _seen(
        "pandas-keys",
        "busy",
        "6: dask/dataframe/groupby.py _apply_chunk > pandas/core/groupby/grouper.py Grouping._codes_and_uniques > "
        "pandas/core/algorithms.py factorize > pandas/core/algorithms.py factorize_array",
        "1: pandas/core/algorithms.py factorize_array > pandas/core/dtypes/missing.py _isna_string_dtype",
        "7: dask/dataframe/groupby.py _apply_chunk > pandas/core/groupby/ops.py WrappedCythonOp._call_cython_op",
    ),
    _seen("pandas-dates", _GIL, "7: pandas/core/tools/datetimes.py to_datetime > dateutil/parser/_parser.py parse"),
    _seen(
        "csv-python",
        _GIL,
        "7: pandas/io/parsers/readers.py read_csv > pandas/io/parsers/python_parser.py PythonParser.read",
    ),
    _seen(
        "meta",
        "client",
        "7: me/job.py main > dask/dataframe/dask_expr/_collection.py map_partitions > dask/dataframe/dask_expr/_expr.py emulate > me/m.py f",
    ),
    _seen(
        "meta",
        "client",
        "7: me/job.py main > dask/array/core.py map_blocks > dask/array/utils.py compute_meta > me/m.py f",
    ),
    _seen(
        "restart", "client", "7: me/job.py main > distributed/client.py Client.restart > ~threading.py Condition.wait"
    ),
    _seen("wait-for-workers", "client", "7: me/job.py main > distributed/client.py Client.wait_for_workers"),
    _seen(
        "many-positions",
        "client",
        "4: me/job.py main > xarray/core/variable.py Variable.isel > xarray/core/indexing.py DaskIndexingAdapter._oindex_get",
        "4: me/job.py main > dask/array/slicing.py take > dask/array/_shuffle.py _shuffle",
    ),
    _seen(
        "partition-on",
        "busy",
        "7: dask/dataframe/io/parquet/arrow.py _write_partitioned > fsspec/spec.py AbstractFileSystem.open",
    ),
    _seen("actors", "client", "7: me/job.py main > distributed/actor.py ActorFuture.result > ~threading.py Event.wait"),
    _seen(
        "delayed-takes-collections",
        "client",
        "9: me/fit.py main > dask/delayed.py DelayedLeaf.__call__ > dask/delayed.py unpack_collections > "
        "dask/_expr.py HLGExpr._optimized_dsk > dask/array/optimization.py optimize",
    ),
    _seen(
        "joblib-on-dask",
        "client",
        "9: me/fit.py main > joblib/parallel.py Parallel.__call__ > joblib/parallel.py Parallel._retrieve",
        "1: me/fit.py main > joblib/parallel.py Parallel.__call__ > joblib/_dask.py DaskDistributedBackend.stop_call",
    ),
    _seen("scatter", "client", "7: me/job.py main > distributed/client.py Client.scatter > ~threading.py Event.wait"),
    _seen(
        "scatter-in-turn",
        "small-tasks",
        "9: me/job.py main > distributed/client.py Client.scatter > ~threading.py Event.wait",
        "2: me/job.py main > distributed/client.py Client.submit",
    ),
    _seen("sizes-of-chunks", "client", "7: me/job.py main > dask/array/core.py Array.compute_chunk_sizes"),
    _seen("array-on-client", "client", "7: me/job.py main > dask/array/core.py Array.__array__"),
    _seen("frame-by-row", "client", "7: me/job.py main > dask/dataframe/dask_expr/_collection.py DataFrame.iterrows"),
    _seen(
        "unobserved",
        "shuffling",
        "1: pandas/core/groupby/ops.py BaseGrouper.result_index_and_ids > pandas/core/groupby/ops.py BaseGrouper._unob_index_and_ids",
        "9: distributed/shuffle/_shuffle.py split_by_worker",
    ),
    _seen("bag-groupby", "busy", "7: dask/bag/core.py groupby_disk > partd/core.py Interface.append"),
    _seen("shuffled-by-disk", "busy", "7: dask/dataframe/shuffle.py shuffle_group_3 > partd/core.py Interface.append"),
    _seen("compiling", "busy", "7: me/a.py f > numba/core/dispatcher.py Dispatcher._compile_for_args"),
    _seen("archives", "busy", "7: me/a.py f > ~tarfile.py TarFile.getmember > ~tarfile.py TarFile.next"),
    _seen("archives", "busy", "7: me/a.py f > ~zipfile/__init__.py ZipFile.open"),
    _seen("text-tables", "busy", "7: me/a.py f > numpy/lib/_npyio_impl.py genfromtxt"),
    _seen(
        "csv-writer",
        _GIL,
        "7: me/a.py f > pandas/core/generic.py NDFrame.to_csv > pandas/io/formats/csvs.py CSVFormatter.save",
    ),
    _seen("sql-insert", "busy", "7: me/a.py f > pandas/io/sql.py to_sql > pandas/io/sql.py SQLTable.insert"),
    _seen("nan-quantiles", "busy", "7: me/a.py f > numpy/lib/_nanfunctions_impl.py _nanquantile_1d"),
    _seen("masked", "busy", "7: me/a.py f > numpy/ma/core.py MaskedArray.__add__"),
    _seen("expressions", _GIL, "7: me/a.py f > ~re/__init__.py sub > ~re/__init__.py _compile"),
    _seen("diffs", _GIL, "7: me/a.py f > ~difflib.py SequenceMatcher.ratio"),
    _seen("fractions", _GIL, "7: me/a.py f > ~fractions.py Fraction.__new__"),
    _seen("random-numbers", _GIL, "7: me/a.py f > ~random.py Random.randint"),
    _seen("urls", _GIL, "7: me/a.py f > ~urllib/parse.py urlparse"),
    _seen("mails", _GIL, "7: me/a.py f > ~email/feedparser.py FeedParser.feed"),
    _seen("records", _GIL, "7: me/a.py f > ~dataclasses.py asdict > ~dataclasses.py _asdict_inner"),
    _seen("units", _GIL, "7: me/a.py f > astropy/units/quantity.py Quantity.__mul__"),
    _seen(
        "validated",
        "busy",
        "3: me/a.py f > sklearn/tree/_classes.py BaseDecisionTree.predict > sklearn/utils/validation.py check_array",
        "5: me/a.py f > sklearn/tree/_classes.py BaseDecisionTree.predict",
    ),
    _seen(
        "models-by-row",
        "busy",
        "5: pandas/core/apply.py FrameApply.apply_standard > me/a.py f > sklearn/ensemble/_forest.py ForestRegressor.predict",
    ),
    _seen("python-steps", "computing", "7: me/a.py f > scipy/integrate/_quadpack_py.py quad > me/a.py g"),
    _seen("distributions", "busy", "7: me/a.py f > scipy/stats/_distn_infrastructure.py rv_continuous.cdf"),
    _seen("regions", "busy", "7: me/a.py f > skimage/measure/_regionprops.py RegionProperties.area"),
    _seen("images", "busy", "7: me/a.py f > PIL/ImageFile.py ImageFile.load"),
    _seen("symbolic", "busy", "7: me/a.py f > sympy/core/expr.py Expr.__add__"),
    _seen("joined", "busy", "9: me/a.py f > pandas/core/reshape/concat.py concat > pandas/core/internals/concat.py x"),
    _seen("joined", "busy", "9: me/a.py f > numpy/_core/shape_base.py vstack"),
    _seen("pandas-itertuples", "busy", "7: me/a.py f > pandas/core/frame.py DataFrame.itertuples"),
    _seen("rolling-apply", "computing", "7: me/a.py f > pandas/core/window/rolling.py Rolling.apply > me/a.py g"),
    _seen("frames-of-objects", "busy", "7: me/a.py f > pandas/core/frame.py DataFrame.__init__"),
    _seen("xarray-points", "busy", "7: me/a.py f > xarray/core/dataarray.py DataArray.sel"),
    _seen(
        "selections", "busy", "7: me/a.py f > h5py/_hl/dataset.py Dataset.__getitem__ > h5py/_hl/selections.py select"
    ),
    _seen("hdf5-reads", "busy", "7: me/a.py f > h5py/_hl/dataset.py Dataset.__getitem__", "3: me/a.py f"),
    _seen("hdf5-reads", "busy", "7: me/a.py f > tables/earray.py EArray.read"),
    _seen("hdf5-writes", "busy", "7: me/a.py f > h5py/_hl/dataset.py Dataset.__setitem__"),
    _seen("opening", "busy", "7: me/a.py f > h5py/_hl/files.py File.__init__ > h5py/_hl/files.py make_fid"),
    _seen("opening", "busy", "7: me/a.py f > <built-in> File", "3: me/a.py f > h5py/_hl/dataset.py Dataset.shape"),
    _seen("opening", "busy", "7: me/a.py f > numpy/lib/_npyio_impl.py load > numpy/lib/_format_impl.py open_memmap"),
    _seen("listing", "busy", "7: me/a.py f > ~pathlib.py Path.rglob > ~pathlib.py _WildcardSelector._select_from"),
    _seen("listing", "busy", "7: me/a.py f > ~pathlib/_local.py Path.glob > ~glob.py _GlobberBase.select_recursive"),
    _seen("listing", _FILE, "7: me/a.py f > ~glob.py glob > ~glob.py _iglob > ~glob.py _listdir"),
    _seen("listing", "busy", "7: me/a.py f > ~os.py walk"),
    _seen("listing", "busy", "7: me/a.py f > fsspec/implementations/local.py LocalFileSystem.ls"),
    _seen("compared-objects", "computing", "7: me/a.py f > numpy/lib/_arraysetops_impl.py isin", "9: me/a.py g"),
    _seen("compared-objects", _GIL, "7: me/a.py f > numpy/_core/fromnumeric.py sort > <built-in> sort"),
    _seen("garbage", _GIL, "7: me/a.py f > distributed/gc.py GCDiagnosis._gc_callback", "9: me/a.py f"),
    _seen("numpy-vectorize", _GIL, "7: me/a.py f > numpy/lib/_function_base_impl.py vectorize.__call__ > me/a.py g"),
    _seen("numpy-vectorize", _GIL, "7: me/a.py f > numpy/lib/_shape_base_impl.py apply_along_axis > me/a.py <lambda>"),
    _seen("bags", _GIL, "7: dask/bag/core.py reify > me/words.py count"),
    _seen("deepcopy", _GIL, "7: me/a.py f > ~copy.py deepcopy > ~copy.py _deepcopy_dict > ~copy.py deepcopy"),
    _seen("np-load", _FILE, "7: me/a.py f > numpy/lib/_npyio_impl.py load > numpy/lib/_format_impl.py read_array"),
    _seen(
        "parquet-metadata",
        "client",
        "7: me/a.py f > dask/dataframe/dask_expr/io/parquet.py ReadParquetPyarrowFS._dataset_info > pyarrow/dataset.py dataset",
    ),
    _seen(
        "set-index",
        "client",
        "7: me/a.py f > dask/dataframe/dask_expr/_collection.py DataFrame.set_index > "
        "dask/dataframe/dask_expr/_shuffle.py _calculate_divisions > dask/base.py compute > distributed/client.py Client.get",
    ),
    _seen(
        "repartition-size",
        "client",
        "7: me/a.py f > dask/dataframe/dask_expr/_collection.py FrameBase.compute > dask/_expr.py Expr.optimize > "
        + 20 * "dask/_expr.py Expr.lower_once > "
        + "dask/dataframe/dask_expr/_repartition.py RepartitionSize._lower > dask/base.py compute",
    ),
    _seen(
        "vindex",
        "client",
        "7: me/a.py f > dask/utils.py IndexCallable.__getitem__ > dask/array/core.py Array._vindex > "
        "dask/array/core.py _vindex_array > numpy/_core/multiarray.py min_scalar_type",
    ),
    _seen("vindex", "busy", "7: dask/_task_spec.py Task.__call__ > dask/array/core.py _vindex_slice_and_transpose"),
    _seen(
        "models",
        "client",
        "7: me/a.py f > distributed/client.py Client.submit > distributed/protocol/pickle.py dumps > torch/storage.py f",
    ),
    _seen(
        "from-delayed",
        "client",
        "7: me/a.py f > dask/dataframe/dask_expr/io/_delayed.py from_delayed > dask/base.py compute",
    ),
    _seen(
        "len-of-frame",
        "client",
        "7: me/a.py f > dask/dataframe/dask_expr/_collection.py FrameBase.__len__ > dask/base.py f",
    ),
    _seen(
        "tokenize",
        "client",
        "7: me/a.py f > dask/array/core.py from_array > dask/tokenize.py register_numpy.<locals>.normalize_array",
    ),
    *(
        _seen(name, kind, f"7: me/a.py f > {inner}")
        for name, kind, inner in (
            (
                "steps-back",
                "busy",
                "~tarfile.py ExFileObject.read > ~gzip.py GzipFile.seek > ~_compression.py DecompressReader.seek",
            ),
            ("steps-back", "reads-again", "nibabel/fileslice.py fileslice > ~gzip.py GzipFile.seek"),
            ("json-written", _GIL, "~json/__init__.py dump > ~json/encoder.py _make_iterencode.<locals>._iterencode"),
            ("patterns", _GIL, "<built-in> match(Pattern,str)"),
            ("argument-caches", "busy", "joblib/memory.py MemorizedFunc.__call__ > joblib/hashing.py hash"),
            (
                "stiff-systems",
                "computing",
                "scipy/integrate/_ivp/ivp.py solve_ivp > scipy/integrate/_ivp/rk.py rk_step",
            ),
            (
                "small-replies",
                "busy",
                "requests/models.py Response.iter_content.<locals>.generate > urllib3/response.py f",
            ),
            ("database-scans", "reads-again", "<built-in> execute(Connection,str)"),
            ("list-search", _GIL, "<built-in> in(str,list)"),
            ("list-search", "busy", "<built-in> index(list,int)"),
            ("list-front", _GIL, "<built-in> pop(list,0)"),
            ("array-search", "computing", "<built-in> in(?,array(int64))"),
            ("builtins-on-arrays", _GIL, "<built-in> sum(array(float64))"),
            ("builtins-on-arrays", "busy", "<built-in> set(array(uint16))"),
            ("integer-products", "busy", "<built-in> @(array(int64),array(int64))"),
            (
                "integer-products",
                "busy",
                "numpy/_core/numeric.py tensordot > <built-in> dot(array(int32),array(int32))",
            ),
            ("integer-products", "busy", "<built-in> @(int8,array(int8))"),
            ("half-floats", "busy", "<built-in> *(array(float16),array(float16))"),
            ("long-floats", "busy", "<built-in> +(array(float64),array(longdouble))"),
            ("object-arrays", "busy", "<built-in> +(array(object),array(object))"),
            ("object-arrays", "computing", "<built-in> sort(array(object))"),
            ("text-arrays", "busy", "<built-in> ==(array(text),str)"),
            ("arrays-of-lists", _GIL, "<built-in> array(list)"),
            ("einsum", "busy", "numpy/_core/einsumfunc.py einsum > <built-in> c_einsum"),
            ("inverses", "busy", "numpy/linalg/_linalg.py inv"),
            ("fits", "computing", "numpy/lib/_polynomial_impl.py polyfit > numpy/linalg/_linalg.py lstsq"),
            ("curve-fits", "busy", "scipy/optimize/_minpack_py.py curve_fit > scipy/optimize/_minpack_py.py leastsq"),
            ("interpolation", "busy", "scipy/interpolate/_ndgriddata.py griddata"),
            ("interpolators", "computing", "scipy/interpolate/_interpolate.py interp1d.__init__"),
            ("regridding", "busy", "xesmf/frontend.py Regridder.__init__ > xesmf/backend.py esmf_regrid_build"),
            ("distances", "busy", "scipy/spatial/distance.py cdist"),
            ("convolutions", "busy", "numpy/_core/numeric.py convolve > <built-in> correlate"),
            (
                "rank-filters",
                "busy",
                "scipy/ndimage/_filters.py median_filter > scipy/ndimage/_filters.py _rank_filter",
            ),
            ("pixel-functions", "computing", "scipy/ndimage/_filters.py generic_filter"),
            ("sparse-by-value", "computing", "scipy/sparse/_lil.py _lil_base.__setitem__"),
            (
                "sparse-by-value",
                "computing",
                "scipy/sparse/_index.py IndexMixin.__setitem__ > scipy/sparse/_compressed.py f",
            ),
            ("sparse-made-dense", "busy", "scipy/sparse/_compressed.py _cs_matrix.toarray"),
            ("histograms", "busy", "numpy/lib/_histograms_impl.py histogram > numpy/_core/fromnumeric.py searchsorted"),
            ("calendars", "computing", "xarray/coding/times.py _decode_datetime_with_cftime"),
            ("sequences", "computing", "Bio/SeqIO/FastaIO.py FastaIterator.__next__"),
            (
                "fits-files",
                "computing",
                "astropy/io/fits/convenience.py getdata > astropy/io/fits/hdu/hdulist.py fitsopen",
            ),
            ("netcdf-reads", "busy", "xarray/backends/netCDF4_.py NetCDF4ArrayWrapper._getitem > <built-in> getitem"),
            ("zarr-chunks", "busy", "zarr/core/array.py Array.__getitem__ > zarr/core/sync.py sync"),
            ("zarr-chunks", "busy", "numcodecs/blosc.py Blosc.decode"),
            ("packed-values", "busy", "xarray/coding/variables.py _scale_offset_decoding"),
            ("grib", "busy", "cfgrib/messages.py Message.message_get"),
            ("medical-images", "computing", "pydicom/filereader.py dcmread"),
            ("statistics-files", "computing", "pandas/io/sas/sas7bdat.py SAS7BDATReader.read"),
            ("pandas-json", "busy", "pandas/io/json/_json.py read_json > pandas/io/json/_json.py JsonReader.read"),
            ("features", "computing", "geopandas/io/file.py _read_file_fiona"),
            ("spatial-index", "computing", "rtree/index.py Index.intersection"),
            ("text-as-python", _GIL, "~ast.py literal_eval > ~ast.py parse"),
            ("text-as-python", _GIL, "<built-in> eval"),
            (
                "replaced-values",
                "busy",
                "pandas/core/generic.py NDFrame.replace > pandas/core/internals/blocks.py Block.replace_list",
            ),
            (
                "columns-one-by-one",
                "computing",
                "pandas/core/frame.py DataFrame.__setitem__ > pandas/core/frame.py DataFrame._set_item",
            ),
            ("index-levels", "computing", "pandas/core/indexes/multi.py MultiIndex.get_loc"),
            (
                "expressions-of-text",
                "computing",
                "pandas/core/frame.py DataFrame.query > pandas/core/computation/eval.py eval",
            ),
            ("merged", "busy", "pandas/core/reshape/merge.py merge"),
            ("pivoted", "busy", "pandas/core/reshape/pivot.py pivot_table"),
            ("dummies", "busy", "pandas/core/reshape/encoding.py get_dummies"),
            ("statistics-in-pairs", "computing", "scipy/stats/_stats_py.py spearmanr"),
            ("splines", "busy", "scipy/ndimage/_interpolation.py zoom"),
            (
                "gaussian",
                "busy",
                "scipy/ndimage/_filters.py gaussian_filter > scipy/ndimage/_filters.py gaussian_filter1d",
            ),
            ("fourier", "busy", "numpy/fft/_pocketfft.py fft > numpy/fft/_pocketfft.py _raw_fft"),
            ("drawn-samples", "busy", "<built-in> choice(?,int)"),
            ("collected-garbage", _GIL, "<built-in> collect"),
            ("process-figures", "computing", "psutil/__init__.py Process.memory_full_info"),
            ("warnings", "computing", "~warnings.py warn"),
            ("counted", "computing", "~collections/__init__.py Counter.update"),
            ("copied-files", _FILE, "~shutil.py copyfile"),
            ("tokenizers", "computing", "nltk/tokenize/__init__.py word_tokenize"),
            ("one-prediction", "computing", "keras/src/backend/trainer.py TensorFlowTrainer.predict"),
            ("asking-scheduler", "client", "distributed/client.py Client.who_has > distributed/client.py Client.sync"),
            ("rebalance", "client", "distributed/client.py Client.rebalance"),
            ("visualized", "client", "dask/base.py visualize > dask/dot.py dot_graph"),
        )
    ),
]

#: Kind of finding, and stacks that look like those of a recipe, and are healthy, or something else.
HEALTHY = [
    # A class of that name is no file of HDF5's.
    ("busy", _stacks("9: me/a.py f > <built-in> File")),
    ("busy", _stacks("9: me/a.py write > numpy/lib/_format_impl.py open_memmap")),
    ("busy", _stacks("9: me/a.py f > xarray/backends/api.py open_dataset > me/own.py parse")),
    # By P2P, rows go through no files of partd.
    ("busy", _stacks("9: dask/dataframe/dask_expr/_shuffle.py _shuffle_transfer > distributed/shuffle/_shuffle.py f")),
    ("busy", _stacks("9: dask/dataframe/shuffle.py partitioning_index > pandas/core/util/hashing.py hash_array")),
    (
        "client",
        _stacks("9: me/fit.py main > joblib/parallel.py Parallel.__call__ > joblib/parallel.py Parallel._retrieve"),
    ),
    (
        "client",
        _stacks("9: me/fit.py main > dask/delayed.py DelayedLeaf.__call__ > dask/delayed.py unpack_collections"),
    ),
    # the first model of a library imports it
    (
        _SCHEDULER,
        _stacks(
            "7: distributed/protocol/pickle.py loads > <frozen importlib._bootstrap> _find_and_load > torch/x.py <module>"
        ),
    ),
    *(
        ("busy", _stacks(f"7: me/a.py f > {inner}"))
        for inner in (
            "<built-in> in(str,set)",
            "pandas/core/algorithms.py map_array > me/a.py g > <built-in> svd(array(float64))",
            "pandas/core/algorithms.py map_array > me/a.py g > <built-in> lgamma(float)",
            "<built-in> @(array(float64),array(int64))",
            "<built-in> *(array(int64),array(int64))",
            "numpy/_core/fromnumeric.py sum > <built-in> reduce",
            "<built-in> array(array(float64))",
            "<built-in> choice(Generator,int)",
            "<built-in> max(float64,int64)",
            "<built-in> sum(Tensor,int)",
            "<built-in> getitem(array(float16),int)",
            "<built-in> collect(LazyFrame)",
            "<built-in> sort(array(float32))",
            "<built-in> ==(category,str)",
        )
    ),
    # files that Dask's own readers parse, joins that Dask makes, one selection by flags, and a table that is read again
    ("busy", _stacks("9: dask/dataframe/io/csv.py pandas_read_text > pandas/io/parsers/readers.py read_csv")),
    (
        "busy",
        _stacks("9: dask/dataframe/x.py f > pandas/core/reshape/concat.py concat > pandas/core/internals/concat.py x"),
    ),
    (
        "shuffling",
        _stacks("1: pandas/core/groupby/ops.py BaseGrouper._ob_index_and_ids", "9: distributed/shuffle/_shuffle.py f"),
    ),
    (
        "busy",
        _stacks("1: me/a.py f > sklearn/utils/validation.py check_array", "9: me/a.py f > sklearn/tree/_tree.py fit"),
    ),
    (
        "busy",
        _stacks(
            "9: me/a.py f > pandas/core/indexing.py _LocationIndexer.__getitem__ > "
            "pandas/core/indexing.py _LocIndexer._getbool_axis > pandas/core/generic.py NDFrame.take"
        ),
    ),
    ("thread-noncpu/gil", _stacks("9: me/json/decoder.py JSONDecoder.decode", "9: me/csv.py DictReader.__next__")),
    ("busy", _stacks("4: me/a.py f > ~gzip.py GzipFile.read", "5: me/a.py f > pyarrow/csv.py read_csv")),
    # writers, a reader that is no Python, files that hold data, and columns that are chosen by position
    (
        "busy",
        _stacks(
            "9: pandas/core/generic.py NDFrame.to_excel > pandas/io/excel/_openpyxl.py OpenpyxlWriter._write_cells > "
            "openpyxl/cell/cell.py Cell.value"
        ),
    ),
    (
        "busy",
        _stacks("9: pandas/io/excel/_base.py read_excel > pandas/io/excel/_calamine.py CalamineReader.get_sheet_data"),
    ),
    ("busy", _stacks("9: me/a.py f > torch/serialization.py load > torch/serialization.py _load")),
    (
        "busy",
        _stacks(
            "9: me/a.py f > pandas/core/indexing.py _LocationIndexer.__getitem__ > "
            "pandas/core/indexing.py _iLocIndexer._getitem_axis > pandas/core/frame.py DataFrame._ixs > "
            "pandas/core/frame.py DataFrame._box_col_values"
        ),
    ),
    (
        "busy",
        _stacks(
            "9: me/a.py f > ~xml/etree/ElementTree.py ElementTree.write > ~xml/etree/ElementTree.py _serialize_xml"
        ),
    ),
    (_GIL, _stacks("9: distributed/protocol/pickle.py dumps > shapely/geometry/base.py BaseGeometry.__reduce__")),
    # what Dask calls of its own to learn types, one file for each partition, and a slice
    (
        "client",
        _stacks("9: me/a.py f > dask/array/core.py map_blocks > dask/array/utils.py compute_meta > numpy/x.py g"),
    ),
    (
        "busy",
        _stacks(
            "9: dask/dataframe/io/parquet/arrow.py ArrowDatasetEngine.write_partition > pyarrow/parquet/core.py write_table"
        ),
    ),
    (
        "client",
        _stacks(
            "9: me/a.py f > dask/array/core.py Array.__getitem__ > dask/array/slicing.py slice_with_newaxes > "
            "dask/array/slicing.py slice_wrap_lists > dask/array/slicing.py slice_slices_and_integers"
        ),
    ),
    (_GIL, _stacks("9: me/a.py f > pandas/core/frame.py DataFrame.merge > pandas/core/reshape/merge.py merge")),
    # apply by column calls a function for each of a few columns
    (
        _GIL,
        _stacks(
            f"9: {_APPLY}_standard > pandas/core/apply.py FrameApply.apply_series_generator > me/a.py f > "
            "pandas/core/series.py Series.sort_values",
            f"1: {_APPLY}_standard > pandas/core/apply.py FrameRowApply.series_generator",
        ),
    ),
    (_GIL, _stacks("9: me/a.py f > pandas/core/groupby/groupby.py GroupBy.mean > pandas/core/groupby/ops.py f")),
    # text in Arrow, for which pandas falls back on objects in some methods
    (
        _GIL,
        _stacks(
            "9: me/a.py f > pandas/core/strings/accessor.py StringMethods.upper > "
            "pandas/core/arrays/string_arrow.py ArrowStringArray._str_upper > pandas/core/strings/object_array.py f"
        ),
    ),
    # data sets that are made and opened, files that are opened and looked at by their names, and numbers that are compared
    ("busy", _stacks("9: me/a.py f > h5py/_hl/group.py Group.create_dataset > h5py/_hl/dataset.py make_new_dset")),
    (
        "busy",
        _stacks(
            "9: me/a.py f > h5py/_hl/files.py File.__init__", "8: me/a.py f > h5py/_hl/dataset.py Dataset.__getitem__"
        ),
    ),
    (_FILE, _stacks("9: me/a.py f > ~pathlib.py Path.read_bytes", "2: me/a.py f > ~pathlib.py Path.rglob")),
    ("busy", _stacks("9: me/a.py f > ~os.py makedirs", "9: me/glob.py glob")),
    ("busy", _stacks("9: me/a.py f > numpy/lib/_arraysetops_impl.py isin")),
    ("computing", _stacks("9: me/a.py f > numpy/_core/fromnumeric.py sum")),
    # one number of a reduced array
    (
        "computed-first",
        _stacks(
            "9: me/job.py main > xarray/core/common.py AbstractArray.__float__ > xarray/core/dataarray.py DataArray.values > "
            "dask/array/core.py Array.__array__ > dask/base.py compute"
        ),
    ),
    # map() with a dict or a Series calls no function
    (_GIL, _stacks("9: me/a.py f > pandas/core/series.py Series.map > pandas/core/algorithms.py map_array")),
    (_GIL, _stacks("9: me/a.py f > pandas/io/parsers/c_parser_wrapper.py CParserWrapper.read")),
    (_GIL, _stacks("9: me/a.py f > me/a.py g")),
    # joblib that does one after the other
    (
        _LOCK,
        _stacks(
            "9: joblib/parallel.py Parallel.__call__ > joblib/parallel.py Parallel._get_sequential_output > me/a.py f"
        ),
    ),
    # a lock within what a task computes itself
    (
        _LOCK,
        _stacks("9: me/a.py f > dask/base.py compute > dask/local.py get_sync > dask/local.py get_async > me/a.py g"),
    ),
    # a lock of the user's, and of Dask's own shuffle
    (_LOCK, _stacks("9: me/a.py f > ~threading.py Condition.wait")),
    (_LOCK, _stacks("9: distributed/shuffle/_core.py ShuffleRun.add_partition")),
    # other programs that tasks start, and what waits for a core in any library
    (_CHILD, _stacks("9: me/a.py f > ~subprocess.py Popen.wait")),
    ("thread-noncpu/core", _stacks("9: me/a.py f > requests/sessions.py Session.send")),
    ("thread-noncpu/core", _stacks(f"9: {_XARRAY_READ}")),
    # files that are mapped, read in pieces, or small
    (_FILE, _stacks("9: me/a.py f > numpy/_core/memmap.py memmap.__new__")),
    (_FILE, _stacks("9: me/a.py f > pyarrow/parquet/core.py ParquetFile.read_row_group")),
    # the client that computes, waits and builds as it should
    ("client", _stacks("9: me/a.py f > dask/base.py compute > distributed/client.py Client.get")),
    ("client", _stacks("9: me/a.py f > dask/dataframe/dask_expr/_collection.py DataFrame.set_index")),
    ("client", _stacks("9: me/a.py f > xarray/backends/zarr.py open_zarr")),
    # an expression of a dataframe has many small parts that are hashed, and meta= is given
    ("client", _stacks("9: dask/_expr.py Expr.deterministic_token > dask/tokenize.py tokenize")),
    (
        "client",
        _stacks(
            "9: me/a.py f > dask/dataframe/dask_expr/io/_delayed.py from_delayed > dask/_collections.py new_collection"
        ),
    ),
    # a loop that adds to delayed objects hashes small things
    (
        "client",
        _stacks("9: me/a.py f > dask/delayed.py Delayed.f > dask/tokenize.py _normalize_seq_func"),
    ),
    # an array cut by a loop, or a groupby of which the tasks are few
    (
        "small-tasks",
        _stacks(
            "9: me/a.py main > distributed/client.py Client.submit",
            "3: me/a.py f > distributed/client.py Client.scatter",
        ),
    ),
    ("small-tasks", _stacks("9: me/a.py main > dask/array/core.py Array.__getitem__", "4: xarray/core/groupby.py f")),
    # a pool that opens a connection
    (
        _LOCK,
        _stacks(
            "9: me/db.py f > sqlalchemy/pool/impl.py QueuePool._do_get > sqlalchemy/pool/base.py Pool._create_connection"
        ),
    ),
    (_SCHEDULER, _stacks("9: distributed/protocol/pickle.py dumps", "1: sklearn/base.py clone")),
    # data that are written as they are read, and many small arrays of numbers
    ("busy", _stacks(f"9: me/a.py f > xarray/core/dataset.py Dataset.to_netcdf > {_XARRAY_READ}")),
    (
        "computing",
        _stacks(
            "99: me/a.py f > pandas/core/algorithms.py unique > pandas/core/algorithms.py unique_with_mask",
            "1: pandas/core/algorithms.py unique_with_mask > pandas/core/algorithms.py _check_object_for_strings > "
            "numpy/_core/_dtype.py _name_get",
        ),
    ),
    (_SCHEDULER, _stacks("9: distributed/scheduler.py Scheduler.update_graph")),
]
