"""Claim: where a job stands still, the first finding says so while it does, with the cause and the place.

Each program is this project's own code after a public report of a hang, whose address it has; ``EXPECTED`` was written
before the program was first run with the tool. Those in ``before`` were chosen and written before the rules were, those
in ``after`` when the rules stood. ``python -m benchmarks.hangs [NAME ...]`` starts each on a cluster of its own, waits
until the scheduler names something, and judges the first finding as :mod:`benchmarks.public_reports` does: its title,
place and advice match ``says``, and its ``where`` one of ``places``. It exits with 1 unless eight of ten are right.

``python -m benchmarks.hangs --healthy`` runs the workloads of :mod:`benchmarks.findings` and counts what is named there
meanwhile, which should be nothing. ``--cost`` prints what the watch costs a scheduler of a thousand workers.
"""
