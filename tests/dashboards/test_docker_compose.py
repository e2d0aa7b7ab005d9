import re
from pathlib import Path
from typing import Any

import yaml

DASHBOARDS = Path(__file__).parent.parent.parent / "dashboards"
COMPOSE = yaml.safe_load((DASHBOARDS / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]


def mounts() -> list[tuple[str, str]]:
    """What is mounted and where, of all services."""
    return [tuple(volume.split(":")[:2]) for service in SERVICES.values() for volume in service["volumes"]]


def test_everything_that_is_mounted_exists():
    for source, _ in mounts():
        assert (DASHBOARDS / source).is_dir() if source.startswith(".") else source in COMPOSE["volumes"]


def test_versions_are_pinned_and_ports_are_open_to_this_machine_only():
    for service in SERVICES.values():
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"])
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_grafana_finds_prometheus_and_the_dashboards_where_they_are():
    provisioning = DASHBOARDS / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert (source["url"], source["type"], source["access"]) == ("http://prometheus:9090", "prometheus", "proxy")
    assert source["jsonData"]["timeInterval"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "dask-efficiency.yml").read_text())["providers"]
    assert provider["type"] == "file"
    mounted = {there: DASHBOARDS / here for here, there in mounts()}
    assert any(mounted[provider["options"]["path"]].glob("*.json"))
    for kind, name in (("dashboards", "dask-efficiency.yml"), ("datasources", "prometheus.yml")):
        assert (mounted[f"/etc/grafana/provisioning/{kind}"] / name).exists()


def test_prometheus_finds_its_rules_where_they_are_mounted():
    mounted = {there: DASHBOARDS / here for here, there in mounts()}
    config = yaml.safe_load((mounted["/etc/prometheus"] / "prometheus.yml").read_text())
    assert config["rule_files"] == ["rules.yml", "alerts.yml"]
    assert all((mounted["/etc/prometheus"] / name).exists() for name in config["rule_files"])
