"""What a user may set about the detector."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class OodSettings:
    """Settings of the detector that a training run leaves."""

    zeta: str = "auto"
    """ζ of Eq. 9: an input with s(x) under it is rejected. −1 to 1, or `auto`: found on the training set."""

    def __post_init__(self) -> None:
        if self.zeta == "auto":
            return
        try:
            value = float(self.zeta)
        except ValueError:
            value = math.nan
        if not -1 <= value <= 1:
            raise ValueError("zeta must be auto or a number from -1 to 1")
