"""The registry: names, "did you mean", settings checked before anything runs."""

from __future__ import annotations

import pytest

from sottovoce import registry
from sottovoce.attacks.pgd import Pgd
from sottovoce.core.budget import Snr
from sottovoce.core.goal import Evade, Force
from sottovoce.errors import InputError, SottovoceError, UnknownName


def test_known_names() -> None:
    assert {"noise", "fgsm", "pgd"} <= set(registry.names("attack"))
    assert {"evade", "force"} <= set(registry.names("goal"))
    assert registry.names("budget") == sorted(registry.names("budget"))
    assert registry.find("attack", "pgd") is Pgd


def test_build() -> None:
    assert registry.build("attack", "pgd", {"steps": 3}) == Pgd(steps=3)
    assert registry.build("budget", "snr", {"db": 30}) == Snr(30.0)
    assert registry.build("budget", "snr", {"db": 30.0, "shape": "linf"}) == Snr(30.0, "linf")
    assert registry.build("goal", "evade") == Evade()
    assert registry.build("goal", "force", {"text": "yes"}) == Force("yes")


@pytest.mark.parametrize(
    ("kind", "name", "settings", "message"),
    [
        ("atack", "pgd", {}, "unknown kind of part 'atack': did you mean 'attack'?"),
        ("attack", "pdg", {}, "unknown attack 'pdg': did you mean 'pgd'?"),
        ("goal", "xxxxxx", {}, "unknown goal 'xxxxxx': known: .*evade, .*force"),
        ("attack", "pgd", {"step_size": 1}, "'step_size': did you mean 'steps'?"),
        ("attack", "pgd", {"steps": "many"}, r"^pgd\(steps=many\): expected an integer\.$"),
        (
            "attack",
            "pgd",
            {"steps": 0},
            r"^pgd\(steps=0\): expected a number of at least 1; the default is 40\.$",
        ),
        ("budget", "snr", {}, r"^snr needs the setting db; write snr\(db=\.\.\.\)"),
        ("budget", "snr", {"db": 30, "shape": "l1"}, r"^snr\(shape=l1\): expected l2 or linf\.$"),
        ("goal", "evade", {"references": ["a"]}, "unknown setting of evade 'references'"),
    ],
)
def test_mistakes(kind: str, name: str, settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        registry.build(kind, name, settings)


@pytest.mark.parametrize("kind", ["attack", "universal", "goal"])
def test_messages_call_a_part_by_its_registered_name(kind: str) -> None:
    own = [name for name in registry.names(kind) if registry.is_own(kind, name)]
    assert {name: registry.find(kind, name).name for name in own} == {name: name for name in own}


def test_types_are_described_in_words() -> None:
    for setting, value, expected in [
        ("bits", "many", r"cw\(bits=many\): expected an integer or null\."),
        ("bits", True, r"cw\(bits=true\): expected an integer or null\."),
        ("confidence", float("nan"), r"cw\(confidence=nan\): expected a finite number\."),
    ]:
        with pytest.raises(InputError, match=f"^{expected}$"):
            registry.build("attack", "cw", {setting: value})
    with pytest.raises(
        InputError, match=r"\(choices=yes\): expected a list such as \[\.\.\.\], each text\.$"
    ):
        registry.build("goal", "force-nearest", {"choices": "yes"})
    with pytest.raises(InputError, match=r"^kenansville\(search=maybe\): expected true or false\.$"):
        registry.build("attack", "kenansville", {"search": "maybe"})


def test_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._PARTS, "goal", dict(registry._PARTS["goal"]))
    registry.add("goal", "dodge", "sottovoce.core.goal:Evade")
    assert registry.build("goal", "dodge") == Evade()
    registry.add("goal", "dodge", "sottovoce.core.goal:Evade")
    with pytest.raises(
        InputError, match=r"the goal 'dodge' exists already, as 'sottovoce\.core\.goal:Evade'"
    ):
        registry.add("goal", "dodge", "elsewhere:Dodge")
    with pytest.raises(UnknownName):
        registry.add("gaol", "dodge", "elsewhere:Dodge")


def test_errors_can_be_caught_by_builtin_kind() -> None:
    assert issubclass(InputError, ValueError) and issubclass(UnknownName, InputError)
    assert issubclass(InputError, SottovoceError)
    assert str(UnknownName("class", "upp", ["up", "down"])) == "unknown class 'upp': did you mean 'up'?"
    assert str(UnknownName("class", "qqq", ["up", "down"])) == "unknown class 'qqq': known: down, up."
    assert str(UnknownName("class", "qqq", [])) == "unknown class 'qqq': known: none."
