from dask_efficiency.show.names import natural


def test_names_sort_by_the_numbers_in_them():
    assert sorted(["w10", "w9", "a", "10", "9", "w"], key=natural) == ["a", "w", "w9", "w10", "9", "10"]


def test_a_name_of_any_length_can_be_sorted():
    assert natural("w" + "9" * 10_000) > natural("w8")
