"""One file for each foreign library, named after it."""
