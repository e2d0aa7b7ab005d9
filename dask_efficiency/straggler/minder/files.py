"""Files of detectors: arrays in an npz archive, and never a program."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.storage import writing
from dask_efficiency.straggler.minder.network import Autoencoder

FORMAT = "dask-efficiency-minder"
VERSION = 1

#: The numbers of a detector, in the order of the file.
SETTINGS = ("threshold", "continuity_seconds", "share")
_WEIGHTS = tuple(field.name for field in fields(Autoencoder))

#: A detector takes a few kilobytes a metric; a larger file is refused.
MAX_BYTES = 1 << 26

Detector = TypeVar("Detector")


class MinderFileError(ValueError):
    """The file is not a detector that this version understands."""


def write(
    path: str | os.PathLike[str],
    models: Mapping[str, Autoencoder],
    settings: Mapping[str, float],
    **storage_options: Any,
) -> None:
    """Write the models of a detector, by metric, and its settings."""
    arrays: dict[str, NDArray[Any]] = {
        "format": np.array([FORMAT]),
        "version": np.array([VERSION]),
        "metrics": np.array(tuple(models)),
        "settings": np.array([settings[name] for name in SETTINGS], np.float64),
    }
    for number, model in enumerate(models.values()):
        arrays.update({f"{number}.{name}": getattr(model, name) for name in _WEIGHTS})
    with writing(path, **storage_options) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read(path: str | os.PathLike[str], build: Callable[..., Detector], **storage_options: Any) -> Detector:
    """Read a detector, which is built from its models and settings.

    Raises
    ------
    MinderFileError
        If the file is foreign, truncated, damaged, forged or of a newer version, or what it holds cannot be built from.
    FileNotFoundError
        If there is no such file.
    """
    import fsspec

    target = os.fspath(path)
    with fsspec.open(target, "rb", compression=None, **storage_options) as file:
        content = file.read(MAX_BYTES + 1)
    try:
        models, settings = _parts(_arrays(content))
        return build(models, **settings)
    except MinderFileError as error:
        raise MinderFileError(f"{target}: {error}") from error.__cause__
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, TypeError, NotImplementedError, OSError) as error:
        raise MinderFileError(
            f"{target}: foreign, damaged or forged ({str(error)[:200]}); expected a {FORMAT!r} file"
        ) from error


def _arrays(content: bytes) -> dict[str, NDArray[Any]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        nbytes = sum(member.file_size for member in archive.infolist())
    if nbytes > MAX_BYTES or len(content) > MAX_BYTES:
        raise MinderFileError(f"holds {max(nbytes, len(content))} bytes; expected at most {MAX_BYTES}")
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _parts(arrays: dict[str, NDArray[Any]]) -> tuple[dict[str, Autoencoder], dict[str, float]]:
    kind = _part(arrays, "format", 1, "U")
    if str(kind[0]) != FORMAT:
        raise MinderFileError(f"found format {str(kind[0])[:80]!r}; expected {FORMAT!r}")
    version = _part(arrays, "version", 1, "i")
    if version[0] != VERSION:
        raise MinderFileError(
            f"found version {version[0]}; expected {VERSION}: a newer dask-efficiency may have written it"
        )
    metrics = [str(name) for name in _part(arrays, "metrics", None, "U")]
    settings = _part(arrays, "settings", len(SETTINGS), "f").tolist()
    known = {"format", "version", "metrics", "settings", *(f"{i}.{w}" for i in range(len(metrics)) for w in _WEIGHTS)}
    if set(arrays) != known or len(set(metrics)) != len(metrics):
        raise MinderFileError(f"has {sorted(set(arrays) ^ known)[:5]} missing or too many, for metrics {metrics[:20]}")
    models = {
        name: Autoencoder(**{weights: arrays[f"{number}.{weights}"] for weights in _WEIGHTS})
        for number, name in enumerate(metrics)
    }
    return models, dict(zip(SETTINGS, settings, strict=True))


def _part(arrays: dict[str, NDArray[Any]], name: str, length: int | None, kind: str) -> NDArray[Any]:
    part = arrays.get(name)
    if part is None or part.ndim != 1 or part.dtype.kind != kind or (length is not None and len(part) != length):
        found = "nothing" if part is None else f"{part.dtype} of shape {part.shape}"
        raise MinderFileError(f"{name!r} is {found}; expected {'any number' if length is None else length} of {kind!r}")
    return part
