"""Certifying a corpus: one certificate a clip, recorded as it is found, and gone on with after a kill."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import final

import yaml

from sottovoce import __version__, registry
from sottovoce.auditing.certificates.certify_folder import CertifiedClip, CertifyFolder
from sottovoce.auditing.run.driver import Advance
from sottovoce.auditing.run.fitting_clips import usable
from sottovoce.auditing.run.folder_lock import hold
from sottovoce.auditing.run.hide_paths import roots_of
from sottovoce.auditing.run.repeatability import CLIPS, LOOKED_AT, hear_twice
from sottovoce.auditing.run.run_cell import FAILURES, explain
from sottovoce.auditing.run.run_folder import describe
from sottovoce.auditing.run.used_weights import digest_weights
from sottovoce.core.batch import AudioBatch
from sottovoce.core.files.private_paths import hide_paths
from sottovoce.core.out_of_memory import out_of_memory
from sottovoce.core.target import Target
from sottovoce.core.vote import Vote
from sottovoce.data.audio_file import LONGEST_SECONDS
from sottovoce.data.labels import Settled, open_settled
from sottovoce.data.load import Clip, Corpus, collate, spread
from sottovoce.defenses.certified_radius import Certificate, Within, certify, check_wer, word_errors
from sottovoce.defenses.defense_text import Defense, parts_of
from sottovoce.defenses.noisy_passes import Smoothed, certified_sigma
from sottovoce.defenses.sampling_bounds import Count, Sampling, radius_snr_db
from sottovoce.errors import InputError, StoreError, exits_are_errors
from sottovoce.targets.open_target import find_device, open_target

USUAL_WER = 0.25
SAVE_SECONDS = 5.0


@final
@dataclass(frozen=True, kw_only=True)
class CertifyPlan:
    """What is certified, as plain data. Batch and device are no part of it: the one changes nothing, the
    other draws noise of its own that is as good.

    defense: gaussian(sigma=...) first, then what belongs to the model, then a vote to elect with, if any. The
        vote has `select` passes; one that is written with others is refused.
    wer: the k of a recogniser; None: 0.25. The others are those of `Sampling`.
    labels, longest: as of `sottovoce.auditing.plan.plan_file.Plan`.
    """

    model: str = "keyword"
    data: str = "embedded"
    limit: int | None = None
    defense: str = "gaussian(sigma=0.01)"
    wer: float | None = None
    passes: int = 1000
    select: int = 100
    alpha: float = 0.001
    radius: float | None = None
    tolerance: float | None = None
    seed: int = 0
    labels: str = "refuse"
    longest: float = LONGEST_SECONDS

    def __post_init__(self) -> None:
        vote, given = Defense.parse(self.defense).vote, vote_passes(self.defense)
        if given not in (None, self.select):
            raise InputError(
                f"expected a vote of {self.select} passes, as many as are set apart to elect from, got "
                f"{self.defense!r}; drop its passes, or select from {given}."
            )
        if not self.longest > 0:
            raise InputError(f"expected --longest above 0 seconds, got {self.longest}.")
        self.sampling().check(self.sigma)
        if vote is not None:
            # The number of passes that the vote itself is written with.
            replace(vote, passes=self.select)  # type: ignore[type-var]

    @property
    def sigma(self) -> float:
        return certified_sigma(Defense.parse(self.defense).transforms)

    def sampling(self) -> Sampling:
        return Sampling(
            passes=self.passes,
            select=self.select,
            alpha=self.alpha,
            radius=self.radius,
            tolerance=self.tolerance,
        )

    def resolved(self, target: Target) -> CertifyPlan:
        """With the WER that a recogniser needs."""
        wanted = USUAL_WER if self.wer is None and target.says == "words" else self.wer
        return replace(self, wer=wanted)

    def to_yaml(self) -> str:
        content = asdict(self)
        # A plan that does not use them reads as it did before there were any, and so keeps its run id.
        for name in ("labels", "longest"):
            if content[name] == getattr(CertifyPlan, name):
                del content[name]
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)

    @property
    def run_id(self) -> str:
        """A hash of the plan and the version of the code."""
        return sha256(f"{__version__}\n{self.to_yaml()}".encode()).hexdigest()[:10]


def vote_passes(defense: str) -> int | None:
    """The passes that the vote of a defense is written with; None where there are none, or no vote."""
    last = parts_of(defense)[-1]
    return last.settings.get("passes") if last.name in registry.names("vote") else None


@final
@dataclass(frozen=True)
class Certifier:
    """A plan at work on one clip after another."""

    plan: CertifyPlan
    smoothed: Smoothed
    vote: Vote | None
    folder: CertifyFolder
    device: str
    advance: Advance

    def record(self, clip: Clip) -> CertifiedClip:
        """The clip's certificate, or why there is none."""
        try:
            batch = collate([clip]).to(self.device)
            with exits_are_errors():
                return self._describe(clip, batch, self._certify(clip, batch))
        except StoreError:
            raise
        except FAILURES as error:
            if out_of_memory(error):
                raise InputError(
                    f"out of memory on a batch of noisy copies of {len(clip.waveform)} samples; run the same "
                    "command again with a smaller --batch to continue."
                ) from None
            return failed(clip.id, clip.label, hide_paths(explain(error), roots_of(self.plan.data)))

    def _certify(self, clip: Clip, batch: AudioBatch) -> Certificate:
        sampling, known = self.plan.sampling(), self.folder.progress()
        resume = None
        if known.get("clip") == clip.id:
            count = Count(sampling, self.smoothed.sigma, known["successes"], known["passes"], known["lower"])
            resume = known["elected"], count
        before = resume[1].passes if resume else 0
        self.advance(before, clip.id)
        saved = time.monotonic()

        def watch(text: str, count: Count) -> None:
            nonlocal saved, before
            if time.monotonic() - saved >= SAVE_SECONDS and count.stop() is None:
                self.folder.save_progress(
                    {
                        "clip": clip.id,
                        "elected": text,
                        "successes": count.successes,
                        "passes": count.passes,
                        "lower": count.lower,
                    }
                )
                saved = time.monotonic()
            self.advance(count.passes - before, clip.id)
            before = count.passes

        found = certify(
            self.smoothed, batch, sampling, wer=self.plan.wer, vote=self.vote, watch=watch, resume=resume
        )
        self.advance(sampling.passes - found.passes, clip.id)
        return found

    def _describe(self, clip: Clip, batch: AudioBatch, found: Certificate) -> CertifiedClip:
        target, wer, length = self.smoothed.target, self.plan.wer, float(batch.length_l2[0])
        right, errors, words = found.text == clip.label, None, None
        if wer is not None:
            right = Within(target, clip.label, wer)(found.text)
            errors, words = word_errors(target, clip.label, found.text)
        return CertifiedClip(
            clip=clip.id,
            status="ok",
            label=clip.label,
            elected=found.text,
            right=right,
            errors=errors,
            words=words,
            radius=found.radius,
            snr_db=radius_snr_db(length, found.radius),
            lower=found.lower,
            successes=found.successes,
            passes=found.passes,
            stop=found.stop,
            seconds=len(clip.waveform) / clip.sample_rate,
            length_l2=length,
            loaded=hide_paths(clip.loaded, roots_of(self.plan.data)),
        )


