"""The paper's tables and figures as experiments that can be repeated on the paper's data or on other data."""
