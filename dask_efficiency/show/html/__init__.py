"""A document in HTML: a page that is one file and opens offline, or a piece for a notebook."""
