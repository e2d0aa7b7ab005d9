# A CI job that must not let a slower branch pass.
# pages: README.md docs/report.md docs/compare.md
# answer: lost time (rose|fell) by
dask-efficiency run --json main.json job.py --threads 2>/dev/null
dask-efficiency run --json branch.json job.py --threads --repeats 3 2>/dev/null
code=0
dask-efficiency compare main.json branch.json --max-loss 5% || code=$?
test "$code" = 1
