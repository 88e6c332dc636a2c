"""Which runs the user made on this machine: only their data is read without being named."""

import hashlib
import hmac
import json
import os
import secrets
from typing import Any

from .._files import locked, plain, replaced, user_config
from ..errors import InputError
from .schema import SourceRecord

KEY_FILE = "run-key"
KEY_BYTES = 32


def sealed(source: SourceRecord) -> SourceRecord:
    """The source record with its HMAC, or without one if no key can be stored."""
    bare, key = _bare(source), _read_key() or _make_key()
    return bare | {"seal": _sign(bare, key)} if key is not None else bare


def made_here(source: SourceRecord) -> bool:
    """Whether the record's HMAC was made with this user's key."""
    key, seal = _read_key(), source.get("seal")
    return key is not None and seal is not None and hmac.compare_digest(_sign(_bare(source), key), seal)


def _bare(source: SourceRecord) -> SourceRecord:
    bare = source.copy()
    bare.pop("seal", None)
    return bare


def _sign(source: SourceRecord, key: bytes) -> str:
    text: Any = json.dumps(plain(dict(source)), sort_keys=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _read_key() -> bytes | None:
    """The user's key; None if there is no valid one."""
    try:
        path = user_config() / KEY_FILE
        key = path.read_bytes() if path.is_file() else b""
    except (OSError, RuntimeError):  # no home folder either
        return None
    return key if len(key) == KEY_BYTES else None


def _make_key() -> bytes | None:
    """Create the key, readable by the user alone; concurrent processes agree on one."""
    try:
        path = user_config() / KEY_FILE
        with locked(path, f"{path}: in use", wait=lambda _: None):
            if _read_key() is None:
                with replaced(path) as draft:
                    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                    draft.write_bytes(secrets.token_bytes(KEY_BYTES))
    except (InputError, OSError, RuntimeError):
        return None
    return _read_key()
