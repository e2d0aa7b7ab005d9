"""Archives as files of traces and of paths are: foreign ones, and forged ones whose checksums are right."""

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

#: Changes the description of an archive, and its members.
Change = Callable[[dict[str, Any], dict[str, bytes]], None]


def archive(**members: str) -> bytes:
    """Members by name, with an underscore for the dot of ``.json``."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, text in members.items():
            file.writestr(name.replace("_json", ".json"), text)
    return buffer.getvalue()


def forged(content: bytes, description: str, change: Change, **sizes: int) -> bytes:
    """Change the description or columns of a file, with right checksums; and the sizes that its directory claims."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    described = json.loads(members[description])
    change(described, members)
    members[description] = json.dumps(described).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, member in members.items():
            file.writestr(name, member)
        for name, size in sizes.items():
            file.getinfo(name).file_size = size
    return buffer.getvalue()


def set_to(*place: Any, to: Any) -> Change:
    """A change of one value of the description."""

    def change(described: dict[str, Any], members: dict[str, bytes]) -> None:
        for step in place[:-1]:
            described = described[step]
        described[place[-1]] = to

    return change
