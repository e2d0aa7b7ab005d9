# A performance engineer: what was the run spent on, and would more workers help?
# pages: docs/report.md docs/critical-path.md docs/simulation.md
# answer: With 'read' 2 times as fast
dask-efficiency run --trace run.trace job.py 2>/dev/null
dask-efficiency critical-path run.trace
dask-efficiency critical-path run.trace --what-if read=2
dask-efficiency simulate run.trace --workers 16 --threads 4
dask-efficiency simulate run.trace --sweep 2..32 --price 0.4
