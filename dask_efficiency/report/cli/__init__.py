"""Commands that show, compare and judge reports."""
