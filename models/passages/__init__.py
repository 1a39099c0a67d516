"""Questions and the passages that answer them: pairs from installed documentation or MS MARCO, with hard negatives."""
