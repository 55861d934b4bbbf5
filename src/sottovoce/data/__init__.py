"""Clips on their way in: files, corpora, and the clips that this project ships.

Texts open them with `sottovoce.open_data`.
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
