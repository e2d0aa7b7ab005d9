"""The scheduler's recorder."""
