"""Teasers and thumbnails for the episodes of a show."""
