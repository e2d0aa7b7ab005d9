"""Preflights on the scheduler: tests for clients, and the gate of workers that join."""
