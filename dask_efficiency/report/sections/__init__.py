"""What a report, a critical path, a comparison or a judgement says, as values that any renderer can show."""
