"""A fleet that is watched: what is asked, what was answered, and what is new in a round. Pure; knows no server."""
