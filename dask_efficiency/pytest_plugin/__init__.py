"""Plugin for pytest: reports of tests that use a client, and limits that they keep."""
