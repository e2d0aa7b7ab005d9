# An operator: every user's work is metered, in Prometheus, with alerts.
# pages: docs/operate.md docs/prometheus.md docs/alerts.md
# needs: prometheus curl
# installs: prometheus-client bokeh
# answer: "kind":"thread-noncpu/sleep"
dask scheduler --preload dask_efficiency --host 127.0.0.1 --port "$PORT" --dashboard-address ":$DASHBOARD" 2>scheduler.log &
dask worker "tcp://127.0.0.1:$PORT" --nworkers 2 --nthreads 1 --no-dashboard 2>worker.log &
cp "$CHECKOUT"/dashboards/prometheus/*.yml .
sed -i "s/host.docker.internal:8787/127.0.0.1:$DASHBOARD/; s/15s/2s/" prometheus.yml
prometheus --config.file prometheus.yml --web.listen-address "127.0.0.1:$PROMETHEUS" --log.level error &
python job.py --on "tcp://127.0.0.1:$PORT" --repeats 3
query() { curl --silent --fail --get "http://127.0.0.1:$PROMETHEUS/api/v1/query" --data-urlencode "query=$1"; }
until query dask_efficiency_finding_seconds | grep thread-noncpu/sleep; do sleep 1; done
curl --silent "http://127.0.0.1:$PROMETHEUS/api/v1/rules" | grep -o DaskEfficiencyLow | head -1
dask-efficiency report "tcp://127.0.0.1:$PORT" --last 1h
kill %1 %2 %3
