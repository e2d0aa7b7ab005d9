"""Every block of docs/deploy is run here, on the cluster that its page is about, or is marked there as untried."""

import re
import sys
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import dask
import pytest
import yaml
from distributed import Client

from dashboards.monitor.prometheus import free_port
from dask_efficiency.report.efficiency_report import LEASED
from tests.deployments import pages, slurm, ssh
from tests.deployments.bare_cluster import bare_cluster, metered
from tests.deployments.pages import DEPLOY, Page, tried_blocks
from tests.deployments.programs import HOST, certificate, eventually, mpi_libraries, program, python_path
from tests.docs.markdown import ROOT

pytestmark = pytest.mark.timeout(600)

#: What each page has its cluster do.
DONE = {"succeeded": 1000}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return partial(pages.page, folder=tmp_path, monkeypatch=monkeypatch)


def test_every_page_is_run_by_a_test():
    run = set(re.findall(r'page\("([\w-]+)"\)', Path(__file__).read_text(encoding="utf-8")))
    assert run == {path.stem for path in DEPLOY.glob("*.md") if tried_blocks(path.stem)}


@pytest.mark.cluster
@pytest.mark.needs("promtool", "cryptography")
def test_local(page):
    with page("local") as opened:
        opened.file("job.py")
        assert "1000 succeeded" in opened.commands()
        opened.python()
        assert opened.namespace["report"].tasks == DONE
        opened.check_prometheus()


def configured(settings: dict[str, Any]) -> AbstractContextManager[Any]:
    """Dask's configuration with some settings more, for a block."""
    return dask.config.set(dask.config.merge(dask.config.config, settings))


def listen(opened: Page, protocol: str) -> None:
    """Start the next block, a scheduler and a worker, on ports that are free, and wait until both are there."""
    port, dashboard = free_port(), free_port()
    opened.instead["scheduler:8786"] = f"{HOST}:{port}"
    opened.instead["dask scheduler"] = (
        f"dask scheduler --host {HOST} --port {port} --dashboard-address {HOST}:{dashboard}"
    )
    opened.instead["dask worker"] = f"dask worker --host {HOST} --nthreads 1 --local-directory {opened.folder}"
    opened.start()
    with Client(f"{protocol}://{HOST}:{port}", timeout=60) as client:
        client.wait_for_workers(1, timeout=60)


@pytest.mark.cluster
@pytest.mark.needs("promtool", "openssl")
def test_command_line(page, tmp_path):
    files = certificate(tmp_path)
    (tmp_path / "certificate.pem").rename(tmp_path / "cert.pem")
    (tmp_path / "ca.pem").write_text((tmp_path / "cert.pem").read_text())
    assert files["--tls-key"] == str(tmp_path / "key.pem")
    with page("command-line") as opened:
        listen(opened, "tcp")
        assert "1 worker" in opened.commands()
        opened.python()
        assert (tmp_path / "run.html").stat().st_size > 10_000
        sides = {"cert": "cert.pem", "key": "key.pem"}
        settings = {"ca-file": "ca.pem", "client": sides}
        with configured({"distributed": {"comm": {"tls": settings}}}):
            listen(opened, "tls")
        assert "1 worker" in opened.commands()
        opened.check_prometheus()


@pytest.mark.cluster
@pytest.mark.needs("hatchling")
def test_without_images(page, tmp_path):
    with page("without-images") as opened:
        opened.instead["pip wheel"] = f"{sys.executable} -m pip wheel --no-build-isolation -w {tmp_path}"
        opened.instead["--no-deps ."] = f"--no-deps {ROOT}"
        opened.commands()
        opened.instead["/shared"] = str(tmp_path)
        # As pip sees the package that is installed here, though Python does not.
        opened.instead['["--no-deps"]'] = '["--no-deps", "--ignore-installed"]'
        for way in ("pip", "upload"):
            (folder := tmp_path / way).mkdir()
            with bare_cluster(folder) as cluster, Client(scheduler_file=str(cluster.file)) as client:
                client.wait_for_workers(2, timeout=120)
                opened.instead["tcp://scheduler:8786"] = client.scheduler.address
                opened.python()
                cluster.worker("third")
                all_metered = partial(metered, client, "first", "second", "third")
                eventually(all_metered, seconds=120, what="three workers to be metered")


@pytest.mark.cluster
@pytest.mark.needs("promtool", "asyncssh", "/usr/sbin/sshd")
def test_ssh(page, tmp_path):
    with page("ssh") as opened, ssh.daemon(tmp_path) as options:
        here = {"nthreads": 1, "local_directory": str(tmp_path)}
        opened.namespace |= {"options": options, "here": here, "python": sys.executable}
        hosts = f'["{HOST}"] * 3, connect_options=options, remote_python=python, worker_options=here'
        opened.instead = {
            '["head", "node1", "node2"]': hosts,
            '":8787"': f'"{HOST}:0", "host": "{HOST}", "port": 0',
        }
        code = opened.take("python notest")
        exec(code, opened.namespace)
        assert opened.namespace["report"].tasks == DONE
        with configured(opened.yaml()):
            exec(code.replace("client.register_plugin(EfficiencyPlugin())", "pass"), opened.namespace)
        assert opened.namespace["report"].tasks == DONE
        assert opened.namespace["report"].price_per_worker_hour == 0.35
        opened.check_prometheus()


