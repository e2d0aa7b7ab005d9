"""The cluster's accounts: workers that come and go, their sums, windows and timelines."""
