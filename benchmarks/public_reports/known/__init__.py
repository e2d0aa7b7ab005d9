"""Programs after public reports that the rules may be worked on with."""
