"""Programs as users write them, whose work is done by libraries that nobody here wrote."""
