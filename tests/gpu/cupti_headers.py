"""The headers of CUPTI that are on this machine, and what a C compiler makes of them."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

#: Fields by the stem of the record's name.
FIELDS = {
    "Kernel": ("start", "end", "deviceId", "streamId", "correlationId", "name"),
    "Memcpy": ("start", "end", "deviceId", "streamId", "correlationId"),
    "Memset": ("start", "end", "deviceId", "streamId", "correlationId"),
    "API": ("cbid", "start", "end", "threadId", "correlationId", "returnValue"),
}
KINDS = ("MEMCPY", "MEMSET", "DRIVER", "RUNTIME", "CONCURRENT_KERNEL")


def folders() -> list[Path]:
    """Where ``cupti_activity.h`` is: folders in ``CUPTI_INCLUDE``, separated by colons, else CUDA's usual places."""
    given = os.environ.get("CUPTI_INCLUDE")
    usual = ["/usr/local/cuda*/include", "/usr/local/cuda*/extras/CUPTI/include"]
    patterns = given.split(os.pathsep) if given else usual
    found = {Path(path).resolve() for pattern in patterns for path in glob.glob(pattern)}
    return sorted(folder for folder in found if (folder / "cupti_activity.h").exists())


@pytest.fixture(params=[pytest.param(folder, id=str(folder)) for folder in folders()] or [None])
def header(request: pytest.FixtureRequest) -> Path:
    """Each of the folders in turn."""
    if request.param is None:
        pytest.skip("there is no cupti_activity.h here; CUPTI_INCLUDE may name its folder")
    return request.param


def measured(folder: Path, work: Path) -> dict[str, int | str]:
    """Version, kinds, and offsets and sizes of the newest records, by name."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    text = (folder / "cupti_activity.h").read_text()
    lines = ['printf("version %d\\n", CUPTI_API_VERSION);']
    lines += [f'printf("{kind} %d\\n", CUPTI_ACTIVITY_KIND_{kind});' for kind in KINDS]
    record_of = {}
    for stem, fields in FIELDS.items():
        records = re.findall(rf"\}} (CUpti_Activity{stem}\d*);", text)
        record = max(records, key=lambda name: int(re.sub(r"\D", "", name) or 0))
        record_of[stem] = record
        lines.append(f'printf("{stem} %zu\\n", sizeof({record}));')
        lines += [f'printf("{stem}.{field} %zu\\n", offsetof({record}, {field}));' for field in fields]
    source = work / "measure.c"
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n#include <cupti_activity.h>\n#include <cupti_version.h>\n"
        "int main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n"
    )
    # cuda.h is not in CUPTI's own wheels
    others = [option for path in sorted(glob.glob("/usr/local/cuda*/include")) for option in ("-I", path)]
    binary = work / "measure"
    subprocess.run([compiler, "-o", binary, source, "-I", str(folder), *others], check=True)
    output = subprocess.run([binary], check=True, capture_output=True, text=True).stdout
    return {"record": record_of["Kernel"], **{name: int(value) for name, value in map(str.split, output.splitlines())}}


def numbers(folder: Path, api: str) -> dict[int, str]:
    """The functions of an API by number, without the version that runtime functions end in; only those with names."""
    text = (folder / f"cupti_{api}_cbid.h").read_text()
    found = {int(number): name for name, number in re.findall(r"_CBID_(\w+)\s*=\s*(\d+)", text)}
    return {
        number: re.sub(r"_v\d{4,}$", "", name)
        for number, name in found.items()
        if not re.fullmatch(r"cuda\d+|INVALID|SIZE|FORCE_INT", name)
    }
