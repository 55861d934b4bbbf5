"""Study A: detectors of pathological speech, trained, attacked, looked at in the spectrum, and defended."""
