from benchmarks.matrix import headline

#: What each of three rounds gave: as rounds may be slower than others, what is added is compared within each.
FOUND = {
    "off": {"cpu": [1000.0, 2000.0, 1100.0]},
    "all": {"cpu": [1100.0, 2110.0, 1190.0]},
    "performance-report": {"cpu": [1050.0, 2050.0, 1140.0]},
    "pyspy": {"cpu": [1000.0, 2000.0, 1100.0], "instructions": []},
}


def test_the_claim_fails_where_everything_costs_more_than_a_performance_report():
    assert headline(FOUND, "cpu") == "cpu: everything on adds +100, `performance_report` +50: claim NOT met"
    assert headline(FOUND | {"all": FOUND["off"]}, "cpu").endswith("claim met")
