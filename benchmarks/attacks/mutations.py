"""Corrupt files at random, by seed: bits, lengths, words, values."""

import io
import json
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from graphclean._files import load_tensors, save_tensors

HOSTILE = (
    *(
        "",
        "\0",
        "nan",
        "-inf",
        "1e999",
        "9" * 40,
        "-1",
        "0",
        "=cmd()",
        "../../etc/passwd",
        "/dev/zero",
        "NUL",
    ),
    *("<script>", "a;=2+2", "\r\n", "\ufeff", "\u202e", "é" * 300, "[" * 3000, '"', ",", ";", "true", "{}"),
    *("hf:x/y", "x" * 5000, "\t", "1_000", "0x10", "1,5", "None", "label", "id"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**70, 1e308, 0.5, "", "x", "\0", [], {}, [[]], {"a": {}}, [None], "9" * 400),
    *(float("nan"), float("inf"), ["x"] * 50, {"": ""}, "../../etc/passwd"),
)
KINDS = ("<f2", "<f4", "<f8", "<i8", "<u1", "<U5", "|b1", "<c8", "<M8[s]", "S3", "|V4")
SHAPES = (
    (),
    (0,),
    (1,),
    (72,),
    (72, 0),
    (0, 6),
    (72, 1),
    (71, 6),
    (72, 6),
    (72, 6, 2),
    (72, 8, 8),
    (72, 3, 2, 2),
)


def mutate(content: bytes, name: str, by: random.Random) -> bytes:
    """Corrupt a file's content according to its suffix, or as bytes."""
    suffix = Path(name).suffix
    if suffix in (".csv", ".tsv", ".txt", ".jsonl", ".json") and by.random() < 0.6:
        return in_text(content, by)
    if suffix == ".json" and by.random() < 0.8:
        return in_json(content, by)
    if suffix == ".jsonl" and by.random() < 0.7:
        lines = content.splitlines()
        place = by.randrange(len(lines))
        lines[place] = in_json(lines[place], by).replace(b"\n", b" ")
        return b"\n".join(lines) + b"\n" * by.randint(0, 1)
    if suffix == ".npz" and by.random() < 0.6:
        return in_arrays(content, by)
    if suffix == ".npy" and by.random() < 0.6:
        return as_npy(odd_array(by))
    if suffix == ".parquet" and by.random() < 0.6:
        return in_parquet(content, by)
    if suffix == ".safetensors" and by.random() < 0.7:
        return in_tensors(content, by)
    return in_bytes(content, by)


def in_bytes(content: bytes, by: random.Random) -> bytes:
    """Flip bits; remove, repeat, overwrite, insert or truncate bytes."""
    made = bytearray(content)
    for _ in range(by.choice((1, 1, 1, 2, 4, 16))):
        size = len(made)
        start = by.randrange(size + 1)
        end = min(size, start + by.choice((1, 2, 4, 8, 64, 1000)))
        how = by.randrange(7)
        if how == 0 and size:
            made[by.randrange(size)] ^= 1 << by.randrange(8)
        elif how == 1:
            del made[start:]
        elif how == 2:
            del made[start:end]
        elif how == 3:
            made[start:start] = made[start:end] * by.choice((1, 2, 50))
        elif how == 4:
            made[start:end] = by.randbytes(end - start)
        elif how == 5:
            made[start:end] = by.choice((b"\0", b"\xff", b"\x7f")) * (end - start)
        else:
            made[start:start] = by.randbytes(by.choice((1, 3, 40)))
    return bytes(made)


def in_text(content: bytes, by: random.Random) -> bytes:
    """Replace cells, lines or separators."""
    lines = content.decode("utf-8", "replace").split("\n")
    for _ in range(by.choice((1, 1, 2, 5))):
        place = by.randrange(len(lines))
        how = by.randrange(5)
        if how == 0:
            cells = lines[place].split(",")
            cells[by.randrange(len(cells))] = by.choice(HOSTILE)
            lines[place] = ",".join(cells)
        elif how == 1:
            lines.insert(place, by.choice(HOSTILE))
        elif how == 2 and len(lines) > 1:
            del lines[place]
        elif how == 3:
            lines[place] = lines[place].replace(",", by.choice((";", "\t", ",,", "")))
        else:
            lines.insert(place, lines[by.randrange(len(lines))])
    return "\n".join(lines).encode(by.choice(("utf-8", "utf-8", "utf-8", "utf-16", "utf-8-sig")), "replace")


