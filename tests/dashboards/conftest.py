import pytest


@pytest.fixture(scope="session")
def exported() -> dict[str, dict[str, set[str]]]:
    """Every series that a scheduler exports, as metric, label and values."""
    pytest.importorskip("prometheus_client")
    from dask_efficiency.accounts.sensors import READINGS
    from dask_efficiency.live.prometheus import ClusterCollector, Export
    from tests.live.test_prometheus import SECOND, Source, straggler, watched

    source = Source()
    source.join("w")
    source.cluster.work.set(True, at=0)
    source.poll()
    gpu = watched("GPU-0", readings={"GPU-0": dict.fromkeys(READINGS, 1.0)})
    source.report("w", 1, elapsed=4 * SECOND, gpu=gpu)
    source.poll()
    source.findings = (straggler("w"),)
    collector = ClusterCollector()
    collector._exports.append(Export(source))
    found: dict[str, dict[str, set[str]]] = {}
    for family in collector.collect():
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found
