"""Process of `dask-efficiency run`: `python -m dask_efficiency.report RUN ARGUMENTS`."""

from dask_efficiency.report.runner import main

if __name__ == "__main__":
    main()
