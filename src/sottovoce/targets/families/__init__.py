"""What models of one kind share: classifiers, CTC and attention recognisers, and their front ends."""
