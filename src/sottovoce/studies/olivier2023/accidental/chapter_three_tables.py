"""What chapter 3 and appendix A of Olivier's thesis (2023) report in words; its figures have no numbers."""

from __future__ import annotations

TRAININGS = 25_000
P_ROBUST = {("3", 0.05): 0.0, ("6", 0.05): 0.03, ("3", 0.1): 0.005, ("6", 0.1): 0.12}
"""P(robust | eps, .4) by hidden units and eps (section 3.5.3). The first is "almost 0 %"."""
PERCENT = {("3", 0.05): "almost 0", ("6", 0.05): "3", ("3", 0.1): ".5", ("6", 0.1): "12"}
"""The same as printed."""
WIDER = 2.0
"""The area of P(robust) "almost doubles" from 3 units to 6."""
TAU = 0.85
"""Share of images that a valid, and a robust, network classifies (section 3.5.4)."""
MNIST_MARGINS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.10)
"""Training margins on MNIST, from the axis of figure A.3."""
