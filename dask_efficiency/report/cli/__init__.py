"""The commands that show, compare and judge reports."""
