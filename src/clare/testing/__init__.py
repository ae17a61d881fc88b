"""What every method promises, as plain functions on a tiny stream and a tiny random backbone."""
