"""What a clip masks: psychoacoustic model 1 and the curves it rests on."""
