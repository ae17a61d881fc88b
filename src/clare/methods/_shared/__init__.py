"""What several methods are made of and is no method itself."""
