"""Images for the experiments of papers that were made on images: readers, and a set that is made in code."""
