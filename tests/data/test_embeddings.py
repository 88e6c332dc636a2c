import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from graphclean.cleaning.inputs import encode_written
from graphclean.data.embeddings import read_embeddings
from graphclean.data.labels import read_labels
from graphclean.data.tables import Names
from graphclean.errors import InputError

Z = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
Y = ["b", "a", "b", "a"]


def save(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)
    return path


def table(**extra: object) -> pd.DataFrame:
    return pd.DataFrame({**{f"f{j}": Z[:, j] for j in range(3)}, **extra})


def test_npz_by_kind_and_by_name(tmp_path: Path) -> None:
    plain = read_embeddings(save(tmp_path / "a.npz", anything=Z, other=np.array(Y)))
    np.testing.assert_array_equal(plain.features, Z)
    assert list(plain.labels) == Y
    many = save(tmp_path / "b.npz", z=Z, w=Z + 1, y=np.array(Y), t=np.arange(4))
    named = read_embeddings(many, names=Names(features_key="w", labels_key="t"))
    np.testing.assert_array_equal(named.features, Z + 1)
    assert list(named.labels) == [0, 1, 2, 3]
    with pytest.raises(InputError, match=r"more than one 2-D float array .*; name one with features_key"):
        read_embeddings(many)
    with pytest.raises(InputError, match="no array 'zz' in it; did you mean 'z'"):
        read_embeddings(many, names=Names(features_key="zz"))


def test_one_column_is_said_at_once(tmp_path: Path) -> None:
    path = save(tmp_path / "one.npz", features=Z[:, :1], labels=np.array(Y))
    for names in (Names(), Names(features_key="features"), Names(labels_key="labels")):
        with pytest.raises(InputError, match=r"one\.npz: the embeddings have one column; .* at least two"):
            read_embeddings(path, names=names)


@pytest.mark.parametrize("suffix", [".npy", ".txt", ".csv", ".tsv", ".parquet", ".pq", ".npz"])
def test_npy_with_labels_of_every_kind(tmp_path: Path, suffix: str) -> None:
    np.save(tmp_path / "z.npy", Z)
    labels = tmp_path / f"labels{suffix}"
    frame = pd.DataFrame({"n": range(4), "label": Y})
    match suffix:
        case ".npy":
            np.save(labels, np.array(Y))
        case ".npz":
            np.savez(labels, y=np.array(Y))
        case ".txt":
            labels.write_text("\ufeffb\na\nb\na\n", encoding="utf-8")
        case ".csv":
            frame.to_csv(labels, index=False)
        case ".tsv":
            frame.to_csv(labels, index=False, sep="\t")
        case ".parquet" | ".pq":
            frame.to_parquet(labels)
    found = read_embeddings(tmp_path / "z.npy", labels=labels)
    assert list(found.labels) == Y
    np.testing.assert_array_equal(found.features, Z)


def test_one_column_of_labels_needs_no_name(tmp_path: Path) -> None:
    (tmp_path / "y.csv").write_text("species\nb\na\n")
    assert list(read_labels(tmp_path / "y.csv")) == ["b", "a"]


def test_row_numbers_without_a_name_are_no_feature(tmp_path: Path) -> None:
    table(label=Y).to_csv(tmp_path / "t.csv")
    found = read_embeddings(tmp_path / "t.csv")
    assert found.columns == ["f0", "f1", "f2"]
    np.testing.assert_allclose(found.features, Z, rtol=1e-6)


