"""Recording a run: the scheduler's part, and the workers'."""
