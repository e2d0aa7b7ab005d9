# Somebody with a slow script on a laptop.
# pages: README.md
# answer: Sleeping: saves up to .* `read`, job.py:10
dask-efficiency run --html run.html job.py
dask-efficiency explain sleep
test -s run.html
