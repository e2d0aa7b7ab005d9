"""Claim: on faults that people report, the first finding names the cause and its place, and no sentence misleads.

Each program is this project's own code after a public report: its first lines give the source, what the person saw,
the cause and the cure. ``bad`` has the fault, ``good`` does the same work with the cure, and ``EXPECTED`` says what a
reader should be told, written down before the program was first run with the tool. There are two sets:

- ``known``, which the rules may be worked on with;
- ``frozen``, written by people who do not know the rules, after these were frozen, and run once: that is the claim.

``python -m benchmarks.public_reports known [NAME ...]`` runs each program in a process of its own, on two cores: first
``bad``, then ``good``, both metered and by a stopwatch. It prints the first screen's findings and a verdict on each of

- cause: title, place (without quoted source) and advice of a finding match ``EXPECTED.says``;
- place: its ``where`` has a line or function of ``EXPECTED.places``;
- cure: its advice matches ``EXPECTED.cures``, which is what ``good`` does;
- saving: what ``good`` really saves is in the interval of the finding that is right, where it has one;
- misleading sentences: none of ``EXPECTED.never`` is on the first screen.

A finding is right if its cause and its place are. ``--trace`` records each task, so that savings are replayed and
have intervals. ``--repeats N`` runs each program N times: it is judged by its worst run, and timed by the median one.
``--save DIR`` keeps the reports (``dask-efficiency report DIR/NAME.json`` shows one), of ``good`` as
``NAME-good.json``; ``--recorded DIR`` runs nothing, and judges what the rules of today find in them. Whoever works on a
crowded machine adds ``--crowded``, which leaves out waiting for cores that others have; the claim is for a quiet one.

With ``frozen``, it exits with 1 unless the first finding is right in 17 of 20, one of the first three in 19 of 20,
nothing misleads, and 9 of 10 savings are in their interval. Programs whose libraries are not installed are skipped, and
it says which: ``known`` needs ``xarray``, ``netCDF4``, ``h5netcdf``, ``h5py``, ``threadpoolctl``,
``requests``, ``cftime``, ``scipy``, ``scikit-learn`` and ``joblib`` besides what the tests need, and ``frozen`` some of
these.

Frozen programs that have been looked at become known, and others take their place: of one that was, nothing is claimed.
"""
