"""What a person is told of his tasks, by mail and by other services, when they end, fail or stall."""
