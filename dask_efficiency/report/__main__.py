"""What `dask-efficiency run` becomes: `python -m dask_efficiency.report` with a run and the script's arguments."""

from dask_efficiency.report.runner import main

if __name__ == "__main__":
    main()
