"""What a breakdown means, said in a terminal, a notebook or a file: pure functions of values."""
