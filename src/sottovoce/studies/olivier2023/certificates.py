"""O16: certificates for a classifier and for recognisers (appendix E.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sottovoce.auditing.certificates.certify_folder import CertifiedClip, CertifiedCurve, read_curve
from sottovoce.core.statistics import Interval
from sottovoce.studies.draw import Sweep, curves
from sottovoce.studies.olivier2023.runs.certificate_setup import CertifyRun, CertifySetup, open_certificates
from sottovoce.studies.shown_numbers import MISSING, percent, percent_interval
from sottovoce.studies.study import Result, Study, StudyFigure, StudyTable
from sottovoce.studies.trends import Trend, trend_sheet

SHARES = (0.0, 0.5, 1.0, 2.0, 3.0)
"""Radii of the tables, in sigmas."""
SNRS_DB = (60, 50, 40, 30, 20)
KINDS = {"keyword": "classifier", "recogniser": "recogniser", "trained": "recogniser trained on noise"}


def run(bench: CertifySetup) -> Result:
    found = {name: _curve(one) for name, one in bench.runs.items()}
    return Result(
        sheets=[trend_sheet(_trends(bench)), _by_radius(bench, found), _by_snr(found), _cost(bench, found)],
        drawings=[
            StudyFigure(
                name="radius",
                title="Share of clips certified by L2 radius: the classifier (top), recognisers (bottom)",
                figure=curves(
                    [_sweep(bench, names, "radius") for names in _parted(bench)],
                    label="certified, %",
                    top=None,
                ),
            ),
            StudyFigure(
                name="snr",
                title="Share of clips certified by the SNR of the perturbation: the classifier (top), "
                "recognisers (bottom)",
                figure=curves(
                    [_sweep(bench, names, "snr_db") for names in _parted(bench)],
                    label="certified, %",
                    top=None,
                ),
            ),
        ],
        values={name: one.to_json() for name, one in found.items()},
        notes=[
            "A radius holds with a confidence of 99.9 % per clip. Classifier: the most probable class "
            "under noise is the same for every perturbation inside. Recogniser: more than half of the noisy "
            "passes have a WER below 25 % against the transcript that ROVER elected. Abstentions count as "
            "not "
            "certified.",
            "Right: the class is the label, or the elected transcript has a WER below 25 % against the "
            "reference.",
            "SNR: of the loudest perturbation inside the radius. A clip is certified at an SNR if every "
            "perturbation at that SNR lies inside.",
        ],
    )


def _curve(one: CertifyRun) -> CertifiedCurve:
    radii = [share * one.sigma for share in SHARES]
    return read_curve(one.records, sigma=one.sigma, radii=radii, snrs=[float(db) for db in SNRS_DB])


def _title(name: str) -> str:
    kind, _, sigma = name.rpartition("-")
    return f"{KINDS[kind]}, sigma {sigma}"


def _by_radius(bench: CertifySetup, found: dict[str, CertifiedCurve]) -> StudyTable:
    return StudyTable(
        title="Clips certified by L2 radius, %",
        columns=(
            "model", "elected: accuracy or WER, %", "abstained, %", *(f"{share:g} sigma" for share in SHARES),
            "largest radius", "clips",
        ),
        rows=[
            (
                _title(name),
                percent_interval(one.elected),
                percent_interval(one.abstained),
                *(f"{percent(point.certified.value)} ({percent(point.right.value)})" for point in one.radii),
                _largest(bench.runs[name].records),
                str(one.clips),
            )
            for name, one in found.items()
        ],
        note="In brackets behind a share: certified and right. Brackets elsewhere: 95 % interval. A radius "
        "of 0 sigma is any certificate at all.",
    )  # fmt: skip


def _by_snr(found: dict[str, CertifiedCurve]) -> StudyTable:
    return StudyTable(
        title="Clips certified by SNR, %",
        columns=("model", *(f"{db} dB" for db in SNRS_DB), "clips"),
        rows=[
            (_title(name), *(percent_interval(point.certified) for point in one.snrs), str(one.clips))
            for name, one in found.items()
        ],
    )


def _cost(bench: CertifySetup, found: dict[str, CertifiedCurve]) -> StudyTable:
    rows = []
    for name, one in found.items():
        records = _sound(bench.runs[name].records)
        wanted = bench.runs[name].plan.passes
        mean = one.passes / len(records) if records else 0.0
        early = sum(record.stop != "end" for record in records)
        rows.append((_title(name), f"{wanted:,}", f"{mean:,.0f}", f"{early} of {len(records)}"))
    return StudyTable(
        title="Cost",
        columns=("model", "most passes", "passes per clip", "clips that stopped early"),
        rows=rows,
        note="Passes that are counted; those that elect are extra. The thesis calls more than 10,000 "
        "infeasible.",
    )


def _sound(records: Sequence[CertifiedClip]) -> list[CertifiedClip]:
    return [record for record in records if record.status == "ok"]


def _largest(records: Sequence[CertifiedClip]) -> str:
    radii = [record.radius for record in _sound(records) if record.radius is not None]
    return f"{max(radii):.3g}" if radii else MISSING


def _parted(bench: CertifySetup) -> list[list[str]]:
    """Names of runs: of the classifier, and of recognisers; those that are there."""
    classes = [name for name in bench.runs if name.startswith("keyword-")]
    parts = [classes, [name for name in bench.runs if name not in classes]]
    return [names for names in parts if names]


def _sweep(bench: CertifySetup, names: Sequence[str], entry: str) -> Sweep:
    """Steps of the certified share at the radii or SNRs that were found, one curve a run."""
    lines = {}
    for name in names:
        records = _sound(bench.runs[name].records)
        values = sorted(
            (float(value) for record in records if (value := getattr(record, entry)) is not None),
            reverse=entry == "snr_db",
        )
        # The share with at least this radius, or at most this SNR: all from the smallest or quietest on.
        shares = [100 * (len(values) - place) / len(records) for place in range(len(values))]
        lines[_title(name)] = (values, shares)
    return {"radius": "L2 radius", "snr_db": "SNR, dB"}[entry], "linear", lines


def _trends(bench: CertifySetup) -> list[Trend]:
    trends = []
    for name, run in bench.runs.items():
        kind, _, sigma = name.rpartition("-")
        if kind != "recogniser" or f"trained-{sigma}" not in bench.runs:
            continue
        ours, theirs = _mean_radius(bench.runs[f"trained-{sigma}"].records), _mean_radius(run.records)
        claim = f"sigma {sigma}: training on noise raises the certified radius of the recogniser"
        trends.append(
            Trend(claim, ours > theirs, f"mean {ours:.4g} instead of {theirs:.4g}, abstentions as 0")
        )
    for kind, title in KINDS.items():
        share = _certified(bench, kind)
        claim = f"{title}: certificates are feasible"
        if share is not None:
            trends.append(Trend(claim, share.value > 0, f"{percent(share.value)} % of clips have one"))
    return trends


def _mean_radius(records: Sequence[CertifiedClip]) -> float:
    return float(np.mean([record.radius or 0.0 for record in _sound(records)])) if _sound(records) else 0.0


def _certified(bench: CertifySetup, kind: str) -> Interval | None:
    """The share of clips with a certificate, over all sigmas of a kind of model."""
    each = [_curve(one) for name, one in bench.runs.items() if name.rpartition("-")[0] == kind]
    clips = sum(one.clips for one in each)
    if not clips:
        return None
    share = sum(one.radii[0].certified.value * one.clips for one in each) / clips
    return Interval(share, float("nan"), float("nan"), clips)


STUDY = Study(
    id="O16",
    title="Certificates for classifiers and recognisers",
    paper="Olivier's thesis (2023), appendix E.3",
    reports="certifying a recogniser through the event of a low WER is possible, and was out of reach at "
    "tens of thousands of passes a sentence; no table",
    open=open_certificates,
    run=run,
)
