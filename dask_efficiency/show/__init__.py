"""Display of results: documents, figures and colours, for a terminal, a notebook and a page; no feature is known."""
