import pytest

from graphclean.config import Config, apply_settings
from graphclean.errors import InputError


def test_settings_are_applied_in_order() -> None:
    config = apply_settings(Config(), ["audit.certainty=0.7", "audit.k=5, 9", "audit.certainty = 0.8"])
    assert config.audit.certainty == 0.8
    assert config.audit.k == (5, 9)
    assert config.audit.eta == Config().audit.eta
    assert apply_settings(Config(), ["audit.k=7"]).audit.k == (7,)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("audit.certanty=0.7", "--set audit.certanty: no such setting; did you mean audit.certainty?"),
        ("certainty=0.7", "did you mean audit.certainty?"),
        ("zzz=1", "no such setting; there are audit.k, audit.certainty"),
        ("audit.certainty", "write it as section.name=value"),
        ("audit.certainty=high", "--set audit.certainty: 'high' is not a number"),
        ("audit.k=1.5", "is not a list of whole numbers such as 10,20,50"),
        ("audit.certainty=1.2", "certainty must be from 0.5 to under 1"),
        ("audit.k=", "k must be whole numbers of at least 1"),
    ],
)
def test_refused(assignment: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        apply_settings(Config(), [assignment])
    assert message in str(caught.value)
