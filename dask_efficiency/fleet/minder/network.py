"""Autoencoder: an LSTM-VAE in numpy, which reconstructs normalised windows of a metric without their noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dask_efficiency.fleet.outliers.metric_series import Values


def normalised(values: Values) -> Values:
    """Scale each metric of (metrics, workers, samples) to lie between 0 and 1; one that never changes becomes 0."""
    known = np.isfinite(values)
    low = np.where(known, values, np.inf).min(axis=(1, 2), keepdims=True, initial=np.inf)
    high = np.where(known, values, -np.inf).max(axis=(1, 2), keepdims=True, initial=-np.inf)
    span = high - low
    with np.errstate(invalid="ignore"):
        scaled = (values - low) / np.where(span > 0, span, 1)
    return np.asarray(np.where(known, scaled, np.nan), np.float32)


def windowed(series: Values, *, length: int, stride: int = 1) -> NDArray[np.float32]:
    """Windows of consecutive samples, of shape (workers, windows, length); a view."""
    if series.shape[1] < length:
        return np.empty((len(series), 0, length), np.float32)
    return sliding_window_view(series, length, axis=1)[:, ::stride]


Weights = NDArray[np.float32]

#: Windows that pass through the network at once, and of each metric that are learnt from; bounds memory.
WINDOWS_AT_ONCE = 16_384


@dataclass(frozen=True, slots=True)
class Autoencoder:
    """The finite weights of a trained LSTM-VAE, whose gates are input, forget, cell, output."""

    encoder_input: Weights
    encoder_state: Weights
    encoder_bias: Weights
    #: From the encoder's last state to the mean of the latent.
    latent: Weights
    latent_bias: Weights
    #: From the latent to the decoder's input at each step.
    start: Weights
    start_bias: Weights
    decoder_input: Weights
    decoder_state: Weights
    decoder_bias: Weights
    output: Weights
    output_bias: Weights

    @classmethod
    def of(cls, flat: Mapping[str, Weights]) -> Self:
        """Weights from flat arrays, of which the biases tell the sizes; ValueError where these do not fit."""
        sizes = (len(flat[name]) for name in ("output_bias", "start_bias", "latent_bias"))
        return cls(**{name: flat[name].reshape(shape) for name, shape in _shapes(*sizes).items()})

    def __post_init__(self) -> None:
        if {self.output.ndim, self.latent.ndim} != {2}:
            found = f"output has shape {self.output.shape}, latent {self.latent.shape}"
            raise ValueError(f"{found}; expected two dimensions")
        hidden, channels = self.output.shape
        for name, shape in _shapes(channels, hidden, self.latent.shape[1]).items():
            weights = getattr(self, name)
            if weights.shape != shape or weights.dtype != np.float32:
                raise ValueError(f"{name} is {weights.dtype} of shape {weights.shape}; expected float32 of {shape}")
            if not np.isfinite(weights).all():
                raise ValueError(f"{name} holds {weights[~np.isfinite(weights)][0]}; expected finite weights")

    @property
    def channels(self) -> int:
        """Number of metrics it takes at once."""
        return int(self.output.shape[1])

    def reconstruct(self, windows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Reconstruct windows of shape (windows, steps, channels), the embeddings that are compared; NaN from NaN."""
        if windows.ndim != 3 or windows.shape[2] != self.channels:
            raise ValueError(f"windows have shape {windows.shape}; expected (windows, steps, {self.channels})")
        result = np.empty(windows.shape, np.float32)
        for first in range(0, len(windows), WINDOWS_AT_ONCE):
            batch = np.asarray(windows[first : first + WINDOWS_AT_ONCE], np.float32)
            result[first : first + len(batch)] = self._reconstruct(batch)
        return result

    def _reconstruct(self, windows: NDArray[np.float32]) -> NDArray[np.float32]:
        count, steps, _ = windows.shape
        state, cell = np.zeros((2, count, self.output.shape[0]), np.float32)
        for step in range(steps):
            gates = windows[:, step] @ self.encoder_input + self.encoder_bias
            state, cell = _turn(gates, state, cell, self.encoder_state)
        given = (state @ self.latent + self.latent_bias) @ self.start + self.start_bias
        gates = given @ self.decoder_input + self.decoder_bias
        state, cell = np.zeros((2, count, self.output.shape[0]), np.float32)
        result = np.empty_like(windows)
        for step in range(steps):
            state, cell = _turn(gates, state, cell, self.decoder_state)
            result[:, step] = state @ self.output + self.output_bias
        return result


#: Names of the weights, in their order.
WEIGHTS = tuple(field.name for field in fields(Autoencoder))


def _shapes(channels: int, hidden: int, latents: int) -> dict[str, tuple[int, ...]]:
    gates = 4 * hidden
    shapes: list[tuple[int, ...]] = [(channels, gates), (hidden, gates), (gates,)]
    shapes += [(hidden, latents), (latents,), (latents, hidden), (hidden,)]
    shapes += [(hidden, gates), (hidden, gates), (gates,), (hidden, channels), (channels,)]
    return dict(zip(WEIGHTS, shapes, strict=True))


def _turn(gates: NDArray[Any], state: Weights, cell: Weights, recurrent: Weights) -> tuple[Weights, Weights]:
    """One step of an LSTM: its next state and cell, from the input's part of the gates."""
    hidden = state.shape[1]
    gates = gates + state @ recurrent
    put, keep = _sigmoid(gates[:, :hidden]), _sigmoid(gates[:, hidden : 2 * hidden])
    cell = keep * cell + put * np.tanh(gates[:, 2 * hidden : 3 * hidden])
    return _sigmoid(gates[:, 3 * hidden :]) * np.tanh(cell), cell


def _sigmoid(x: NDArray[Any]) -> NDArray[Any]:
    # tanh does not overflow, as exp would
    return np.float32(0.5) * np.tanh(np.float32(0.5) * x) + np.float32(0.5)
