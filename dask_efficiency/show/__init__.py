"""How anything is shown: documents, figures and colours, for a terminal, a notebook and a page. Knows no feature."""
