"""Judge of a preflight: finds slow workers from short measurements of them alone and in pairs."""
