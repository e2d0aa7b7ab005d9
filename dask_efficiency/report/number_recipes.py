"""Recipes for numbers: functions of NumPy and SciPy, and C code by what it works on, as text."""

#: The surer ones first: docs/recipes.md explains the form.
NUMBERS = """\
list-search: Searching lists from their start, item by item
    kinds: python busy
    stack: <built-in> in(*,list)|in(*,tuple)|index(list*|count(list*|remove(list*|index(tuple*
    share: 0.3
    Make a set of it, or a dict to look things up by key: a list is compared item by item for each question.
list-front: Taking from the front of a list, or adding there
    kinds: python busy
    stack: <built-in> pop(list,0)|insert(list,0)
    share: 0.3
    Use collections.deque, with popleft() and appendleft(): a list moves all its items each time.
array-search: Searching arrays from their start, value by value
    kinds: python busy
    stack: <built-in> in(*,array(*)
    share: 0.3
    Make a set of it, or ask for all values at once by numpy.isin: each question compares the whole array.
builtins-on-arrays: Python's own functions on arrays, element by element
    kinds: python busy
    stack: <built-in> sum(array(*|max(array(*|min(array(*|any(array(*|all(array(*
    stack: <built-in> sorted(array(*|list(array(*|set(array(*|tuple(array(*|tolist(array(*
    share: 0.3
    Use the array's own: x.sum(), x.max(), numpy.sort, numpy.unique: Python makes an object of each element.
integer-products: Products of matrices of integers, without BLAS
    kinds: python busy
    stack: <built-in> @(*int*,*int*)|dot(*int*,*int*|matmul(*int*,*int*
    share: 0.3
    Convert them by astype(float), exact up to 2**53: NumPy multiplies integers in a loop, not by BLAS.
half-floats: Numbers of 16 bits, which are converted one by one
    kinds: python busy
    stack: <built-in> [-+*/@]*(*float16*|dot(*float16*|matmul(*float16*
    share: 0.3
    Compute in float32, and keep float16 for storage: few CPUs compute with 16 bits, so each is converted.
long-floats: Numbers of 80 or 128 bits, without vector instructions
    kinds: python busy
    stack: <built-in> [-+*/@]*(*longdouble*|[-+*/@]*(*float128*|[-+*/@]*(*complex256*
    share: 0.3
    Use float64, unless the last digits matter: longdouble is computed one by one, without BLAS.
object-arrays: Arrays of Python objects, handled one by one
    kinds: python busy
    stack: <built-in> [-+*/@<>=!&^]*(*array(object)*|sort(array(object)*
    share: 0.3
    Convert them once, by astype(float) or to codes: dtype object is a Python call for each element.
text-arrays: Arrays of text, compared and copied at full width
    kinds: python busy
    stack: <built-in> [-+*/@<>=!]*(*array(text)*|sort(array(text)*|[<>=!]*(*array(bytes)*
    share: 0.3
    Use codes of numpy.unique or a categorical: each element of dtype str has the width of the longest.
arrays-of-lists: Making arrays of lists, element by element
    kinds: python busy
    stack: <built-in> array(list*|asarray(list*|array(tuple*|fromiter(*
    share: 0.3
    Keep numbers in arrays from where they are read or made: from lists each is converted one by one.
einsum: einsum, as one plain loop
    kinds: python busy
    stack: numpy/*/einsumfunc.py einsum
    unless: numpy/*/einsumfunc.py einsum_path
    unless: numpy/*/numeric.py tensordot
    Pass optimize=True to einsum, or use tensordot or @: these go to BLAS, a plain einsum is one loop.
inverses: Inverting matrices
    kinds: busy
    stack: numpy/linalg/*linalg.py inv|pinv
    stack: scipy/linalg/*_basic.py inv|pinv
    stack: scipy/linalg/*basic.py inv|pinv
    Solve the equations, by numpy.linalg.solve or lstsq, or factor once, by scipy.linalg.lu_factor.
fits: Fits, point by point
    kinds: python busy
    stack: numpy/lib/*polynomial* polyfit|polyval
    stack: numpy/polynomial/* *
    stack: numpy/linalg/*linalg.py lstsq
    stack: scipy/stats/_stats_*.py linregress|theilslopes
    stack: statsmodels/* *
    Fit all at once: polyfit and lstsq take a matrix with a column for each point; or sum products by NumPy.
curve-fits: Fits by curve_fit and its like, point by point
    kinds: python busy
    stack: scipy/optimize/* curve_fit|least_squares|leastsq|minimize
    unless: sklearn/* *
    Pass jac= and a good start p0=, or a form that is linear, which one lstsq fits for all points.
interpolation: Interpolating scattered points, which are triangulated each time
    kinds: python busy
    stack: scipy/interpolate/*ndgriddata.py griddata
    stack: scipy/interpolate/_rbf* *
    Triangulate once, by scipy.spatial.Delaunay, and pass that; or keep the weights of each point.
interpolators: Making interpolators again and again
    kinds: python busy
    stack: scipy/interpolate/_interpolate.py interp1d.__init__
    stack: scipy/interpolate/_cubic.py *.__init__
    stack: scipy/interpolate/_bsplines.py make_interp_spline|make_lsq_spline
    stack: scipy/interpolate/_fitpack2.py *.__init__
    Make one for all: they take values with an axis for each series (axis=); numpy.interp for one line.
regridding: Weights of regridding, computed again
    kinds: python busy
    stack: xesmf/* Regridder.__init__|*BaseRegridder.__init__|*_compute_weights*
    stack: xesmf/backend.py esmf_regrid_build
    Compute them once, save them (filename=), and reuse: reuse_weights=True or weights=.
distances: Distances between all pairs
    kinds: busy
    stack: scipy/spatial/distance.py cdist|pdist
    stack: sklearn/metrics/pairwise.py *
    Ask a tree, scipy.spatial.cKDTree or sklearn's NearestNeighbors, for near ones, or process it in blocks.
convolutions: Convolutions, by sums at each point
    kinds: python busy
    stack: numpy/*/numeric.py convolve|correlate
    stack: scipy/signal/_signaltools.py convolve2d|correlate2d
    stack: scipy/ndimage/*filters.py convolve|correlate
    Use scipy.signal.oaconvolve or fftconvolve for long kernels; uniform_filter for means, or cumulated sums.
rank-filters: Medians and ranks of all windows
    kinds: python busy
    stack: scipy/ndimage/*filters.py median_filter|percentile_filter|rank_filter|_rank_filter
    stack: scipy/signal/_signaltools.py medfilt|medfilt2d
    Use smaller windows, several passes of them, or bottleneck's and OpenCV's, which keep a window sorted.
pixel-functions: A function of Python, called for each window
    kinds: python busy
    stack: scipy/ndimage/*filters.py generic_filter|generic_filter1d
    Write it by uniform_filter, convolve or sliding_window_view, for whole arrays, or compile it by numba.
sparse-by-value: Sparse matrices, read or changed part by part
    kinds: python busy
    stack: scipy/sparse/_lil.py *
    stack: scipy/sparse/_dok.py *
    stack: scipy/sparse/_index.py *.__setitem__
    stack: scipy/sparse/_index.py *.__getitem__
    Make it once, of arrays of rows, columns and values (coo_array), and take rows of CSR, columns of CSC.
sparse-made-dense: Sparse matrices that are made dense
    kinds: python busy
    stack: scipy/sparse/* *.toarray|*.todense
    Keep it sparse: products, sums and solvers of scipy.sparse take only what is not zero.
histograms: Histograms by edges, each value looked up
    kinds: python busy
    stack: numpy/lib/*histograms* histogram > numpy/*/fromnumeric.py searchsorted
    Pass bins as a number, with range=, not as edges: then no value is searched; or numpy.bincount of codes.
calendars: Dates of other calendars, as objects
    kinds: python busy
    stack: cftime/* *
    stack: xarray/coding/cftimeindex.py *
    stack: xarray/coding/times.py _decode_datetime_with_cftime|encode_cf_datetime|_encode_datetime_with_cftime
    Keep them as numbers, and decode once; or use datetime64, whose arrays need no object for each.
sequences: Records of sequences, as Python objects
    kinds: python busy
    stack: Bio/* *
    Use SimpleFastaParser or FastqGeneralIterator, which give plain text, or pysam or pyfastx.
"""
