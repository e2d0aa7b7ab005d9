def test_a_table_represents_itself_in_a_line() -> None:
    from dask_efficiency.runs.trace.schema import Graphs

    text = repr(Graphs.empty())
    assert text.startswith("<Graphs: 0 rows of ")
    assert "\n" not in text
