"""Run by a Python that has SimGrid: when transfers over links end by its fluid model, as JSON from stdin to stdout."""

import json
import sys

from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone, this_actor

#: Plain max-min: no TCP window, no cross traffic, no factors.
PLAIN = (
    "network/model:CM02",
    "network/TCP-gamma:0",
    "network/crosstraffic:0",
    "network/latency-factor:1",
    "network/bandwidth-factor:1",
    "network/weight-S:0",
)


def main() -> None:
    """Simulate ``hosts``, ``links`` of a bandwidth and a latency each, ``routes`` and ``transfers``."""
    given = json.load(sys.stdin)
    engine = Engine(["oracle", *(f"--cfg={setting}" for setting in PLAIN), "--log=root.thres:error"])
    zone = NetZone.create_full_zone("zone")
    hosts = {name: zone.create_host(name, 1e9) for name in given["hosts"]}
    links = [
        zone.create_link(str(i), bandwidth).set_latency(latency).seal()
        for i, (bandwidth, latency) in enumerate(given["links"])
    ]
    for source, destination, crossed in given["routes"]:
        route = [LinkInRoute(links[i]) for i in crossed]
        zone.add_route(hosts[source].netpoint, hosts[destination].netpoint, None, None, route, False)
    zone.seal()
    ends = [0.0] * len(given["transfers"])

    def send(i, at, source, destination, nbytes):
        this_actor.sleep_until(at)
        Comm.sendto(hosts[source], hosts[destination], nbytes)
        ends[i] = Engine.clock

    for i, transfer in enumerate(given["transfers"]):
        Actor.create(f"send-{i}", hosts[transfer[1]], send, i, *transfer)
    engine.run()
    json.dump(ends, sys.stdout)


if __name__ == "__main__":
    main()
