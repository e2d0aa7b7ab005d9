"""Files: written whole or not at all, read with bounded sizes, with errors that name them."""
