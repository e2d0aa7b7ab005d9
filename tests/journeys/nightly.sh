# A job of every night whose last one is slower than usual.
# pages: docs/history.md
# answer: more time, .* after .* in 6 runs
for night in 1 2 3 4 5 6; do dask-efficiency run --save-to nightly job.py 2>/dev/null; done
dask-efficiency run --save-to nightly job.py --repeats 3 2>/dev/null
code=0
dask-efficiency history nightly --fail-on-worse 10% || code=$?
test "$code" = 1