def run_certify(
    plan: CertifyPlan,
    out: Path,
    *,
    device: str = "auto",
    batch: int | None = None,
    target: Target | None = None,
    retry_failed: bool = False,
    begin: Callable[[int], None] = lambda passes: None,
    advance: Advance = lambda done, note: None,
) -> CertifyFolder:
    """Certify what is not yet recorded. A bad plan raises before any work; a bad clip is recorded as failed.

    batch: noisy copies at once; default: what suits the device. target: the plan's model where it is open.
    retry_failed: whether what is recorded as failed is done again.
    begin: called with the largest possible number of passes; advance: with the passes done or saved, and the
    clip.
    """
    device = find_device(device)
    target = open_target(plan.model, device) if target is None else target
    plan = plan.resolved(target)
    check_wer(target, plan.wer)
    defense = Defense.parse(plan.defense)
    smoothed = Smoothed.behind(defense.transforms, target, seed=plan.seed, batch=batch)
    if defense.vote is not None:
        defense.around(target)
    settled = open_settled(plan.data, target, plan.labels)
    corpus = settled.corpus
    # The clips that an audit with this limit takes, whatever the seed.
    corpus = corpus.limit(plan.limit) if plan.limit is not None else corpus
    _check_steady(plan, target, corpus, device, batch)
    folder = CertifyFolder(out)
    certifier = Certifier(plan, smoothed, defense.vote, folder, device, advance)
    with hold(folder.path):
        weights = digest_weights(target, [plan.defense])
        folder.prepare(plan.to_yaml(), describe(plan.run_id, device, corpus.note, weights=weights))
        kept = {each.clip for each in folder.records() if not (retry_failed and each.status == "failed")}
        with folder.writer() as writer:
            writer.write(_skipped(settled, kept))
        todo = tuple(entry for entry in corpus.entries if entry.id not in kept)
        begin(len(todo) * plan.passes)
        if todo:
            certify_clips(certifier, replace(corpus, entries=todo))
    return folder


def _check_steady(plan: CertifyPlan, target: Target, corpus: Corpus, device: str, batch: int | None) -> None:
    """Refuse a model with randomness of its own, also one that does not say so."""
    clips: list[Clip] = []
    some = replace(corpus, entries=tuple(spread(corpus.entries, LOOKED_AT)))
    for chunk in some.chunks(1, target.sample_rate):
        clips += usable(target, chunk.clips)[0]
        if len(clips) == CLIPS:
            break
    found = hear_twice(target, clips, batch=batch or CLIPS, device=device, seed=plan.seed)
    if not found.steady:
        raise InputError(
            "expected a model that is deterministic behind the noise, got one that answers the same clip in "
            f"different ways (of {found.clips} clips decoded twice, {found.texts} got another text and "
            f"{found.scores} other scores); turn off its dropout or random crops."
        )


def certify_clips(certifier: Certifier, corpus: Corpus) -> None:
    """Certify clips one after the other and record each as it ends."""
    target, folder = certifier.smoothed.target, certifier.folder
    with folder.writer() as writer:
        for clips, failures in corpus.chunks(1, target.sample_rate, certifier.plan.longest):
            clips, refused = usable(target, clips)
            unfit = [
                failed(item.id, item.label, hide_paths(item.reason, roots_of(certifier.plan.data)))
                for item in [*failures, *refused]
            ]
            writer.write([*unfit, *map(certifier.record, clips)])
            certifier.advance(certifier.plan.passes * len(unfit), "loading")
    folder.clear_progress()


def _skipped(settled: Settled, kept: set[str]) -> list[CertifiedClip]:
    """Clips that are left out because of their label, unless they are on record."""
    reasons = settled.reasons()
    return [
        CertifiedClip(clip=entry.id, status="skipped", label=entry.label, reason=reasons[entry.id])
        for entry in settled.skipped
        if entry.id not in kept
    ]


def failed(clip: str, label: str, reason: str) -> CertifiedClip:
    return CertifiedClip(clip=clip, status="failed", label=label, reason=reason)
