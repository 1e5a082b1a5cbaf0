"""Interest views over a K-connected overlay: every node knows who wants what, and sends only there."""
