"""Make the embedded prompts again from Debian's packages of telephone prompts.

    apt install asterisk-core-sounds-{en,es,fr,it,ru}{,-g722} ffmpeg
    python tools/make_prompts.py                        # src/sottovoce/data/prompts/

Nothing is done to the sound but the decoding: G.722 at 16 kHz becomes 16-bit FLAC. The texts below are those
of the packages with accents, capitals and full stops put right; one that says something else is refused.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import subprocess
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

PROMPTS = Path(__file__).parents[1] / "src" / "sottovoce" / "data" / "prompts"
SOUNDS = Path("/usr/share/asterisk/sounds")
TEXTS = "/usr/share/doc/asterisk-core-sounds-{0}/core-sounds-{0}.txt.gz"
SAMPLE_RATE = 16000
COLUMNS = ("path", "label", "id", "speaker", "language")


@dataclass(frozen=True)
class Voice:
    """A speaker of one language, and the sentences chosen: the prompt's name to what is said."""

    language: str
    folder: str
    speaker: str
    chosen: dict[str, str]


# Whisper tiny hears every one of them word by word as it stands here, and in its own language.
VOICES = (
    Voice(
        "en",
        "en_US_f_Allison",
        "Allison Smith",
        {
            "check-number-dial-again": "Please check the number and dial again.",
            "dir-nomore": "There are no more compatible entries in the directory.",
            "followme/status": (
                "The person you are calling is not at their desk; I will try to locate them for you."
            ),
            "queue-youarenext": (
                "Your call is now first in line and will be answered by the next available representative."
            ),
            "vm-sorry": "I'm sorry I did not understand your response.",
            "vm-whichbox": "To leave a message, please enter a mailbox number.",
        },
    ),
    Voice(
        "es",
        "es_MX_f_Allison",
        "Allison Smith",
        {
            "confbridge-lock-no-join": "La conferencia está actualmente bloqueada y no se puede ingresar.",
            "confbridge-locked": "La conferencia está ahora bloqueada.",
            "confbridge-unmuted": "Usted ya no se encuentra en modo mudo.",
            "demo-nomatch": "Lo siento, pero no hay una correspondencia con esas palabras claves.",
            "tt-monkeysintro": "Han sido llevados por monos.",
            "vm-nonumber": "Lo siento, pero no sé quién ha enviado este mensaje.",
        },
    ),
    Voice(
        "fr",
        "fr_CA_f_June",
        "June Wallack",
        {
            "conf-nonextended": "La conférence ne peut être prolongée.",
            "conf-now-recording": "La conférence est maintenant enregistrée.",
            "confbridge-removed": "Vous avez été retiré de cette conférence.",
            "demo-moreinfo": "Ce message n'a pas encore été écrit.",
            "followme/sorry": (
                "Désolé, je n'ai pas réussi à localiser la personne que vous désirez joindre."
            ),
            "queue-youarenext": "Votre appel sera le prochain à être traité.",
        },
    ),
    Voice(
        "it",
        "it_IT_m_Carlo",
        "Carlo Flora",
        {
            "conf-now-recording": "La conferenza è ora in fase di registrazione.",
            "followme/sorry": "Sono spiacente, ma non mi è stato possibile trovare la persona chiamata.",
            "ss-noservice": (
                "Il numero che ha digitato non è in uso. Prego controllare il numero e riprovare."
            ),
            "vm-mailboxfull": (
                "Spiacente, ma la casella di posta dell'utente non può accettare ulteriori messaggi."
            ),
            "vm-msgforwarded": "Il tuo messaggio è stato inoltrato con successo.",
            "vm-savefolder": "In quale cartella devo salvare il messaggio?",
        },
    ),
    Voice(
        "ru",
        "ru_RU_f_IvrvoiceRU",
        "ivrvoice.ru",
        {
            "conf-placeintoconf": "Сейчас Вы зайдете в конференцию.",
            "confbridge-only-one": "В текущий момент в конференции один участник.",
            "pm-invalid-option": "Данная опция недоступна. Попробуйте еще раз.",
            "sorry-youre-having-problems": "Нам очень жаль, что у вас проблемы.",
            "vm-newuser": (
                "Добро пожаловать в голосовую почту! Для начала прослушайте инструкцию по настройке ящика."
            ),
            "vm-nobodyavail": "В данный момент никто не может принять Ваш звонок.",
        },
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=PROMPTS, help="folder to write to")
    out = parser.parse_args().out
    rows = [row for voice in VOICES for row in write_voice(voice, out)]
    with (out / "prompts.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    size = sum(file.stat().st_size for file in out.rglob("*.flac"))
    print(f"{len(rows)} prompts, {size / 1e6:.2f} MB in {out}")


def write_voice(voice: Voice, out: Path) -> list[dict[str, str]]:
    """The FLAC files of a voice; returns their rows of the table."""
    published = read_texts(voice.language)
    (out / voice.language).mkdir(parents=True, exist_ok=True)
    rows = []
    for name, text in voice.chosen.items():
        if bare(published[name]) != bare(text):
            raise SystemExit(f"{voice.language}/{name}: the package says {published[name]!r}, not {text!r}")
        id = f"{voice.language}/{name.replace('/', '-')}"
        samples = decode(SOUNDS / voice.folder / f"{name}.g722")
        soundfile.write(out / f"{id}.flac", samples, SAMPLE_RATE, subtype="PCM_16")
        values = (f"{id}.flac", text, id, voice.speaker, voice.language)
        rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


def read_texts(language: str) -> dict[str, str]:
    """Prompt to text, from lines such as `vm-sorry: I'm sorry ...`."""
    with gzip.open(TEXTS.format(language), "rt", encoding="utf-8") as file:
        pairs = [line.partition(":") for line in file if not line.startswith(";")]
    return {name.strip(): text.strip() for name, _, text in pairs}


def bare(text: str) -> str:
    """Letters alone, without accents and case."""
    letters = unicodedata.normalize("NFD", text.lower())
    return "".join(letter for letter in letters if letter.isalpha())


def decode(path: Path) -> np.ndarray:
    """`(time,)` int16 at 16 kHz."""
    words = f"ffmpeg -v error -f g722 -i {path} -f s16le -ac 1 -ar {SAMPLE_RATE} -".split()
    return np.frombuffer(subprocess.run(words, capture_output=True, check=True).stdout, dtype="<i2")


if __name__ == "__main__":
    main()
