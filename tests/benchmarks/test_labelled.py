"""``benchmarks/studies/labelled.py`` cuts windows with one machine at fault, or none, and leaves others out."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from benchmarks.studies.labelled import FLEETS, PACE, SAMPLES, public, split, windows


def made(count: int, *faults: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Two metrics and the labels of three machines over so many samples; a fault has its machine, begin and end."""
    values = np.arange(2 * 3 * count, dtype=np.float32).reshape(2, 3, count)
    labels = np.zeros((3, count), np.bool_)
    for machine, begin, end in faults:
        labels[machine, begin:end] = True
    return values, labels


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as InterFusion's, of three machines of ASD; one sample more of the first, and a machine without data."""
    values, labels = made(4 * SAMPLES, (1, 5, 9), (2, 3 * SAMPLES + 7, 3 * SAMPLES + 8))
    for machine in range(3):
        arrays = {"train": values[:, machine, :SAMPLES].T, "test": values[:, machine].T, "test_label": labels[machine]}
        for name, array in arrays.items():
            longer = np.concatenate([array, array[-1:]]) if machine == 0 else array
            # the public files have the module's name of before numpy 2
            data = pickle.dumps(longer, protocol=3).replace(b"numpy._core", b"numpy.core")
            (tmp_path / f"omi-{machine}_{name}.pkl").write_bytes(data)
    (tmp_path / "omi-9_test.pkl").touch()
    return tmp_path


def test_a_window_with_labels_of_one_machine_is_faulty_from_the_first_of_them() -> None:
    values, labels = made(SAMPLES, (1, 20, 24), (1, 40, 41))
    (window,) = windows(values, labels)
    assert window.faulty == (1,)
    assert window.onset == 20 * PACE
    assert window.series.step_seconds == PACE
    assert (window.series.values == values).all()


def test_a_window_without_labels_is_healthy_and_the_samples_after_the_last_one_are_left() -> None:
    values, labels = made(2 * SAMPLES - 1, (0, SAMPLES, SAMPLES + 2))
    (window,) = windows(values, labels)
    assert window.faulty == ()
    assert window.onset == -1
    assert (window.series.values == values[:, :, :SAMPLES]).all()


def test_a_fault_from_before_a_window_is_there_from_its_first_sample() -> None:
    cut = windows(*made(2 * SAMPLES, (2, SAMPLES - 1, SAMPLES + 3)))
    assert [(one.faulty, one.onset) for one in cut] == [((2,), (SAMPLES - 1) * PACE), ((2,), 0.0)]


def test_a_window_with_labels_of_two_machines_is_left_out_even_if_they_are_not_at_the_same_time() -> None:
    cut = windows(*made(3 * SAMPLES, (0, SAMPLES, SAMPLES + 2), (1, SAMPLES + 9, SAMPLES + 11)))
    assert [one.series.values[0, 0, 0] for one in cut] == [0, 2 * SAMPLES]


def test_the_earlier_windows_choose_and_the_later_ones_judge(folder: Path) -> None:
    train, tune, report = split(folder, "asd")
    assert [one.faulty for one in train] == [()]
    assert [(one.faulty, one.onset) for one in tune] == [((1,), 5 * PACE), ((), -1)]
    assert [(one.faulty, one.onset) for one in report] == [((), -1), ((2,), 7 * PACE)]


def test_machines_are_as_long_as_the_shortest_and_those_without_data_are_left_out(folder: Path) -> None:
    values, labels = public(folder, "omi")
    assert values.shape == (2, 3, 4 * SAMPLES)
    assert labels.sum(axis=1).tolist() == [0, 4, 1]
    assert not public(folder, "omi", "train")[1].any()


def test_what_is_no_array_is_refused_and_not_run(folder: Path) -> None:
    (folder / "omi-1_test.pkl").write_bytes(pickle.dumps(print))
    with pytest.raises(pickle.UnpicklingError, match=r"builtins\.print is no array"):
        public(folder, "omi")


@pytest.mark.parametrize("fleet", FLEETS)
def test_a_folder_without_a_fleet_is_named_with_what_would_be_right(tmp_path: Path, fleet: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"_test\.pkl; expected data/processed of InterFusion"):
        split(tmp_path, fleet)