def test_a_stray_word_does_not_cost_a_feature(tmp_path: Path) -> None:
    table(g=["1", "2", "NA", "4"], label=Y).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match="column 'g' holds numbers, but 'NA' in row 2"):
        read_embeddings(tmp_path / "t.csv")


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".pq"])
def test_tables_with_number_columns(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    frame = table(species=["01", "1", "NA", ""], key=list("wxyz"), note=["hi", "", "5", "x"])
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    found = read_embeddings(path, names=Names(label_column="species", id_column="key"))
    np.testing.assert_allclose(found.features, Z, rtol=1e-6)
    assert list(found.labels) == ["01", "1", "NA", ""]
    assert found.ids == list("wxyz")
    assert found.notes == ["columns that hold no numbers were ignored: note"]


def test_photos_beside_embeddings_are_no_feature(tmp_path: Path) -> None:
    photos = {"photo": [None, *[b"\x89PNG"] * 3], "hub": [{"bytes": b"\x89PNG", "path": "a"}] * 4}
    table(label=Y, **photos).to_parquet(tmp_path / "t.parquet")
    found = read_embeddings(tmp_path / "t.parquet")
    assert found.columns == ["f0", "f1", "f2"]
    assert found.notes == ["columns that hold no numbers were ignored: photo, hub"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables_with_a_list_column(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    if suffix == ".csv":
        lists = [json.dumps(row) for row in Z.tolist()]
        pd.DataFrame({"id": range(4), "embedding": lists, "label": Y}).to_csv(path, index=False)
    else:
        pd.DataFrame({"id": range(4), "embedding": list(Z), "label": Y}).to_parquet(path)
    found = read_embeddings(path)
    np.testing.assert_allclose(found.features, Z)
    assert found.ids == ["0", "1", "2", "3"]


def test_empty_cells_become_nan_for_the_row_check(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y,label\n1,2,a\n,4,b\n")
    np.testing.assert_array_equal(read_embeddings(tmp_path / "t.csv").features, [[1, 2], [np.nan, 4]])


def test_labels_are_left_aside_for_prediction(tmp_path: Path) -> None:
    table(label=[1, 2, 3, 4]).to_csv(tmp_path / "t.csv", index=False)
    found = read_embeddings(tmp_path / "t.csv", labeled=False)
    assert found.labels is None
    assert found.features.shape == (4, 3)
    np.savez(tmp_path / "z.npz", z=Z)
    assert read_embeddings(tmp_path / "z.npz", labeled=False).features.shape == (4, 3)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_refused_files(tmp_path: Path) -> None:
    pickled = tmp_path / "p.npy"
    np.save(pickled, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    zipped = tmp_path / "p.npz"
    np.savez(zipped, z=np.array([{"a": 1}], dtype=object))
    ragged = tmp_path / "r.csv"
    ragged.write_text('v,label\n"[1, 2]",a\n"[1]",b\n')
    both = tmp_path / "b.csv"
    both.write_text('v,x,label\n"[1, 2]",1,a\n')
    cases = [
        (tmp_path / "none.npz", "no such file"),
        (tmp_path, "a folder, not a file"),
        (write(tmp_path / "e.npz", b""), "the file is empty"),
        (write(tmp_path / "x.pkl", pickle.dumps(Z)), "data comes as .npz, .npy"),
        (write(tmp_path / "g.npz", b"garbage"), "not a NumPy file"),
        (write(tmp_path / "g.parquet", b"garbage"), "can't be read"),
        (
            write(tmp_path / "b.npy", pickle.dumps(Z)),
            "can't be read: it holds pickled objects, which are never loaded",
        ),
        (write(tmp_path / "h.csv", b"a,label\n"), "the table has no rows"),
        (write(tmp_path / "u.csv", b"\xff\xfe\x00bad"), "not text in UTF-8; save it as such"),
        (
            write(tmp_path / "n.csv", b"a,lable\n1,2\n"),
            r"known to hold the label \(there are: a, lable\); name it .*, or give labels with labels",
        ),
        (write(tmp_path / "t.csv", b"a,label\nx,2\n"), "no feature columns: none of a holds numbers"),
        (pickled, "pickled objects, which are never loaded"),
        (zipped, "pickled objects, which are never loaded"),
        (ragged, "not all of one length"),
        (
            both,
            "either number columns or one list column, and here are v, x; drop those that are no features",
        ),
        (save(tmp_path / "only.npz", z=Z), "no labels in it; give them with labels"),
        (save(tmp_path / "flat.npz", y=np.array(Y)), "no 2-D float array in it"),
    ]
    for path, message in cases:
        with pytest.raises(InputError, match=message) as caught:
            read_embeddings(path)
        assert "\n" not in str(caught.value)


def test_options_for_another_kind_of_file_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "z.npz", z=Z, y=np.array(Y))
    table(label=Y).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match=r"label_column does not apply to a \.npz file"):
        read_embeddings(tmp_path / "z.npz", names=Names(label_column="y"))
    with pytest.raises(InputError, match=r"features_key does not apply to a \.csv file"):
        read_embeddings(tmp_path / "t.csv", names=Names(features_key="z"))


def test_truncated_files_are_refused(tmp_path: Path) -> None:
    whole = save(tmp_path / "w.npz", z=Z, y=np.array(Y)).read_bytes()
    np.save(tmp_path / "w.npy", Z)
    array = (tmp_path / "w.npy").read_bytes()
    for name, content in (("a.npz", whole[: len(whole) // 2]), ("a.npy", array[:-8]), ("b.npy", array[:20])):
        with pytest.raises(InputError, match="can't be read"):
            read_embeddings(write(tmp_path / name, content))


@pytest.mark.parametrize(("there", "instead"), [(b"), }", b",, }"), (b"'shape'", b"b'shpe'")], ids=str)
def test_damaged_headers_are_refused(tmp_path: Path, there: bytes, instead: bytes) -> None:
    """NumPy reads them as Python, and lets through what that makes of them."""
    np.save(tmp_path / "w.npy", Z)
    whole = (tmp_path / "w.npy").read_bytes()
    assert whole.count(there) == 1
    with pytest.raises(InputError, match="can't be read"):
        read_embeddings(write(tmp_path / "a.npy", whole.replace(there, instead)))


def test_a_comma_at_the_end_of_rows_does_not_shift_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", b"id,label,f0,f1\ns0,ant,1,2,\ns1,bee,3,4,\n")
    with pytest.raises(
        InputError, match="line 2: 5 cells, the header has 4; is there a separator at its end"
    ):
        read_embeddings(path)


@pytest.mark.parametrize("header", ["a,b,label,label", "label,a,b,label", "a,b, a,label"])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, header: str) -> None:
    """The second labels would be features, and tell what they should be compared with."""
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\n1,2,3,4\n5,6,7,8\n")
    with pytest.raises(InputError, match="two columns are called"):
        read_embeddings(path)


def test_a_list_may_be_longer_than_the_csv_module_reads(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    numbers = ", ".join(["0.123456789012345678"] * 8192)
    path.write_text(f'features,label\n"[{numbers}]",cat\n"[{numbers}]",dog\n')
    assert read_embeddings(path).features.shape == (2, 8192)


def test_columns_of_an_earlier_run_are_taken_by_name(tmp_path: Path) -> None:
    table(label=Y).to_csv(tmp_path / "a.csv", index=False)
    used = read_embeddings(tmp_path / "a.csv").columns
    assert used == ["f0", "f1", "f2"]
    table(extra=1.0)[["extra", "f2", "f0", "f1"]].to_csv(tmp_path / "b.csv", index=False)
    again = read_embeddings(tmp_path / "b.csv", labeled=False, columns=used)
    np.testing.assert_allclose(again.features, Z, rtol=1e-6)
    table()[["f0", "f1"]].to_csv(tmp_path / "c.csv", index=False)
    with pytest.raises(InputError, match="no column 'f2' in it, which the run was made with"):
        read_embeddings(tmp_path / "c.csv", labeled=False, columns=used)


def test_a_file_of_labels_with_ids_is_matched_by_id(tmp_path: Path) -> None:
    table(id=list("wxyz")).to_csv(tmp_path / "z.csv", index=False)
    pd.DataFrame({"id": list("zyxw"), "label": ["d", "c", "b", "a"]}).to_csv(tmp_path / "y.csv", index=False)
    found = read_embeddings(tmp_path / "z.csv", labels=tmp_path / "y.csv")
    assert list(found.labels) == ["a", "b", "c", "d"]
    pd.DataFrame({"id": list("zyx"), "label": ["d", "c", "b"]}).to_csv(tmp_path / "short.csv", index=False)
    with pytest.raises(InputError, match="labels are matched by id, but there is no label for id w"):
        read_embeddings(tmp_path / "z.csv", labels=tmp_path / "short.csv")


def test_names_may_belong_to_the_file_of_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", Z)
    pd.DataFrame({"n": range(4), "species": Y}).to_csv(tmp_path / "y.csv", index=False)
    found = read_embeddings(
        tmp_path / "z.npy", labels=tmp_path / "y.csv", names=Names(label_column="species")
    )
    assert list(found.labels) == Y
    table().to_csv(tmp_path / "z.csv", index=False)
    np.savez(tmp_path / "y.npz", a=np.array(Y), b=np.arange(4))
    found = read_embeddings(tmp_path / "z.csv", labels=tmp_path / "y.npz", names=Names(labels_key="a"))
    assert list(found.labels) == Y


@pytest.mark.parametrize("parted", [";", "\t", ", "])
def test_tables_of_spreadsheets(tmp_path: Path, parted: str) -> None:
    """Semicolons or tabs in a .csv, spaces beside names, capitals in them."""
    lines = [parted.join(cells) for cells in (("ID", "a", "b", "Label"), ("7", "1.5", "2", "cat"))]
    path = tmp_path / "t.csv"
    path.write_text("\r\n".join(lines), encoding="utf-8-sig")
    found = read_embeddings(path)
    assert (found.ids, found.columns, found.features.tolist()) == (["7"], ["a", "b"], [[1.5, 2]])
    assert [label.strip() for label in found.labels] == ["cat"]


@pytest.mark.parametrize(("suffix", "parted"), [("csv", ";"), ("tsv", "\t")])
def test_commas_in_numbers_where_they_part_no_cells(tmp_path: Path, suffix: str, parted: str) -> None:
    """As spreadsheets write them in many countries; labels stay as they are."""
    rows = [["a", "b", "label"], ["0,5", "-1,25e-3", "1,5"], ["2", "", "1,5"], ["1.5", "7,0", "x"]]
    path = tmp_path / f"z.{suffix}"
    path.write_text("\n".join(parted.join(row) for row in rows))
    found = read_embeddings(path)
    np.testing.assert_array_equal(found.features, [[0.5, -1.25e-3], [2, np.nan], [1.5, 7]])
    assert list(found.labels) == ["1,5", "1,5", "x"]


def test_a_number_with_commas_among_commas_is_no_number(tmp_path: Path) -> None:
    """It may be a thousand and more, or one and a bit."""
    path = tmp_path / "z.csv"
    path.write_text('a,label\n1.5,x\n2.5,y\n"1,234",x\n')
    with pytest.raises(InputError, match="holds numbers, but '1,234' in row 2"):
        read_embeddings(path)


def test_labels_with_semicolons_are_matched_by_id(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,a,b\n1,1,2\n2,3,4\n")
    (tmp_path / "y.csv").write_text("Id;Label\n2;dog\n1;cat\n")
    assert read_embeddings(tmp_path / "t.csv", labels=tmp_path / "y.csv").labels == ["cat", "dog"]


def test_labels_may_be_a_column(tmp_path: Path) -> None:
    path = tmp_path / "keras.npz"
    np.savez(path, x=np.ones((3, 2)), y=np.array([[1.0], [2.0], [1.0]]))
    found = read_embeddings(path)
    assert (found.features.shape, found.labels.tolist()) == ((3, 2), [1, 2, 1])


def test_text_and_printed_arrays_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;b;label\n0,5 m;1,5 m;cat\n")
    with pytest.raises(InputError, match=r"none of a, b holds numbers \(a starts with '0,5 m'\)"):
        read_embeddings(tmp_path / "t.csv")
    (tmp_path / "p.csv").write_text("z,label\n[0.5  1.5],cat\n")
    with pytest.raises(InputError, match=r"column 'z' holds other than lists such as \[0.5, 1.25\]"):
        read_embeddings(tmp_path / "p.csv")


def test_images_are_told_from_embeddings(tmp_path: Path) -> None:
    np.savez(tmp_path / "images.npz", x=np.zeros((3, 8, 8, 3)), y=np.arange(3))
    np.save(tmp_path / "images.npy", np.zeros((3, 8, 8)))
    for name in ("images.npz", "images.npy"):
        with pytest.raises(InputError, match="it holds images, from which `graphclean train` learns"):
            read_embeddings(tmp_path / name)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("gaps", [True, False])
def test_one_table_as_csv_and_as_parquet_says_the_same(tmp_path: Path, named: bool, gaps: bool) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(6, 3)).astype(np.float32), columns=["a", "b", "c"])
    frame["sunny"] = [True, False, True, True, False, False]
    frame["id"] = pd.Series([7, None if gaps else 8, 9, 4, 5, 6])
    frame["label"] = [True, False, None if gaps else True, True, False, True]
    if named:
        frame = frame.set_index("id")
    frame.index.name = "id" if named else None
    frame.to_csv(tmp_path / "t.csv")
    frame.to_parquet(tmp_path / "t.parquet")
    text, typed = (read_embeddings(tmp_path / name) for name in ("t.csv", "t.parquet"))
    np.testing.assert_array_equal(text.features.astype(np.float32), typed.features.astype(np.float32))
    assert text.columns == typed.columns == ["a", "b", "c", "sunny"]
    assert text.ids == typed.ids == ["7", "" if gaps else "8", "9", "4", "5", "6"]
    ours, theirs = encode_written(text.labels), encode_written(typed.labels)
    assert ours.classes == theirs.classes == ["False", "True"]
    np.testing.assert_array_equal(ours.codes, theirs.codes)
    np.testing.assert_array_equal(ours.codes, [1, 0, -1 if gaps else 1, 1, 0, 1])


@pytest.mark.parametrize("labels", [[3, 10, -1], [3.0, 10.0, None], ["3", "10", ""], ["a", "-1", "10"]])
def test_labels_of_a_csv_are_those_of_a_parquet(tmp_path: Path, labels: list[object]) -> None:
    frame = pd.DataFrame({"a": [0.5, 1, 2], "b": [1.5, 0, 3], "label": labels})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    ours, theirs = (encode_written(read_embeddings(tmp_path / n).labels) for n in ("t.csv", "t.parquet"))
    assert ours.classes == theirs.classes == ([3, 10] if labels[0] != "a" else ["-1", "10", "a"])
    np.testing.assert_array_equal(ours.codes, theirs.codes)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("rows", [[0, 1, 2, 4], [3, 7, 8, 12]])
def test_a_column_that_numbers_the_rows_is_no_feature(tmp_path: Path, rows: list[int], suffix: str) -> None:
    frame = table(label=Y).set_index(pd.Index(rows, name="row"))
    path = tmp_path / f"t.{suffix}"
    frame.to_csv(path) if suffix == "csv" else frame.to_parquet(path)
    found = read_embeddings(path)
    assert found.columns == ["f0", "f1", "f2"]
    assert found.notes == ["columns that number the rows were ignored: row"]
