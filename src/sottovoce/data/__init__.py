"""Clips on their way in: files, corpora, and the clips that come with sottovoce.

`sottovoce.open_data` opens them from a text, together with a model; `open_corpus` here without one.

>>> corpus = sv.data.open_corpus("embedded").limit(3)
>>> batch = sv.data.collate([corpus.load(entry, sample_rate=16000) for entry in corpus])
>>> batch.ids == tuple(entry.id for entry in corpus)
True
"""

from typing import TYPE_CHECKING

from sottovoce.lazy import lazy, registered

if TYPE_CHECKING:
    from sottovoce.data.corpora import open_corpus as open_corpus
    from sottovoce.data.load import Clip as Clip
    from sottovoce.data.load import Corpus as Corpus
    from sottovoce.data.load import Entry as Entry
    from sottovoce.data.load import collate as collate
    from sottovoce.data.load import load_clip as load_clip
    from sottovoce.data.pack import save_pack as save_pack
else:
    __getattr__, __dir__ = lazy(
        __name__,
        registered(
            "corpus",
            Clip="sottovoce.data.load:Clip",
            Corpus="sottovoce.data.load:Corpus",
            Entry="sottovoce.data.load:Entry",
            collate="sottovoce.data.load:collate",
            load_clip="sottovoce.data.load:load_clip",
            save_pack="sottovoce.data.pack:save_pack",
            open_corpus="sottovoce.data.corpora:open_corpus",
        ),
    )
