"""Place of the programs that are run once: written by people who do not know the rules, after these are frozen.

A program is a module here, named after what it does. It has the form of those in ``known``:

- a docstring with source, date, what was seen, cause and cure; the code is its author's own, without a sentence, a line
  or a person's name of the report;
- ``bad(client)`` and ``good(client)``, which return the same number after the same work: 5 to 25 s on two cores, and
  clearly less;
- ``CLUSTER``, the arguments of ``LocalCluster``; where needed ``GOOD_CLUSTER`` (those with the cure), ``CONFIG``
  (Dask's configuration), ``NEEDS`` (modules that Dask does not bring along, as a literal), and ``prepare()``, which
  makes data before there is a client;
- ``EXPECTED``: an :class:`~benchmarks.public_reports.programs.Expected`, written before the program is first run with
  the tool. Lines of a finding's place are marked in the source by a comment, ``# <- here``.

Who writes one does not look at the rules, and who works on the rules does not look here.
"""
