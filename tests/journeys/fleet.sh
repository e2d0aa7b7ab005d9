# A fleet of machines in a Prometheus, without Dask.
# pages: docs/watch.md
# needs: prometheus promtool
# world: fleet
# answer: begins m\d+
code=0
dask-efficiency fleet watch "$FLEET" --metrics metrics.yaml --once --fail || code=$?
test "$code" = 1
