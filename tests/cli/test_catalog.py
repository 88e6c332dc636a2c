"""What there is to choose from, as a person and as a script see it."""

import json
from dataclasses import fields
from textwrap import indent

import pytest

from graphclean.methods import load_method, method_names
from graphclean.ood.detectors import detector_names, load_detector
from tests.builders import Cli


def test_methods_are_listed_with_cost_and_title(cli: Cli) -> None:
    done = cli("methods")
    assert done.code == 0
    rows = {line.split()[0]: line for line in done.out.splitlines() if line and not line.startswith(" ")}
    for name in method_names():
        info = load_method(name).info
        assert f"{info.cost:g}" in rows[name].split()
        assert info.title.split()[0] in rows[name]
        assert all(need.split()[0] in done.out for need in info.needs)
    assert len(done.out.splitlines()) < 2 * len(rows)
    assert max(map(len, done.out.splitlines())) <= 80
    assert "graphclean methods NAME" in done.out


def test_a_list_for_scripts_has_all_facts(cli: Cli) -> None:
    found = json.loads(cli("methods", "--json").out)
    assert [row["name"] for row in found] == method_names()
    elr = next(row for row in found if row["name"] == "elr")
    assert (elr["kind"], elr["networks"], elr["cost"], elr["needs"]) == ("loss", 1, 1.0, [])
    assert "NeurIPS 2020" in elr["paper"]


@pytest.mark.parametrize("name", method_names())
def test_every_setting_of_a_method_is_shown_with_its_reason(cli: Cli, name: str) -> None:
    settings = load_method(name).Settings()
    shown = cli("methods", name).out
    assert shown.startswith(load_method(name).info.title)
    assert load_method(name).info.paper in shown
    assert not any(line.isspace() for line in shown.splitlines())
    facts = json.loads(cli("methods", name, "--json").out)["settings"]
    assert list(facts) == [field.name for field in fields(settings)]
    for setting, fact in facts.items():
        reason = indent(fact["reason"], "    ")
        assert f"\nmethod.{setting} = {getattr(settings, setting)}\n{reason}" in shown
        assert len(fact["reason"]) > 10


def test_an_unknown_method_is_one_line(cli: Cli) -> None:
    done = cli("methods", "erl")
    assert (done.code, done.out) == (2, "")
    assert done.err == "graphclean: method.name=erl: no such method; did you mean elr?\n"


def test_detectors_are_listed_with_what_they_need(cli: Cli) -> None:
    done, found = cli("detectors"), json.loads(cli("detectors", "--json").out)
    assert [row["name"] for row in found] == detector_names()
    for row in found:
        made = load_detector(row["name"])
        facts = {"title": made.title, "paper": made.paper, "cost": made.cost, "choices": made.choices}
        assert row.items() >= facts.items()
        assert row["needs"][0] == made.needs
        assert ("the classifier's weights" in row["needs"]) == made.needs_head
        assert row["export"] == ("no" if made.needs == "inputs" else "ONNX")
        assert made.title.split()[0] in done.out
        assert made.needs in done.out
    assert "train --detector NAME" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_one_detector_is_shown_with_how_its_parameters_are_chosen(cli: Cli) -> None:
    shown = cli("detectors", "react").out.splitlines()
    assert shown[0] == load_detector("react").title
    assert "needs: features, the classifier's weights, a ReLU at the end of the trunk" in shown
    assert any(line.startswith("choices: quantile 0.9") for line in shown)
    assert json.loads(cli("detectors", "react", "--json").out)["name"] == "react"
    slip = cli("detectors", "reakt")
    assert (slip.code, slip.err) == (
        2, "graphclean: ood.detector=reakt: no such detector; did you mean react?\n"
    )  # fmt: skip
