"""A classifier for one's own pictures: taught, asked, and taken back."""
