"""The stub of a GPU, for the meter's own tests too."""

from tests.gpu.conftest import stub, stub_directory

__all__ = ["stub", "stub_directory"]
