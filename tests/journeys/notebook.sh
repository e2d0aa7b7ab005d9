# Somebody with a slow cell in a notebook.
# pages: docs/notebooks.md
# installs: ipykernel nbconvert
# answer: Sleeping
cat > book.ipynb <<'NOTEBOOK'
{"cells": [
  {"cell_type": "code", "id": "1", "metadata": {}, "outputs": [], "execution_count": null,
   "source": "from job import read\nfrom distributed import Client\nclient = Client(n_workers=2, threads_per_worker=1)"},
  {"cell_type": "code", "id": "2", "metadata": {}, "outputs": [], "execution_count": null,
   "source": "%load_ext dask_efficiency"},
  {"cell_type": "code", "id": "3", "metadata": {}, "outputs": [], "execution_count": null,
   "source": "%%efficiency\nsum(client.gather(client.map(len, client.map(read, range(20)))))"}],
 "metadata": {"kernelspec": {"name": "python3", "display_name": "Python", "language": "python"}},
 "nbformat": 4, "nbformat_minor": 5}
NOTEBOOK
jupyter nbconvert --to html --execute book.ipynb 2>/dev/null
grep -o 'Sleeping[^<]*' book.html
