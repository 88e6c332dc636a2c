import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array

from graphclean.cleaning.inputs import check_embeddings, encode_labels, encode_written
from graphclean.errors import InputError


@pytest.mark.parametrize(
    ("labels", "classes", "codes"),
    [
        (["b", "a", "", "b"], ["a", "b"], [1, 0, -1, 1]),
        ([3, 1, -1, 3], [1, 3], [1, 0, -1, 1]),
        (np.array([2.0, np.nan, 0.0]), [0, 2], [1, -1, 0]),
        (["10", "9", "-1", ""], ["-1", "10", "9"], [1, 2, 0, -1]),
        (["1.0", "01", "nan"], ["01", "1.0", "nan"], [1, 0, 2]),
        ([0.0, None, 2.0], [0, 2], [0, -1, 1]),
        (np.array([1, None, -1], dtype=object), [1], [0, -1, -1]),
        (np.array([2**60, 2**60 + 1, 2**60]), [2**60, 2**60 + 1], [0, 1, 0]),
        ([b"ant", b"bee"], ["ant", "bee"], [0, 1]),
        (["0.5", "1"], ["0.5", "1"], [0, 1]),
        (["01", "1", "NA"], ["01", "1", "NA"], [0, 1, 2]),
        (["a", None, "nan", float("nan")], ["a", "nan"], [0, -1, 1, -1]),
        (["None", "NA", "null", ""], ["NA", "None", "null"], [1, 0, 2, -1]),
        ([True, False, None], ["False", "True"], [1, 0, -1]),
        (pd.Categorical([7, None, 3]), [3, 7], [1, -1, 0]),
        (pd.Categorical(["7", "3"]), ["3", "7"], [1, 0]),
        (pd.Series(["x", "y"], index=[7, 8]), ["x", "y"], [0, 1]),
        (pd.Series(pd.Categorical(["q", "p"])), ["p", "q"], [1, 0]),
        (pd.Series([5, None], dtype="Int64"), [5], [0, -1]),
    ],
)
def test_labels_of_many_kinds(labels: object, classes: list[object], codes: list[int]) -> None:
    found = encode_labels(labels)
    assert found.classes == classes
    assert found.codes.tolist() == codes
    names = found.names(found.codes)
    assert [None if pd.isna(name) else name for name in names] == [
        None if code < 0 else classes[code] for code in codes
    ]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0.5, 1.0], r"labels must be names or whole numbers, not 0\.5"),
        ([np.inf, 1.0], "labels must be names or whole numbers, not inf"),
        (np.array([1j, 2]), "labels must be names or whole numbers, not of type complex128"),
        (np.zeros(2, "|V4"), "labels must be names or whole numbers, not of type"),
        (np.zeros((3, 2)), "labels must be one a row"),
        ([["a"], ["b"]], "labels must be one a row, not lists of them"),
    ],
)
def test_labels_that_are_refused(labels: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        encode_labels(labels)


def test_labels_of_another_length_are_refused() -> None:
    with pytest.raises(InputError, match="there are 3 labels for 4 samples"):
        encode_labels([0, 1, 2], 4)


def test_bad_rows_are_counted_and_three_are_named() -> None:
    z = np.ones((9, 2))
    z[[1, 3, 5, 7, 8], 0] = np.nan, np.inf, -np.inf, np.nan, 1e39
    with pytest.raises(
        InputError, match=r"NaN or infinite values in 4 rows of 9 \(counted from 0: 1, 3, 5, …\)"
    ):
        check_embeddings(z)
    z[[1, 3, 5, 7], 0] = 1, 1, -1e300, 1
    with pytest.raises(InputError, match=r"beyond the range of float32, .* in 2 rows of 9 .*: 5, 8\)"):
        check_embeddings(z)
    z = np.ones((5, 2))
    z[2] = 0
    with pytest.raises(InputError, match=r"all zero in 1 row of 5 \(counted from 0: 2\)"):
        check_embeddings(z)
    np.testing.assert_array_equal(check_embeddings(z, zeros=True), z)


@pytest.mark.parametrize(
    ("z", "message"),
    [
        (np.ones(4), r"not an array of shape \(4,\)"),
        (np.ones((0, 3)), "empty: 0 rows × 3 columns"),
        (np.ones((3, 0)), "empty: 3 rows × 0 columns"),
        (np.array([["a"]]), "must be numbers"),
        (np.array([[1j]]), "must be real numbers"),
        ([[1, 2], [3]], "must be"),
        (csr_array(np.eye(3)), "sparse matrix; make them dense"),
        (np.ones((4, 1)), "one column; directions are compared"),
    ],
)
def test_embeddings_that_are_refused(z: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_embeddings(z)


def test_whole_numbers_and_halves_are_taken() -> None:
    assert check_embeddings(np.array([[1, 2]], dtype=np.int8)).dtype == np.float32
    assert check_embeddings(np.ones((2, 2), dtype=np.float16)).dtype == np.float32


def test_pandas_own_kinds_of_numbers_are_taken() -> None:
    table = pd.DataFrame({"a": [1.5, 2.5], "b": [3, 4], "c": [True, False]})
    for own in (table.convert_dtypes(), table.convert_dtypes(dtype_backend="pyarrow"), table):
        np.testing.assert_array_equal(check_embeddings(own.iloc[:, :2]), [[1.5, 3], [2.5, 4]])
    assert check_embeddings(table.convert_dtypes()).tolist() == [[1.5, 3, 1], [2.5, 4, 0]]
    gap = pd.DataFrame({"a": [1, None], "b": [3, 4]}, dtype="Int64")
    with pytest.raises(InputError, match=r"NaN or infinite values in 1 row of 2 \(counted from 0: 1\)"):
        check_embeddings(gap)
    with pytest.raises(InputError, match="must be numbers, not object"):
        check_embeddings(table.astype({"a": "string"}))


def test_tensors_are_taken() -> None:
    z = torch.ones(2, 3, dtype=torch.bfloat16, requires_grad=True)
    np.testing.assert_array_equal(check_embeddings(z), np.ones((2, 3)))
    assert encode_labels(torch.tensor([4, 2, -1])).codes.tolist() == [1, 0, -1]


@pytest.mark.parametrize(
    ("labels", "classes", "codes"),
    [
        (["10", "9", "-1"], [9, 10], [1, 0, -1]),
        (["0.0", "-1.0", "2.0"], [0, 2], [0, -1, 1]),
        (["3.0", "nan", "1", "NaN"], [1, 3], [1, -1, 0, -1]),
        (["a", "-1", "10", ""], ["-1", "10", "a"], [2, 0, 1, -1]),
        ([True, False, None], ["False", "True"], [1, 0, -1]),
        (pd.Series(["7", "3"], dtype="category"), [3, 7], [1, 0]),
    ],
)
def test_labels_of_files_are_what_is_written(labels: object, classes: list[object], codes: list[int]) -> None:
    found = encode_written(labels)
    assert found.classes == classes
    assert found.codes.tolist() == codes


def test_far_features_stay_in_double_and_others_do_not() -> None:
    z = np.random.default_rng(0).normal(size=(50, 3))
    assert check_embeddings(z).dtype == check_embeddings(z, double=False).dtype == np.float32
    far = z + np.array([0, 1e7, 0])
    found = check_embeddings(far)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, far)
    assert check_embeddings(far.astype(np.float32)).dtype == np.float32
    assert check_embeddings(np.column_stack([z, np.full(50, 1e9)])).dtype == np.float32


def test_dates_are_classes_alike_from_any_kind_of_file() -> None:
    dates = pd.to_datetime(["2026-01-02", "2026-01-01", None])
    lines = pd.DataFrame({"label": dates}).to_csv(index=False).splitlines()[1:]
    written = [line.strip('"') for line in lines]
    assert encode_written(pd.Series(dates)).classes == ["2026-01-01", "2026-01-02"]
    assert encode_written(pd.Series(dates)).codes.tolist() == [1, 0, -1]
    assert encode_written(written).classes == ["2026-01-01", "2026-01-02"]
