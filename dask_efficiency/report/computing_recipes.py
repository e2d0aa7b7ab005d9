"""Recipes for what threads compute with functions of known libraries, as text."""

#: The surer ones first: docs/recipes.md explains the form.
COMPUTING = """\
unobserved: Groups for all pairs of categories, whether they occur or not
    kinds: shuffling busy python
    stack: pandas/core/groupby/ops.py *._unob_index_and_ids
    share: 0.04
    Pass observed=True to groupby: else each result has a row for each combination of the columns' categories.
bag-groupby: Grouping items of a Bag, each pickled and moved
    kinds: python busy waits
    stack: dask/bag/core.py groupby_disk|collect|partition|*groupby*
    share: 0.3
    Use foldby(), or groupby of a dataframe by to_dataframe(): Bag.groupby pickles each item, and moves it.
shuffled-by-disk: Shuffling rows through files, many small pieces at a time
    kinds: shuffling python busy waits
    stack: dask/dataframe/*shuffle*.py DiskShuffle.*|shuffle_group_3|collect
    stack: partd/* *
    share: 0.15
    Use p2p, by dataframe.shuffle.method in Dask's configuration: pieces in files are written one by one.
compiling: Compiling functions by numba, in tasks
    kinds: python busy
    stack: numba/core/* *compile*
    share: 0.3
    Pass cache=True and types to @njit, at the top of a module: each process compiles anew, as do new types.
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
archives: Reading members of an archive
    kinds: python busy
    stack: tarfile.py TarFile.*
    stack: zipfile/__init__.py ZipFile.*|ZipExtFile.*
    stack: zipfile.py ZipFile.*|ZipExtFile.*
    Unpack it once, or write its members as Parquet or Zarr: each task goes through the archive again.
text-tables: Text of tables, parsed or written by NumPy in Python
    kinds: python busy
    stack: numpy/lib/*npyio* loadtxt|genfromtxt|savetxt
    Use pandas.read_csv or pyarrow.csv, and .npy, Zarr or Parquet for what programs write and read.
csv-writer: Writing CSV, value by value
    kinds: python busy
    stack: pandas/io/formats/csvs.py CSVFormatter.*
    Write Parquet, or CSV by pyarrow.csv.write_csv: here each value becomes text under the GIL.
sql-insert: Inserting rows into a database, in Python
    kinds: python busy
    stack: pandas/io/sql.py SQLTable.insert|SQLTable._execute_insert*|SQLiteTable.*
    Load by the database's own COPY or bulk loader, or in one task, with method="multi" and a chunksize.
nan-quantiles: Quantiles with NaN, slice by slice in Python
    kinds: python busy
    stack: numpy/lib/*nanfunctions* _nanquantile*|_nanmedian*|nanquantile|nanmedian|nanpercentile
    Without NaN, pass skipna=False, for NumPy's quantile; else numbagg, or sort once for all quantiles.
masked: NumPy's masked arrays
    kinds: python busy
    stack: numpy/ma/core.py *
    stack: numpy/ma/extras.py *
    Use NaN for what is missing: masked arrays do each operation twice, and much of it in Python.
expressions: Regular expressions, text by text
    kinds: python busy
    stack: re/__init__.py *
    stack: re.py *
    stack: re/_compiler.py *
    Compile patterns once, outside of the loop, and search whole columns: methods of str in pyarrow or pandas.
diffs: Comparing texts by difflib, in Python
    kinds: python busy
    stack: difflib.py *
    Use rapidfuzz, which compares whole lists without the GIL.
fractions: Numbers as Python objects
    kinds: python busy
    stack: fractions.py *
    stack: decimal.py *
    stack: _pydecimal.py *
    stack: statistics.py *
    Use arrays of floats or whole numbers, such as of cents: these are objects, one by one, in Python.
random-numbers: Random numbers one by one, in Python
    kinds: python busy
    stack: random.py Random.*
    Draw arrays, by numpy.random.default_rng(seed): Python's random makes one number at a time.
urls: Parsing addresses one by one, in Python
    kinds: python busy
    stack: urllib/parse.py *
    stack: ipaddress.py *
    Parse each distinct address once, such as by unique() or a cache, or whole columns by expressions.
mails: Parsing messages in Python
    kinds: python busy
    stack: email/* *
    Keep what you need of them as Parquet, once: Python's email parses them line by line.
records: Objects with fields, checked and copied one by one
    kinds: python busy
    stack: dataclasses.py asdict|_asdict_inner|astuple|_astuple_inner|replace
    stack: pydantic/* *
    stack: jsonschema/* *
    stack: marshmallow/* *
    Make columns of them, as arrays or tables, and check these: each object is handled in Python.
units: Units and coordinates as objects
    kinds: python busy
    stack: astropy/* *
    stack: pint/* *
    stack: pyproj/* *
    Make these objects once, in each worker, and call them with whole arrays: most of a call does not compute.
validated: Models called for few rows at a time
    kinds: python busy
    stack: sklearn/utils/validation.py *
    stack: sklearn/utils/_param_validation.py *
    stack: sklearn/utils/_tags.py *
    share: 0.25
    Give predict() or transform() many rows at a time: each call checks its input and sets itself up anew.
python-steps: A function of Python that SciPy calls at each step
    kinds: python
    stack: scipy/optimize/* * > .
    stack: scipy/integrate/* * > .
    stack: scipy/ndimage/* * > .
    stack: scipy/interpolate/* * > .
    Write it for arrays of many cases at a time, compile it by numba, or give derivatives: steps are Python.
distributions: Distributions of SciPy, called for few values
    kinds: python busy
    stack: scipy/stats/* *
    Pass arrays of all values at a time, or use functions of scipy.special: each call costs as much.
regions: Properties of regions, one by one in Python
    kinds: python busy
    stack: skimage/measure/_regionprops.py *
    Use functions of whole label images, as of scipy.ndimage or numpy.bincount, or fewer properties.
images: Decoding and encoding images
    kinds: busy
    stack: PIL/* *
    stack: imageio/* *
    stack: cv2/* *
    stack: tifffile/* *
    Decode each image once, and keep it as an array in Zarr, in chunks that tasks use.
symbolic: Symbolic algebra in tasks
    kinds: python busy
    stack: sympy/* *
    Do it once, and make a function of arrays of it, by sympy.lambdify: it is all Python.
grown: Arrays or frames that grow in a loop
    kinds: python busy
    stack: numpy/lib/*function_base* append
    stack: pandas/core/indexing.py *._setitem_with_indexer_missing
    Collect the parts in a list, and make one array or frame of them at the end: each step copies all rows.
joined: Joining frames or arrays, which copies all rows each time
    kinds: busy
    stack: . > pandas/core/reshape/concat.py concat
    stack: . > numpy/*shape_base* vstack|hstack|dstack|stack
    Collect all parts in a list, and join them once, at the end: in a loop, each step copies all rows again.
sorting: Sorting whole tables
    kinds: busy
    stack: pandas/core/frame.py DataFrame.sort_values
    stack: pandas/core/series.py Series.sort_values
    share: 0.3
    For the first rows, use nlargest() or nsmallest(); else filter before, and sort only what is kept, once.
compressing: Compressing what is written
    kinds: busy
    stack: numcodecs/* *.encode
    stack: zarr/codecs/* *encode*
    stack: numpy/lib/*npyio* savez_compressed
    stack: gzip.py GzipFile.write*|compress
    stack: bz2.py BZ2File.write*
    stack: lzma.py LZMAFile.write*
    share: 0.3
    Use a lower level, or a faster codec such as zstd or snappy: high levels take long, and save little.
written: Writing files, with any compression of what they have
    kinds: busy
    stack: pyarrow/parquet/core.py ParquetWriter.*
    stack: fastparquet/writer.py *
    stack: xarray/* *.to_netcdf > xarray/backends/* *.store|*.close|*.sync|*.__setitem__
    share: 0.3
    If it is compressed at a high level, use a lower one, or a faster codec such as zstd or snappy.
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
models-by-row: A model is called for each row
    kinds: python busy
    stack: pandas/core/apply.py * > sklearn/* *.predict*|*.transform*|*.decision_function|*.score_samples
    stack: pandas/core/apply.py * > xgboost/* *.predict*
    stack: pandas/core/apply.py * > lightgbm/* *.predict*
    stack: pandas/core/apply.py * > torch/nn/modules/module.py Module.*
    stack: pandas/core/apply.py * > keras/* *.predict*|*.__call__
    share: 0.3
    Give predict() or transform() all rows of a partition at a time: each call sets itself up anew.
pandas-rows: Python by row, in DataFrame.apply(axis=1)
    kinds: python
    stack: pandas/core/apply.py FrameApply.apply_standard
    stack: pandas/core/apply.py FrameColumnApply.*
    also: pandas/core/apply.py FrameColumnApply.*
    Write it for whole columns, such as df.a / df.b ** 2: that needs no Python by row, and no GIL.
pandas-iterrows: Python by row, in DataFrame.iterrows()
    kinds: python busy
    stack: pandas/core/frame.py DataFrame.iterrows
    share: 0.2
    Write the loop for whole columns, or at least use itertuples(), which makes no Series of each row.
pandas-itertuples: Python by row, in DataFrame.itertuples() or to_dict()
    kinds: python busy
    stack: pandas/core/frame.py DataFrame.itertuples|DataFrame.to_dict|DataFrame.to_records
    stack: pandas/core/methods/to_dict.py *
    Write it for whole columns, such as df.a + df.b, or arrays of to_numpy(): each row is made an object.
rolling-apply: Python by window, in rolling().apply
    kinds: python busy
    stack: pandas/core/window/rolling.py *apply*|*._generate_cython_apply_func*
    Use sum(), mean() and other methods of pandas' own, or apply(raw=True, engine="numba").
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
arrays-by-value: A function of whole arrays is called for each value
    kinds: python busy
    stack: pandas/core/apply.py *.apply_standard > numpy/lib/*function_base* interp|digitize|select|piecewise
    stack: pandas/core/algorithms.py map_array > numpy/lib/*function_base* interp|digitize|select|piecewise
    stack: pandas/core/algorithms.py map_array > numpy/*/fromnumeric.py searchsorted|clip|round|around
    stack: pandas/core/algorithms.py map_array > scipy/interpolate/* *.__call__
    share: 0.3
    Call it once for the whole column, as in map_partitions(): a call takes far longer than its value.
frames-of-objects: Frames made of Python objects, or of a few rows each
    kinds: python busy
    stack: pandas/core/frame.py DataFrame.__init__|DataFrame.from_records|DataFrame.from_dict
    stack: pandas/core/series.py Series.__init__
    stack: pandas/io/json/_normalize.py *
    Make few large frames, of arrays for each column: making one of lists or dicts, or of few rows, is slow.
pandas-text: Text as Python objects, in pandas
    kinds: python
    stack: pandas/core/strings/object_array.py *
    unless: pandas/core/arrays/string_arrow.py *
    unless: pandas/core/arrays/arrow/* *
    Keep text in string[pyarrow] columns, whose methods run without the GIL.
pandas-keys: Text as Python objects, hashed and compared one by one
    kinds: python busy
    stack: pandas/core/algorithms.py factorize*|unique*|isin|value_counts*|duplicated|mode|safe_sort|_get_hashtable*
    stack: pandas/core/dtypes/missing.py _isna_string_dtype
    stack: pandas/core/ops/array_ops.py comp_method_OBJECT_ARRAY
    also: pandas/core/dtypes/missing.py _isna_string_dtype
    also: pandas/core/ops/array_ops.py comp_method_OBJECT_ARRAY
    share: 0.3
    Read text as category or string[pyarrow], not as dtype object, whose values are hashed one by one.
pandas-dates: Dates that pandas parses one by one
    kinds: python busy
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
    kinds: python busy
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
    Turn it into a dataframe or array early, by to_dataframe(), or use processes: Python code holds the GIL.
xarray-map: A function is called for each group, in xarray
    kinds: python busy
    stack: xarray/*/groupby.py *GroupBy*.map|*GroupBy*.apply > .
    stack: xarray/*/groupby.py *GroupBy*._combine
    stack: xarray/*/rolling.py * > .
    Write it for whole arrays along a dimension, as in NumPy: here each group is made an array of its own.
xarray-points: Selecting point by point, or slice by slice, in xarray
    kinds: python busy
    stack: xarray/*/dataarray.py DataArray.sel|DataArray.isel|DataArray.__getitem__|DataArray.interp
    stack: xarray/*/dataset.py Dataset.sel|Dataset.isel|Dataset.__getitem__|Dataset.interp
    Pass arrays of all points at a time, sel(x=points), or loop over .values: each step costs much in Python.
selections: Reading by lists of positions, in h5py
    kinds: python busy
    stack: h5py/_hl/selections.py *
    Read a slice that has them all, then select in NumPy: HDF5 goes through positions one by one.
hdf5-reads: Reading from HDF5 data sets, chunk by chunk or position by position
    kinds: python busy
    stack: h5py/_hl/dataset.py Dataset.__getitem__
    stack: tables/* *Array.read*|*Array.__getitem__|*Array._read*
    Read ranges, not lists of positions, then select in NumPy; and whole chunks: each is unpacked anew.
hdf5-writes: Writing to HDF5 data sets, part by part of their chunks
    kinds: python busy
    stack: h5py/_hl/dataset.py Dataset.__setitem__
    stack: tables/* *Array.append|*Array.__setitem__
    Write whole chunks at a time, or make chunks as large as each write, with less compression.
listing: Listing folders, to find files
    kinds: python busy thread-noncpu/file
    stack: pathlib.py Path.rglob|Path.glob|Path.iterdir
    stack: pathlib/*.py *.rglob|*.glob|*.iterdir
    stack: glob.py *
    stack: os.py walk|_walk|fwalk
    stack: fsspec/* *.find|*.walk|*.ls|*.glob
    List the files once, on the client, and pass their names on to the tasks: each of these lists them again.
compared-objects: Comparing values one by one, if they are Python objects
    kinds: python
    stack: numpy/lib/*arraysetops* *
    stack: numpy/*/fromnumeric.py sort|argsort|searchsorted
    share: 0.3
    Use larger arrays in fewer calls or, where values are Python objects, numbers such as of days or codes.
deepcopy: Copies of Python objects, one by one
    kinds: python busy
    stack: copy.py deepcopy
    Copy less: deepcopy() goes through each object in Python; an array's or a frame's own copy() does not.
opening: Opening files, which takes longer than what is done with them
    kinds: busy
    stack: h5py/_hl/files.py File.__init__|make_fid
    stack: numpy/lib/*npyio* load > numpy/lib/*format*.py open_memmap
    stack: <built-in> File
    also: h5py/* *
    also: numpy/lib/*npyio* load
    share: 0.55
    Open each file once, and keep it open for all that is wanted of it; or put that into fewer files.
"""
