"""Files: written whole or not at all, read with bounded sizes; errors name the file."""
