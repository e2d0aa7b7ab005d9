"""Recipes for what threads compute with further libraries, and with the standard library, as text."""

#: The surer ones first: docs/recipes.md explains the form.
LIBRARIES = """\
steps-back: Going back in compressed files, which begin again from their start
    kinds: python busy reads-again
    stack: gzip.py *.seek|*._rewind
    stack: _compression.py DecompressReader.seek|DecompressReader._rewind
    stack: compression/_common/_streams.py DecompressReader.seek|DecompressReader._rewind
    share: 0.2
    Take parts in the file's order, or unpack it once: each step back decompresses all before it again.
json-written: Writing JSON piece by piece, in Python
    kinds: python busy
    stack: json/__init__.py dump
    stack: json/encoder.py _make_iterencode*
    Write json.dumps(x), which C encodes, in place of json.dump; or use orjson, or Parquet for tables.
patterns: Regular expressions, matched text by text
    kinds: python busy
    stack: <built-in> match(Pattern*|search(Pattern*|fullmatch(Pattern*|findall(Pattern*|finditer(Pattern*
    stack: <built-in> sub(Pattern*|subn(Pattern*|split(Pattern*
    share: 0.3
    Make them stricter, [^,]* for .*, as they try all ways, and test for plain text before; or whole columns.
argument-caches: A cache that hashes all arguments at each call
    kinds: python busy
    stack: joblib/memory.py *
    stack: joblib/hashing.py *
    stack: diskcache/* *
    share: 0.3
    Leave large arguments out (ignore= of joblib), or pass a key or a number in their place: all is hashed.
stiff-systems: Differential equations, solved in many small steps
    kinds: python busy
    stack: scipy/integrate/_ivp/* *
    stack: scipy/integrate/_odepack_py.py *
    stack: scipy/integrate/_ode.py *
    If it is stiff, pass method="LSODA", "BDF" or "Radau": an explicit one (RK45) takes many small steps.
small-replies: Replies of HTTP, read in small pieces
    kinds: python busy
    stack: requests/models.py Response.iter_content*|Response.iter_lines*
    stack: http/client.py HTTPResponse.readline
    share: 0.3
    Pass chunk_size=65536 to iter_content(), whose default is one byte, or take all of it by .content.
fits-files: Reading FITS files
    kinds: python busy
    stack: astropy/io/fits/* *
    Open each file once, with memmap=True, and read parts by hdu.section: headers are parsed in Python.
netcdf-reads: Reading from netCDF files, chunk by chunk of the file
    kinds: python busy
    stack: xarray/backends/netCDF4_.py NetCDF4ArrayWrapper._getitem|NetCDF4ArrayWrapper.__getitem__
    stack: xarray/backends/scipy_.py ScipyArrayWrapper.__getitem__
    unless: xarray/* *.to_netcdf
    Make chunks= multiples of the file's own (encoding["chunksizes"]): each is unpacked for any part of it.
zarr-chunks: Zarr's chunks, unpacked or packed for each part of them
    kinds: python busy
    stack: zarr/* *
    stack: numcodecs/* *.decode*
    unless: numcodecs/* *.encode
    unless: zarr/codecs/* *encode*
    Give each Dask chunk whole Zarr chunks, of some MB: each is handled whole for any part, in Python.
packed-values: Values that are scaled and masked as they are read
    kinds: python busy
    stack: xarray/coding/variables.py *
    stack: xarray/coding/common.py *
    Select before values are needed, or store what is used often as float32: each read unpacks it again.
grib: Reading GRIB messages one by one
    kinds: python busy
    stack: cfgrib/* *
    stack: gribapi/* *
    stack: eccodes/* *
    Keep the index file (indexpath=), or write them as Zarr once: messages are found and decoded one by one.
medical-images: Reading images slice by slice, with their headers
    kinds: python busy
    stack: pydicom/* *
    stack: nibabel/* *
    Write each volume as Zarr or .npy once; stop_before_pixels=True reads a header alone.
statistics-files: Files of other statistics programs, decoded row by row
    kinds: python busy
    stack: pandas/io/sas/* *
    stack: pandas/io/stata.py *
    Write them as Parquet, once: tasks then read just the columns and rows that they need.
pandas-json: Parsing JSON by pandas, whole texts at a time
    kinds: python busy
    stack: pandas/io/json/_json.py *
    Pass lines=True and engine="pyarrow", or write it as Parquet once, which has types and columns.
features: Reading features of maps one by one
    kinds: python busy
    stack: fiona/* *
    stack: geopandas/io/* *
    Read by engine="pyogrio" with use_arrow=True, or write GeoParquet once.
spatial-index: A spatial index, filled or asked one by one
    kinds: python busy
    stack: rtree/* *
    Use shapely.STRtree, made of one array and asked by one, or sjoin() of GeoPandas.
text-as-python: Text that is parsed as Python
    kinds: python busy
    stack: ast.py literal_eval|parse
    stack: <built-in> eval*|exec|exec(*
    share: 0.3
    Write such columns as JSON, or as lists in Parquet: parsing Python takes a compiler for each text.
replaced-values: Replacing many values, a pass for each
    kinds: python busy
    stack: pandas/core/internals/blocks.py Block.replace*|Block._replace*
    stack: pandas/core/array_algos/replace.py *
    Use map() of a dict, with fillna() of the column, or categories: replace() takes a pass for each value.
columns-one-by-one: Columns added one by one
    kinds: python busy
    stack: pandas/core/frame.py DataFrame.insert|DataFrame._set_item|DataFrame._set_item_mgr
    Collect the columns in a dict, and make one frame of it, or concat() once: each adds a block of its own.
index-levels: Indexes of several levels
    kinds: python busy
    stack: pandas/core/indexes/multi.py *
    Keep the levels as columns, or sort the index once: its values are tuples, and looked up as objects.
expressions-of-text: Expressions that are parsed as text
    kinds: python busy
    stack: pandas/core/computation/eval.py eval
    stack: pandas/core/computation/expr.py *
    Write query() and eval() as masks and arithmetic: on small frames, parsing takes longer than the work.
merged: Merging tables, by their keys
    kinds: busy
    stack: pandas/core/reshape/merge.py *
    Drop rows without a key before, as missing keys match one another; merge on numbers or categories.
pivoted: Tables turned from long to wide
    kinds: python busy
    stack: pandas/core/reshape/pivot.py *
    stack: pandas/core/reshape/reshape.py *
    Aggregate first, with observed=True and few columns; wide tables have a cell for each pair.
dummies: Columns for each category
    kinds: python busy
    stack: pandas/core/reshape/encoding.py *
    Keep codes of categories, or make sparse=True columns: each value gets a column of its own.
statistics-in-pairs: Statistics of pairs, one by one
    kinds: python busy
    stack: scipy/stats/_stats_py.py spearmanr|pearsonr|kendalltau|ttest_*|ks_*|rankdata|zscore|mode
    stack: scipy/stats/_mannwhitneyu.py *
    stack: scipy/stats/_correlation.py *
    Pass whole arrays with axis=, or take all pairs at once by numpy.corrcoef, of ranks for Spearman's.
splines: Images interpolated by splines
    kinds: python busy
    stack: scipy/ndimage/*interpolation.py *
    Pass order=1 or 0 where that is enough (3 is the default), or spline_filter once, with prefilter=False.
gaussian: Gaussian filters, over wide windows
    kinds: python busy
    stack: scipy/ndimage/*filters.py gaussian_filter|gaussian_filter1d
    Pass a smaller truncate=, work on a coarser image, or use FFTs for a large sigma; float32 is faster.
fourier: Fourier transforms
    kinds: busy
    stack: numpy/fft/*pocketfft.py *
    stack: scipy/fft/* *
    Pad to scipy.fft.next_fast_len(n), use rfft for real values, and scipy.fft, which stays in float32.
drawn-samples: Samples drawn by shuffling everything
    kinds: python busy
    stack: <built-in> choice(RandomState*|choice([?]*|permutation(RandomState*|permutation([?]*
    share: 0.3
    Use numpy.random.default_rng().choice(n, k, replace=False) or integers(): others shuffle all of it.
collected-garbage: gc.collect(), which visits all objects
    kinds: python busy
    stack: <built-in> collect|collect([012])
    share: 0.2
    Leave it out: memory of arrays and tables is freed at once, and each collection visits all objects.
process-figures: Asking for figures of the process
    kinds: python busy
    stack: psutil/* *
    share: 0.3
    Ask seldom, or leave it to Dask, whose workers have them: each question reads files of the system.
warnings: Warnings, one by one
    kinds: python busy
    stack: warnings.py *
    share: 0.3
    Mend what they warn of, or filter them before the loop: each is compared with all filters.
counted: Counting items one by one
    kinds: python busy
    stack: collections/__init__.py Counter.*
    share: 0.3
    Use numpy.unique(return_counts=True), numpy.bincount or value_counts(): Counter hashes each item.
copied-files: Files that are copied, or unpacked, in tasks
    kinds: python busy waits
    stack: shutil.py *
    Read them where they are, or copy once for each host, by a worker plugin or client.run.
tokenizers: Texts cut into tokens, in Python
    kinds: python busy
    stack: nltk/* *
    stack: transformers/tokenization_utils.py *
    stack: sklearn/feature_extraction/text.py *
    Use a fast tokenizer (tokenizers, use_fast=True), or spaCy's pipe(), for many texts at a time.
one-prediction: Models of Keras, by predict()
    kinds: python busy
    stack: keras/* *.predict
    Give predict() many rows at a time, or call the model itself, model(x): each predict() sets up anew.
"""
