"""What is shown of a report, a comparison and stragglers."""
