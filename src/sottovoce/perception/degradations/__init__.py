"""Degradations of a strength from 0 to 100: noise, reverberation, codecs, lost samples."""
