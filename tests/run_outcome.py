"""What a run left in its folder, and listeners that stop a run, for all tests."""

from clare.testing.demands import Stop, StopAtBatch, StopAtTask, events, outcome

__all__ = ["Stop", "StopAtBatch", "StopAtTask", "events", "outcome"]
