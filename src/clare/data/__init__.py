"""Images: decoded once into a store, ordered into a stream of tasks, augmented in batches."""