def in_json(content: bytes, by: random.Random) -> bytes:
    """Replace, remove or rename a value anywhere in a JSON document."""
    try:
        whole = json.loads(content)
    except ValueError:
        return in_bytes(content, by)
    for _ in range(by.choice((1, 1, 2))):
        place = whole
        while isinstance(place, dict | list) and place:
            key = by.choice(list(place)) if isinstance(place, dict) else by.randrange(len(place))
            if isinstance(place[key], dict | list) and place[key] and by.random() < 0.7:
                place = place[key]
                continue
            if by.random() < 0.2:
                del place[key]
            else:
                place[key] = deepcopy(by.choice(VALUES))  # a later change must not reach it
            break
    return json.dumps(whole).encode()


def odd_array(by: random.Random) -> Any:
    """An array of random type and shape."""
    shape, kind = by.choice(SHAPES), by.choice(KINDS)
    noise = np.random.default_rng(by.randrange(2**32)).normal(size=shape) * by.choice((1, 1e-30, 1e30, 100))
    if kind == "|V4":
        return np.zeros(shape, kind)
    with np.errstate(all="ignore"):
        made = np.nan_to_num(noise, posinf=0, neginf=0).astype("<i8" if kind == "<M8[s]" else "<f8")
        made = made.astype(kind)
    if made.dtype.kind == "f" and made.size and by.random() < 0.5:
        made.reshape(-1)[by.randrange(made.size)] = by.choice(
            (np.nan, np.inf, -np.inf, np.finfo(made.dtype).max)
        )
    return np.asfortranarray(made) if by.random() < 0.2 else made


def as_npy(array: Any) -> bytes:
    """The content of a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def in_arrays(content: bytes, by: random.Random) -> bytes:
    """Replace, omit or duplicate one of several arrays."""
    with np.load(io.BytesIO(content), allow_pickle=False) as found:
        arrays = dict(found)
    name = by.choice(sorted(arrays))
    how = by.randrange(4)
    if how == 0:
        del arrays[name]
    elif how == 1:
        arrays[by.choice(("a", "labels", "x.npy", "é", "y"))] = odd_array(by)
    else:
        arrays[name] = odd_array(by)
    buffer = io.BytesIO()
    (np.savez if by.random() < 0.7 else np.savez_compressed)(buffer, **arrays)
    return buffer.getvalue()


def in_parquet(content: bytes, by: random.Random) -> bytes:
    """Replace a column by one of another type or with missing values, remove or append one, or cut rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(content))
    place = by.randrange(table.num_columns)
    name, rows = table.column_names[place], table.num_rows
    columns = (
        [by.choice(VALUES[:7])] * rows,
        [None] * rows,
        [by.choice(HOSTILE)] * rows,
        [[0.5, None]] * rows,
        [[by.choice(HOSTILE)]] * rows,
        [b"\xff\0"] * rows,
        [{"bytes": b"x", "path": by.choice(HOSTILE)}] * rows,
        [by.choice((np.nan, np.inf, -1e300))] * rows,
        [value if by.random() < 0.7 else None for value in table.column(place).to_pylist()],
    )
    how = by.randrange(4)
    try:
        if how == 0:
            table = table.remove_column(place)
        elif how == 1:
            table = table.append_column(by.choice((name, "x")), pa.array(by.choice(columns)))
        elif how == 2:
            table = table.slice(by.randrange(rows), by.choice((0, 1, rows)))
        else:
            table = table.set_column(place, name, pa.array(by.choice(columns)))
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
    except (pa.ArrowException, OverflowError):
        return in_bytes(content, by)
    return buffer.getvalue()


def in_tensors(content: bytes, by: random.Random) -> bytes:
    """Replace a tensor or a metadata value, and make the checksum valid again."""
    import tempfile

    import torch

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.safetensors"
        path.write_bytes(content)
        tensors, facts = load_tensors(path)
        name = by.choice(sorted(tensors)) if tensors else "x"
        how = by.randrange(5)
        if how == 0:
            tensors.pop(name, None)
        elif how == 1:
            facts = json.loads(in_json(json.dumps(facts).encode(), by))
        elif how == 2 and tensors and tensors[name].numel():
            whole = tensors[name].reshape(-1)
            whole[by.randrange(len(whole))] = (
                by.choice((-1, 0, 2**30))
                if not whole.is_floating_point()
                else by.choice((float("nan"), float("inf"), -1e30, 0.0))
            )
        elif how == 3 and tensors:
            tensors[name] = tensors[name].reshape(-1)[: by.randrange(tensors[name].numel() + 1)]
        else:
            shape = tuple(by.randrange(4) for _ in range(by.randrange(4)))
            tensors[name] = torch.zeros(
                shape, dtype=by.choice((torch.float32, torch.int64, torch.uint8, torch.bool))
            )
        save_tensors(path, {key: tensor.clone() for key, tensor in tensors.items()}, facts)
        return path.read_bytes()
