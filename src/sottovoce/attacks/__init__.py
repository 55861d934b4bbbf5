"""Attacks. `sottovoce.attacks.Pgd` is the class behind the text "pgd"; both name the same attack.

Gradient attacks: `Fgsm`, `Pgd`, `Apgd`, `ApgdDlr`. For the smallest perturbation that fools a classifier:
`DeepFool`, `CarliniWagner`. To force a text on a recogniser: `CarliniWagnerAsr`, `Imperceptible`. Without
gradients: `Genetic`, `Taori`, `Kenansville`, `KenansvilleSsa`, `Yeehaw`. One perturbation for all clips:
`Uap`, `UapHc`, `UniversalGradient`. Examples of an earlier run: `Replay`. Baselines: `WhiteNoise`,
`ReplayNoise`, `Nothing`.

>>> sv.attacks.Pgd(steps=100)
Pgd(steps=100, step=0.1, momentum=0.0, random_start=False, restarts=1)
"""

from typing import TYPE_CHECKING

from sottovoce.lazy import lazy, registered

if TYPE_CHECKING:
    from sottovoce.attacks.apgd import Apgd as Apgd
    from sottovoce.attacks.apgd import ApgdDlr as ApgdDlr
    from sottovoce.attacks.carlini_wagner import CarliniWagner as CarliniWagner
    from sottovoce.attacks.carlini_wagner_asr import CarliniWagnerAsr as CarliniWagnerAsr
    from sottovoce.attacks.deepfool import DeepFool as DeepFool
    from sottovoce.attacks.genetic import Genetic as Genetic
    from sottovoce.attacks.imperceptible import Imperceptible as Imperceptible
    from sottovoce.attacks.kenansville import Kenansville as Kenansville
    from sottovoce.attacks.kenansville import KenansvilleSsa as KenansvilleSsa
    from sottovoce.attacks.pgd import Fgsm as Fgsm
    from sottovoce.attacks.pgd import Pgd as Pgd
    from sottovoce.attacks.replay import Replay as Replay
    from sottovoce.attacks.replay import ReplayNoise as ReplayNoise
    from sottovoce.attacks.taori import Taori as Taori
    from sottovoce.attacks.universal_deepfool import Uap as Uap
    from sottovoce.attacks.universal_deepfool import UapHc as UapHc
    from sottovoce.attacks.universal_gradient import UniversalGradient as UniversalGradient
    from sottovoce.attacks.white_noise import Nothing as Nothing
    from sottovoce.attacks.white_noise import WhiteNoise as WhiteNoise
    from sottovoce.attacks.yeehaw import Yeehaw as Yeehaw
    from sottovoce.core.universal_attack import Perturbation as Perturbation
    from sottovoce.core.universal_attack import UniversalAttack as UniversalAttack
else:
    __getattr__, __dir__ = lazy(
        __name__,
        registered(
            "attack",
            "universal",
            Perturbation="sottovoce.core.universal_attack:Perturbation",
            UniversalAttack="sottovoce.core.universal_attack:UniversalAttack",
        ),
    )
