"""O3: are pruned networks harder to fool?"""
