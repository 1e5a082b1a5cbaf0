"""Interest views over a K-connected overlay: every node knows which nodes want which topic."""
