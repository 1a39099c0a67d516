"""The head-count study on real data: digits, pictures, passages, each also with the total width held fixed."""
