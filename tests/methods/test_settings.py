"""A method's own settings: checked by the method, and by no other."""

import pytest

from graphclean.config import Config, apply_settings, load_preset
from graphclean.config.presets import preset_names
from graphclean.errors import InputError
from graphclean.methods import complete_settings


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["method.mixup_alpha=nan"], "method.mixup_alpha: 'nan' is not a number"),
        (["method.warmup_epochs=-1"], "warmup_epochs must be at least 0"),
        (["method.tau_inst=0"], "tau_inst must be above 0"),
        (["method.warmup=3"], "method.warmup: no such setting; did you mean method.warmup_epochs?"),
        (["method.warmup_epochs=3", "method.name=elr"], "method.warmup_epochs: no such setting"),
        (["method.name=erl"], "method.name=erl: no such method; did you mean elr?"),
    ],
)
def test_refused(assignments: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        complete_settings(apply_settings(Config(), assignments))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", preset_names())
def test_presets_have_settings_of_their_method_alone(name: str) -> None:
    preset = load_preset(name)
    completed = complete_settings(preset)
    assert completed.method.settings.items() >= preset.method.settings.items()
    assert complete_settings(completed) == completed
