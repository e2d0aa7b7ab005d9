"""Files of detectors: arrays in an npz archive, and never a program."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.files.storage import FileTooLargeError, Members, stored, writing
from dask_efficiency.fleet.minder.network import Autoencoder

FORMAT = "dask-efficiency-minder"
VERSION = 1

#: The numbers of a detector, in the order of the file.
SETTINGS = ("threshold", "continuity_seconds", "share")
_WEIGHTS = tuple(field.name for field in fields(Autoencoder))

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
    target = os.fspath(path)
    try:
        members = Members(stored(target, **storage_options), target)
        models, settings = _parts({name.removesuffix(".npy"): _array(members.read(name)) for name in members.names})
        return build(models, **settings)
    except FileTooLargeError:
        raise
    except MinderFileError as error:
        raise MinderFileError(f"{target}: {error}") from error.__cause__
    except (zipfile.BadZipFile, ValueError, TypeError, NotImplementedError, RuntimeError, MemoryError) as error:
        raise MinderFileError(
            f"{target}: foreign, damaged or forged ({str(error)[:200]}); expected a {FORMAT!r} file"
        ) from error


def _array(content: bytes) -> NDArray[Any]:
    # np.load would also open an archive in the archive.
    try:
        array: NDArray[Any] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except Exception as error:  # a damaged header is no Python, which raises anything
        raise MinderFileError(f"found no array of numbers or text: {str(error)[:200]}") from error
    if array.size > len(content):
        raise MinderFileError(f"found {array.size} values in {len(content)} bytes")
    return array


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
