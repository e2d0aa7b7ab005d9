"""A worker's recorder."""