@pytest.mark.cluster
@pytest.mark.needs("promtool", "cryptography", "dask_jobqueue", "/usr/sbin/slurmctld", "root")
def test_slurm(page, tmp_path):
    site = {
        "interface": "lo",
        "python": sys.executable,
        "local-directory": str(tmp_path),
        "log-directory": str(tmp_path),
        "job-script-prologue": [f"export PYTHONPATH={python_path()}"],
        "scheduler-options": {"interface": "lo", "dashboard_address": f"{HOST}:0"},
    }
    import dask_jobqueue  # noqa: F401  # its defaults come before those of the site

    with (
        slurm.slurm(tmp_path),
        configured({"jobqueue": {"slurm": site}}),
        ExitStack() as clusters,
        page("slurm") as opened,
    ):
        opened.python()
        clusters.enter_context(opened.namespace["cluster"])
        clusters.enter_context(opened.namespace["client"])
        assert opened.namespace["report"].tasks == DONE
        assert opened.namespace["report"].no_workers_seconds > 0
        opened.python()
        clusters.enter_context(opened.namespace["cluster"])
        assert "--lifetime 9m" in opened.namespace["cluster"].job_script()
        opened.python()
        clusters.enter_context(opened.namespace["secured"])
        opened.python()
        (target,) = yaml.safe_load((tmp_path / "dask.json").read_text())
        assert re.fullmatch(rf"{HOST}:\d+", target["targets"][0])
        opened.check_prometheus()


@pytest.mark.cluster
@pytest.mark.needs("dask_mpi", "mpiexec")
def test_dask_mpi(page, tmp_path):
    with page("dask-mpi") as opened:
        # One machine, and no other to start anything on.
        opened.environment |= {**mpi_libraries(tmp_path), "HYDRA_LAUNCHER": "fork", "HYDRA_IFACE": "lo"}
        opened.file("job.py")
        opened.commands()
        assert (tmp_path / "run.html").stat().st_size > 10_000
        opened.start()
        file = tmp_path / "scheduler.json"
        eventually(lambda: file.exists() and file.stat().st_size, what="the scheduler's file")
        opened.python()
        assert opened.namespace["report"].tasks == DONE
        assert not registered_by(opened.namespace["report"])


def registered_by(report: Any) -> bool:
    """Whether a report had to register the plugin itself."""
    return LEASED in report.notes


@pytest.mark.needs("dask_kubernetes", "jsonschema")
def test_kubernetes(page):
    import jsonschema

    (place,) = find_spec("dask_kubernetes").submodule_search_locations
    charts = Path(place) / "operator" / "deployment" / "helm" / "dask-kubernetes-operator" / "crds"
    (version,) = yaml.safe_load((charts / "daskcluster.yaml").read_text())["spec"]["versions"]
    with page("kubernetes") as opened:
        manifest = opened.yaml()
    assert manifest["apiVersion"] == f"kubernetes.dask.org/{version['name']}"
    schema = jsonschema.Draft7Validator(strict(version["schema"]["openAPIV3Schema"]["properties"]["spec"]))
    schema.validate(manifest["spec"])
    with pytest.raises(jsonschema.ValidationError, match="workers"):
        schema.validate({**manifest["spec"], "workers": {}})


def strict(schema: Any) -> Any:
    """A schema that refuses fields that it does not name; Kubernetes would drop them."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: strict(item) for name, item in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        closed.setdefault("additionalProperties", schema.get("x-kubernetes-preserve-unknown-fields", False))
    return closed


@pytest.mark.cluster
@pytest.mark.needs("dask_gateway_server")
def test_gateway(page, tmp_path):
    port = free_port()
    with page("gateway") as opened:
        values = opened.yaml()
        settings = {
            "DaskGateway.backend_class": "dask_gateway_server.backends.local.UnsafeLocalBackend",
            "DaskGateway.address": f"{HOST}:0",
            "Proxy.address": f"{HOST}:{port}",
        }
        local = "".join(f"c.{name} = {value!r}\n" for name, value in settings.items())
        config = tmp_path / "dask_gateway_config.py"
        config.write_text(local + values["gateway"]["extraConfig"]["dask-efficiency"])
        server = [str(Path(sys.executable).parent / "dask-gateway-server"), "-f", str(config)]
        with program(server, tmp_path / "gateway.log", environment=opened.environment):
            eventually(lambda: _is_routed(f"http://{HOST}:{port}/api/v1/options"), what="the gateway behind its proxy")
            opened.instead["http://gateway.example.com"] = f"http://{HOST}:{port}"
            opened.python()
            opened.namespace["gateway"].close()
        report = opened.namespace["report"]
        assert report.tasks == DONE
        assert report.price_per_worker_hour == 0.35
        assert not registered_by(report)


def _is_routed(url: str) -> bool:
    """Whether a proxy, which is there before what it leads to, knows an address; it may ask for a password."""
    try:
        with urlopen(url, timeout=10):
            return True
    except HTTPError as error:
        return error.code not in (404, 502, 503)
    except OSError:
        return False


@pytest.mark.cluster
@pytest.mark.needs("prefect_dask")
def test_prefect(page, tmp_path):
    port = free_port()
    with page("prefect") as opened:
        opened.environment |= {
            "PREFECT_HOME": str(tmp_path),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_API_URL": f"http://{HOST}:{port}/api",
        }
        server = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)]
        with program(server, tmp_path / "server.log", environment=opened.environment):
            eventually(lambda: ssh.listens(port), seconds=240, what="Prefect's server")
            opened.file("flow.py")
            assert "10 succeeded" in opened.commands()
            both = (tmp_path / "flow.py").read_text().replace("    numbers()\n", "    pass\n")
            (tmp_path / "both.py").write_text(both + opened.take("python notest"))
            assert "10 succeeded" in opened.run("python both.py")


@pytest.mark.cluster
@pytest.mark.needs("ray")
def test_ray(page, tmp_path):
    with page("ray") as opened:
        opened.file("ray_job.py")
        assert "6\n" in opened.run("python ray_job.py")
