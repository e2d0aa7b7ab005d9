"""Summaries of traces: where the time of one rank or of a thousand went.

The public function is ``dask_efficiency.torch_traces.summary``; a folder of that name would take its place.
"""
